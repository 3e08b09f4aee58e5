import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nfdist.errors import PartitionError
from nfdist.files import dump_checked
from nfdist.store.manifest import Manifest
from nfdist.store.schema import Schema
from tests.store.building import RECIPE, build_graph, dense, write

SCHEMA = json.loads(json.dumps(asdict(Schema.of_matrix(5))))
COLUMN = SCHEMA["columns"][0]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    write(tmp_path / "p", build_graph())
    return tmp_path / "p"


def change(partition: Path, **values: Any) -> None:
    """Other values, under a checksum that fits: what a hostile hand or a bug of a writer could leave."""
    path = partition / "manifest.json"
    content = {**json.loads(path.read_text()), **values}
    del content["checksum"]
    path.write_bytes(dump_checked(content.pop("format_version"), content))


def refusal(partition: Path) -> str:
    with pytest.raises(PartitionError) as caught:
        Manifest.read(partition)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    written = write(tmp_path / "p", build_graph(questions=3))
    read = Manifest.read(tmp_path / "p")
    assert read == written
    assert read.label_shape == (3,)
    assert read.recipe == RECIPE


def test_a_manifest_of_version_2_has_features_without_names(partition: Path) -> None:
    path = partition / "manifest.json"
    content = json.loads(path.read_text())
    del content["format_version"], content["checksum"], content["schema"]
    path.write_bytes(dump_checked(2, {**content, "recipe": {"options": {"normalize_features": "row"}}}))
    schema = Manifest.read(partition).schema
    assert schema == Schema.of_matrix(5, normalize="row")
    assert (schema.id_column, schema.class_names, schema.is_named) == ("id", (), False)


def test_counts_are_those_of_the_graph(tmp_path: Path) -> None:
    graph = build_graph()
    assignment = [row % 3 for row in range(60)]
    manifest = write(tmp_path / "p", graph, assignment=np.array(assignment))
    truth = dense(graph)
    for number, part in enumerate(manifest.parts):
        rows = [row for row in range(60) if assignment[row] == number]
        foreign = [row for row in range(60) if assignment[row] != number]
        assert part.stop - part.start == part.num_nodes == len(rows)
        assert part.edges == truth[rows].sum()
        assert part.cut_edges == truth[rows][:, foreign].sum()
        assert part.halo_nodes == truth[rows][:, foreign].any(axis=0).sum()
        assert part.train_nodes == (graph.split[rows] == 1).sum()
    assert manifest.edge_cut == sum(part.cut_edges for part in manifest.parts)
    assert manifest.split_counts["valid"] == (graph.split == 2).sum()


def test_checksums_hold_and_progress_adds_up(partition: Path) -> None:
    manifest = Manifest.read(partition)
    seen: list[int] = []
    manifest.verify(partition, progress=seen.append)
    assert sum(seen) == sum(stored.size_bytes for stored in manifest.files.values())
    assert {str(path.relative_to(partition)) for path in partition.rglob("*.arrow")} == set(manifest.files)


def test_an_altered_file_of_the_same_size_is_found_by_verify(partition: Path) -> None:
    path = partition / "part-00001" / "sources.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    manifest = Manifest.read(partition)
    with pytest.raises(PartitionError, match=r"part-00001/sources\.arrow was altered"):
        manifest.verify(partition)


def test_every_altered_byte_of_the_manifest_is_refused(partition: Path) -> None:
    path = partition / "manifest.json"
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert "manifest.json" in refusal(partition)


def test_a_truncated_file_is_refused(partition: Path) -> None:
    path = partition / "part-00002" / "nodes.arrow"
    path.write_bytes(path.read_bytes()[:-1])
    assert "part-00002/nodes.arrow has" in refusal(partition)


def test_a_missing_file_is_refused(partition: Path) -> None:
    (partition / "ids.arrow").unlink()
    assert "ids.arrow cannot be read: No such file" in refusal(partition)


