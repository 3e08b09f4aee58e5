"""Answers beside the truth: confusion, scores of classes, calibration, the surest mistakes; a row group at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nfdist.errors import CheckpointError
from nfdist.reporting.roc import MOST_ROWS, Roc, roc
from nfdist.store.columns import is_list

BINS = 10
SPLITS = ("test", "valid", "train")  # the first with a label is looked at
COLUMNS = ("label", "probability", "split", "true_label", "smoothed")
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class ClassScore:
    """A class, or a question of a multi-label task; fractions are None where nothing was there to divide by."""

    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int
    answered: int


@dataclass(frozen=True)
class Mistake:
    """A node whose answer is wrong, by its place in the file, which is its node id."""

    node_id: int
    original_id: str
    truth: str
    answer: str
    probability: float


@dataclass(frozen=True)
class Bin:
    """Answers whose probability lies in low .. high."""

    low: float
    high: float
    count: int
    probability: float
    accuracy: float


@dataclass(frozen=True)
class AnswerScores:
    """Of the `labeled` nodes of a split: `confusion` [truth, answer], None where a node has many answers."""

    split: str
    num_nodes: int
    labeled: int
    smoothed: bool
    classes: tuple[ClassScore, ...]
    confusion: Counts | None
    bins: tuple[Bin, ...]
    mistakes: tuple[Mistake, ...]
    roc: Roc | None = None  # where there are two classes

    @property
    def accuracy(self) -> float | None:
        if self.confusion is None:
            return None
        return float(np.trace(self.confusion)) / max(int(self.confusion.sum()), 1)

    @property
    def calibration_error(self) -> float:
        """How far probabilities are from the share of right answers, on average over the answers."""
        total = sum(one.count for one in self.bins)
        return sum(one.count * abs(one.probability - one.accuracy) for one in self.bins) / max(total, 1)


def read_answers(path: Path, class_names: Sequence[Any], most_mistakes: int = 8) -> AnswerScores | None:
    """What a predictions.parquet comes to, None where no node has a label; without names, classes are as found."""
    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        names = [str(name) for name in schema.names if name not in COLUMNS]
        if set(COLUMNS) - set(schema.names) or not names:
            raise CheckpointError(f"{path} lacks a column of {', '.join(COLUMNS)}: nfdist evaluate makes it anew")
        split, labeled = _split(file)
        if split is None:
            return None
        if is_list(schema.field("label").type):
            return _of_many(file, split, class_names)
        classes = class_names or _found_names(file)
        found = _of_one(file, split, classes, names[0], most_mistakes)
        return replace(found, roc=_roc(file, split, classes, -(-labeled // MOST_ROWS))) if len(classes) == 2 else found
    except (pa.ArrowException, OSError) as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        raise CheckpointError(f"{path} cannot be read ({reason}): nfdist evaluate makes it anew") from None


def _groups(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """The row groups, each with its first row."""
    start = 0
    for number in range(file.num_row_groups):
        table = file.read_row_group(number, columns=list(columns))
        yield start, table
        start += len(table)


def _split(file: pq.ParquetFile) -> tuple[str | None, int]:
    """The first split with a labeled node, and how many it has."""
    labeled = dict.fromkeys(SPLITS, 0)
    for _, table in _groups(file, ("split", "true_label")):
        known = table.filter(_known(table["true_label"]))["split"]
        for one in pc.value_counts(known).to_pylist():
            if one["values"] in labeled:
                labeled[one["values"]] += one["counts"]
    return next(((split, count) for split, count in labeled.items() if count), (None, 0))


def _known(truth: pa.ChunkedArray) -> Any:
    if not is_list(truth.type):
        return truth.is_valid()
    rows = [any(one is not None for one in row or ()) for row in truth.to_pylist()]
    return pa.chunked_array([pa.array(rows, pa.bool_())])


def _found_names(file: pq.ParquetFile) -> list[Any]:
    found = [
        pc.unique(table[name]) for _, table in _groups(file, ("label", "true_label")) for name in table.column_names
    ]
    return sorted({value for array in found for value in array.to_pylist() if value is not None})


def _of_one(file: pq.ParquetFile, split: str, names: Sequence[Any], id_name: str, most_mistakes: int) -> AnswerScores:
    count = len(names)
    confusion = np.zeros((count, count), np.int64)
    tallies = np.zeros((3, BINS))  # answers, probabilities and right answers of each bin
    surest: list[Mistake] = []
    smoothed = False
    known_names: Any = None
    for start, table in _groups(file, (id_name, *COLUMNS)):
        if known_names is None:
            known_names = pa.array(names, table["label"].type)
        smoothed |= bool(pc.any(table["smoothed"]).as_py())
        rows = np.flatnonzero(
            pc.and_(pc.equal(table["split"], split), table["true_label"].is_valid()).to_numpy(zero_copy_only=False)
        )
        some = table.take(rows)
        truth, answer = (_numbers(some[name], known_names, file) for name in ("true_label", "label"))
        likely = some["probability"].to_numpy().astype(np.float64)
        np.add.at(confusion, (truth, answer), 1)
        bins = np.minimum((likely * BINS).astype(int), BINS - 1)
        for row, weights in enumerate((None, likely, truth == answer)):
            tallies[row] += np.bincount(bins, weights, minlength=BINS)
        wrong = np.flatnonzero(truth != answer)
        for place in wrong[np.argsort(-likely[wrong], kind="stable")[:most_mistakes]].tolist():
            own_id = str(some[id_name][place].as_py())
            named = str(names[truth[place]]), str(names[answer[place]])
            surest.append(Mistake(start + int(rows[place]), own_id, *named, float(likely[place])))
    surest.sort(key=lambda one: -one.probability)
    texts = [str(name) for name in names]
    return AnswerScores(
        split=split,
        num_nodes=file.metadata.num_rows,
        labeled=int(confusion.sum()),
        smoothed=smoothed,
        classes=_class_scores(texts, np.diag(confusion), confusion.sum(1), confusion.sum(0)),
        confusion=confusion,
        bins=_bins(tallies),
        mistakes=tuple(surest[:most_mistakes]),
    )


def _roc(file: pq.ParquetFile, split: str, names: Sequence[Any], every: int) -> Roc | None:
    """The curve for the second of two classes, of `every` so manieth row."""
    truth, likely = [], []
    for _, table in _groups(file, COLUMNS):
        known = table.filter(pc.and_(pc.equal(table["split"], split), table["true_label"].is_valid()))
        some = known.take(np.arange(0, len(known), every))
        values = pa.array(names, table["label"].type)
        told, is_second = (_numbers(some[column], values, file) == 1 for column in ("label", "true_label"))
        probability = some["probability"].to_numpy()
        truth.append(is_second)
        likely.append(np.where(told, probability, 1 - probability))
    return roc(str(names[1]), np.concatenate(truth), np.concatenate(likely), every > 1)


def _numbers(column: pa.ChunkedArray, names: Any, file: pq.ParquetFile) -> Counts:
    """The number of each row's class."""
    found = pc.index_in(column, value_set=names)
    if found.null_count:
        stranger = column.filter(found.is_null())[0].as_py()
        raise CheckpointError(
            f"predictions.parquet has a class {stranger!r:.100} that its graph does not have: evaluate the run anew"
        )
    numbers: Counts = found.to_numpy().astype(np.int64)
    return numbers


