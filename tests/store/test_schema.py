"""A schema comes back from JSON as it was, knows its features, and names classes."""

import json
from dataclasses import asdict

import pytest

from nfdist.store.schema import MOST_SHOWN, FeatureColumn, Schema, parsed_schema

SCHEMA = Schema(
    (
        FeatureColumn("age", "double", "number", 2, indicator=True, missing=3, span=(1.0, 90.5)),
        FeatureColumn("city", "string", "category", 3, categories=("Lima", "Oslo", "Rome")),
        FeatureColumn("paid", "bool", "boolean", 1),
        FeatureColumn("about", "string", "text", 16),
        FeatureColumn("vector", "list<item: float>", "list", 4),
    ),
    id_column="user",
    label_column="plan",
    class_names=("free", "paid"),
    unused={"joined": "left out: timestamp[us] is no kind of feature"},
)


@pytest.mark.parametrize("schema", [SCHEMA, Schema.of_matrix(5), Schema.of_matrix(1, class_names=(False, True))])
def test_it_comes_back_as_it_was(schema: Schema) -> None:
    assert parsed_schema(json.loads(json.dumps(asdict(schema)))) == schema


def test_every_feature_belongs_to_one_column() -> None:
    slices = [(features.start, features.stop) for _, features in SCHEMA.slices()]
    assert slices == [(0, 2), (2, 5), (5, 6), (6, 22), (22, 26)]
    assert SCHEMA.num_features == 26
    assert SCHEMA.gap_features == [0, 5]


def test_the_table_has_a_line_for_every_column_and_why_others_are_left_out() -> None:
    lines = SCHEMA.lines()
    assert lines[0].split() == ["column", "type", "use", "missing", "range"]
    assert [line.split()[0] for line in lines[1:]] == ["age", "city", "paid", "about", "vector", "joined"]
    assert "number and whether missing" in lines[1]
    assert lines[1].endswith("3        1 to 90.5")
    assert lines[2].endswith("Lima, Oslo, Rome")
    assert lines[-1].endswith("left out: timestamp[us] is no kind of feature")
    many = Schema(tuple(FeatureColumn(f"x{place}", "double", "number", 1) for place in range(MOST_SHOWN + 7)))
    assert many.lines()[-1] == "and 7 more columns"


def test_values_of_classes_have_their_names_where_there_are_some() -> None:
    assert SCHEMA.by_class([0.5, None]) == {"free": 0.5, "paid": None}
    assert SCHEMA.by_class([0.5]) == {"paid": 0.5}  # of the question whether it is the second
    assert Schema.of_matrix(1).by_class([1, 2, 3]) == [1, 2, 3]
    assert SCHEMA.names_of([1, 0]) == ["paid", "free"]
    assert Schema.of_matrix(1).names_of([1, 0]) == [1, 0]