def test_a_missing_directory_or_manifest_is_refused(tmp_path: Path) -> None:
    assert "is not a directory" in refusal(tmp_path / "nothing")
    assert "holds no manifest.json" in refusal(tmp_path)


@pytest.mark.parametrize("version", [0, 4, "3", None, True])
def test_an_unknown_version_is_refused_before_anything_else(partition: Path, version: Any) -> None:
    change(partition, format_version=version, parts="something of the future")
    assert f"has format version {version!r}, this nfdist reads version 3" in refusal(partition)


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', "{}", "\x00\xff"])
def test_text_that_is_no_manifest_is_refused(partition: Path, text: str) -> None:
    (partition / "manifest.json").write_text(text, encoding="latin-1")
    assert "manifest.json" in refusal(partition)


def test_an_unknown_field_is_named(partition: Path) -> None:
    change(partition, color="red")
    assert "unknown field color" in refusal(partition)


def test_a_field_that_is_gone_is_named(partition: Path) -> None:
    content = json.loads((partition / "manifest.json").read_text())
    del content["num_classes"], content["checksum"], content["format_version"]
    (partition / "manifest.json").write_bytes(dump_checked(3, content))
    assert "has no field num_classes" in refusal(partition)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_nodes": "60"}, "num_nodes = '60'"),
        ({"num_nodes": True}, "num_nodes = True"),
        ({"num_nodes": 61}, "do not cover the 61 nodes"),
        ({"num_edges": 1}, "num_edges is 1"),
        ({"edge_cut": 1}, "edge_cut is 1"),
        ({"parts": []}, "do not cover"),
        ({"parts": [{"start": 0}]}, "part 0 has no field stop"),
        ({"parts": [3]}, "part 0 is not an object"),
        ({"label_shape": ["x"]}, "label_shape"),
        ({"split_counts": {"train": "many"}}, "split_counts"),
        ({"feature_kind": "fluffy"}, "feature_kind"),
        ({"files": {}}, "file 'ids.arrow' is missing"),
        ({"files": {"../secret": {"size_bytes": 1, "blocks": ""}}}, "file '../secret' belongs to no part"),
        ({"files": {"\0": {"size_bytes": 1, "blocks": ""}}}, "file '\\x00' belongs to no part"),
        ({"files": {".": {"size_bytes": 1, "blocks": ""}}}, "file '.' belongs to no part"),
        ({"num_classes": 10**9}, "num_classes is 1000000000"),
        ({"num_features": 10**9}, "the schema has 5 features of 1000000000"),
        ({"feature_dtype": "float16", "num_nodes": 61}, "do not cover"),
        ({"schema": {}}, "the schema has no field columns"),
        ({"schema": SCHEMA | {"columns": [COLUMN | {"width": 4}]}}, "the schema has 4 features of 5"),
        ({"schema": SCHEMA | {"columns": [COLUMN | {"encoding": "magic"}]}}, "has the encoding 'magic'"),
        ({"schema": SCHEMA | {"columns": [COLUMN | {"encoding": "number"}]}}, "has the width 5 and 0 gaps as a number"),
        ({"schema": SCHEMA | {"columns": [COLUMN | {"categories": [1]}]}}, "categories that are no text"),
        ({"schema": SCHEMA | {"columns": [COLUMN | {"span": [1]}]}}, "expected two numbers or none"),
        ({"schema": SCHEMA | {"class_names": ["a"]}}, "1 of 4 classes have names"),
        ({"schema": SCHEMA | {"class_names": ["a", 1, 2, 3]}}, "class_names must be texts"),
        ({"schema": SCHEMA | {"normalize": "column"}}, "expected none or row"),
        ({"schema": SCHEMA | {"unused": {"a": 1}}}, "must have a reason each"),
        ({"label_shape": [7]}, "labels are [7] a node"),
        ({"task": "none"}, "task is 'none'"),
    ],
)
def test_wrong_values_are_named(partition: Path, values: dict[str, Any], message: str) -> None:
    change(partition, **values)
    assert message in refusal(partition)