def _of_many(file: pq.ParquetFile, split: str, names: Sequence[Any]) -> AnswerScores:
    """Of a multi-label task: every question by itself, among the nodes that have an answer to it."""
    sums: Counts | None = None
    labeled, smoothed = 0, False
    for _, table in _groups(file, COLUMNS):
        smoothed |= bool(pc.any(table["smoothed"]).as_py())
        some = table.filter(pc.equal(table["split"], split))
        if not len(some):
            continue
        truth, answer = (_matrix(some[name]) for name in ("true_label", "label"))
        known = truth >= 0
        yes, answered = truth == 1, (answer == 1) & known
        found = np.stack([(yes & answered).sum(0), yes.sum(0), answered.sum(0)]).astype(np.int64)
        sums = found if sums is None else sums + found
        labeled += int(known.any(1).sum())
    assert sums is not None
    texts = [str(name) for name in names] or [str(number) for number in range(sums.shape[1])]
    return AnswerScores(split, file.metadata.num_rows, labeled, smoothed, _class_scores(texts, *sums), None, (), ())


def _matrix(column: pa.ChunkedArray) -> Counts:
    """A column of lists as rows, -1 for no answer."""
    joined = column.combine_chunks()
    flat = pc.fill_null(joined.flatten(), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    rows: Counts = flat.reshape(len(column), -1)
    return rows


def _class_scores(names: Sequence[str], right: Counts, support: Counts, answered: Counts) -> tuple[ClassScore, ...]:
    rows = zip(names, right.tolist(), support.tolist(), answered.tolist(), strict=True)
    return tuple(
        ClassScore(
            name,
            hits / claimed if claimed else None,
            hits / there if there else None,
            2 * hits / (there + claimed) if there + claimed else None,
            there,
            claimed,
        )
        for name, hits, there, claimed in rows
    )


def _bins(tallies: NDArray[np.float64]) -> tuple[Bin, ...]:
    return tuple(
        Bin(place / BINS, (place + 1) / BINS, int(count), probability / count, right / count)
        for place, (count, probability, right) in enumerate(tallies.T.tolist())
        if count
    )
