"""Confusion, scores of classes and mistakes equal those that a plain count over all rows gives."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from nfdist.errors import CheckpointError
from nfdist.reporting.answer_scores import read_answers
from tests.reporting.building import CLASSES
from tests.reporting.explained import Explained


def labeled_test_rows(path: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(path / "predictions.parquet").to_pylist()
    return [row for row in rows if row["split"] == "test" and row["true_label"] is not None]


def test_they_are_those_of_a_plain_count(explained: Explained) -> None:
    rows, found = labeled_test_rows(explained.path), explained.facts.answers
    assert found is not None
    truth, answer = ([row[name] for row in rows] for name in ("true_label", "label"))
    names = [one.name for one in found.classes]
    assert sorted(names) == sorted(CLASSES)
    assert found.confusion is not None
    assert found.confusion.tolist() == confusion_matrix(truth, answer, labels=names).tolist()
    expected = precision_recall_fscore_support(truth, answer, labels=names, zero_division=np.nan)
    for place, one in enumerate(found.classes):
        numbers = [number if number is not None else np.nan for number in (one.precision, one.recall, one.f1)]
        assert [*numbers, one.support] == pytest.approx([column[place] for column in expected], nan_ok=True)
    assert found.accuracy == pytest.approx(np.mean([one == two for one, two in zip(truth, answer, strict=True)]))
    assert (found.split, found.labeled, found.smoothed) == ("test", len(rows), rows[0]["smoothed"])


def test_the_surest_mistakes_come_first(explained: Explained) -> None:
    rows, found = labeled_test_rows(explained.path), explained.facts.answers
    assert found is not None
    wrong = sorted((row for row in rows if row["label"] != row["true_label"]), key=lambda row: -row["probability"])
    expected = [(row["id"], row["true_label"], row["label"], row["probability"]) for row in wrong[:8]]
    assert [(one.original_id, one.truth, one.answer, one.probability) for one in found.mistakes] == expected
    everyone = pq.read_table(explained.path / "predictions.parquet")["id"].to_pylist()
    assert [everyone[one.node_id] for one in found.mistakes] == [one.original_id for one in found.mistakes]


def test_bins_hold_every_answer_once(explained: Explained) -> None:
    rows, found = labeled_test_rows(explained.path), explained.facts.answers
    assert found is not None
    expected = Counter(min(int(np.float64(row["probability"]) * 10), 9) / 10 for row in rows)
    assert {one.low: one.count for one in found.bins} == expected
    right = sum(row["label"] == row["true_label"] for row in rows)
    assert sum(one.count * one.accuracy for one in found.bins) == pytest.approx(right)


def answers_of(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    count = len(columns["label"])
    whole = {"id": list(range(count)), "split": ["test"] * count, "smoothed": [False] * count, **columns}
    pq.write_table(pa.table(whole), folder / "predictions.parquet", **options)
    return folder / "predictions.parquet"


def test_questions_of_a_multi_label_task_are_counted_among_known_answers(tmp_path: Path) -> None:
    truth = [[1, 0], [1, None], [0, 1], [None, None]]
    answer = [[1, 1], [0, 1], [1, 1], [1, 1]]
    likely = [[0.5, 0.5]] * 4
    path = answers_of(tmp_path, {"label": answer, "true_label": truth, "probability": likely}, row_group_size=2)
    found = read_answers(path, ["red", "round"])
    assert found is not None
    assert (found.confusion, found.labeled) == (None, 3)
    red, round_ = found.classes
    assert (red.precision, red.recall, red.support, red.answered) == (0.5, 0.5, 2, 2)
    assert (round_.precision, round_.recall, round_.support) == (0.5, 1.0, 1)
    assert round_.f1 == pytest.approx(2 / 3)


def test_without_labels_there_is_nothing_and_without_names_classes_are_as_found(tmp_path: Path) -> None:
    columns = {"label": [3, 1], "true_label": pa.array([None, None], pa.int64()), "probability": [0.5, 0.6]}
    assert read_answers(answers_of(tmp_path, columns), []) is None
    found = read_answers(answers_of(tmp_path, {**columns, "true_label": [1, 3]}), [])
    assert found is not None
    assert [one.name for one in found.classes] == ["1", "3"]


def test_a_class_that_the_graph_does_not_have_is_refused(tmp_path: Path) -> None:
    path = answers_of(tmp_path, {"label": ["a"], "true_label": ["b"], "probability": [0.5]})
    with pytest.raises(CheckpointError, match="class 'b' that its graph does not have"):
        read_answers(path, ["a"])


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more", b"PAR1" * 100])
def test_what_is_no_parquet_file_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "predictions.parquet").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_answers(tmp_path / "predictions.parquet", [])
