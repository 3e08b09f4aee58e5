"""Tables that are wrong in one way each, and what is said of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

COUNT = 12
TIMES = pd.Timestamp("2020-01-01") + pd.to_timedelta(range(COUNT), "D")
Change = Callable[[pd.DataFrame], pd.DataFrame]
NODES = pd.DataFrame(
    {
        "id": [f"n{number}" for number in range(COUNT)],
        "age": np.arange(COUNT) ** 2 / 4,
        "city": ["Rome", "Oslo", "Lima"] * (COUNT // 3),
        "label": ["yes", "no"] * (COUNT // 2),
    }
)
EDGES = pd.DataFrame({"source": ["n0", "n1", "n2"], "target": ["n1", "n2", "n3"]})


def with_cell(column: str, value: Any, row: int = 7) -> Change:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        changed = table.astype({column: object}) if isinstance(value, str) else table.copy()
        changed.loc[row, column] = value
        return changed

    return change


def write(table: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path, index=False)


ONE_FILE: dict[str, tuple[str, Change, tuple[str, ...], str]] = {
    "an id twice": (".parquet", with_cell("id", "n3"), (), "1 node ids occur more than once, the first is n3"),
    "an id that is missing": (".parquet", with_cell("id", None), (), "1 nodes have no 'id'"),
    "ids that are fractions": (".parquet", lambda t: t.assign(id=t.age), (), "must be integers or text, got double"),
    "ids that are times": (".parquet", lambda t: t.assign(id=TIMES), (), "must be integers or text, got timestamp"),
    "all labels missing": (".parquet", lambda t: t.assign(label=None), (), "all labels are missing in column 'label'"),
    "all labels missing in a csv": (".csv", lambda t: t.assign(label=None), (), "all labels are missing"),
    "a label that is a fraction": (".parquet", lambda t: t.assign(label=t.age), (), "labels must be integers, got"),
    "a word among numeric labels": (".csv", with_cell("label", "x"), (), "column 'label' is 'x', and most of"),
    "a label below -1": (".parquet", lambda t: t.assign(label=-2), (), "12 labels are outside -1"),
    "answers that are not 0 and 1": (".parquet", lambda t: t.assign(label=[[0, 2]] * COUNT), (), "outside -1"),
    "an unknown split": (".parquet", lambda t: t.assign(split="dev"), (), "split 'dev' is unknown"),
    "two splits a node": (".parquet", lambda t: t.assign(train_mask=True, val_mask=True), (), "are in another too"),
    "a mask of words": (".parquet", lambda t: t.assign(train_mask="x"), (), "mask 'train_mask' must be true or false"),
    "an infinite number": (".parquet", with_cell("age", np.inf), (), "row 8, column 'age' is inf"),
    "a number too large": (".csv", with_cell("age", 1e39), (), r"row 8, column 'age' is 1e\+39"),
    "mixed types in one column": (".csv", with_cell("age", "seven"), (), "row 8, column 'age' is 'seven'"),
    "numbers as text but for one": (
        ".parquet",
        lambda t: with_cell("age", "seven")(t).astype({"age": str}),
        (),
        "row 8, column 'age' is 'seven', and most of the column are numbers",
    ),
    "no features": (".parquet", lambda t: t[["id", "label"]], (), "has no features"),
    "times alone": (".parquet", lambda t: t[["id", "label"]].assign(at=TIMES), (), "'at' left out: timestamp"),
    "lists of several lengths": (
        ".parquet",
        lambda t: t.assign(features=[[1.0] * (1 + row % 2) for row in range(COUNT)]),
        (),
        "6 lists are ragged, the first in row 2 with 2 values instead of 1",
    ),
    "a gap in a list": (".parquet", lambda t: t.assign(features=[[1.0, None]] * COUNT), (), "entry 2 is missing"),
    "lists of words": (".parquet", lambda t: t.assign(age=[["a"]] * COUNT, city=None), (), "has no features"),
    "lists of nothing": (".parquet", lambda t: t.assign(features=[[]] * COUNT), (), "has no features|are empty"),
    "no nodes": (".parquet", lambda t: t[:0], (), "has no nodes"),
    "a column that is not there": (".parquet", lambda t: t, ("--column", "agee=number"), "did you mean 'age'"),
    "a use that there is not": (".parquet", lambda t: t, ("--column", "age=numbers"), "must be used as one of number"),
    "words as a number": (
        ".parquet",
        lambda t: t,
        ("--column", "city=number"),
        "column 'city' is 'Rome', no number",
    ),
    "numbers as text": (".parquet", lambda t: t, ("--column", "age=text"), "cannot be used as a text, it holds double"),
    "a number as a list": (".parquet", lambda t: t, ("--column", "age=list"), "cannot be used as a list"),
    "times as categories": (
        ".parquet",
        lambda t: t.assign(at=TIMES),
        ("--column", "at=category"),
        "column 'at' cannot be used as a category, it holds timestamp",
    ),
    "a use for the label": (".parquet", lambda t: t, ("--column", "label=ignore"), "column 'label' is no feature"),
    "a gap and rows that shall sum to 1": (
        ".parquet",
        with_cell("age", np.nan),
        ("--normalize-features", "row"),
        "column 'age' has 1 gaps, and rows with gaps have no sum",
    ),
    "a gap and nearest neighbors": (
        ".parquet",
        with_cell("age", np.nan),
        ("--knn", "2"),
        "column 'age' has 1 gaps, and distances to gaps are unknown",
    ),
    "a name for every node as a feature": (
        ".parquet",
        lambda t: t.assign(name=[f"x{row}" for row in range(COUNT)]),
        ("--feature-columns", "name", "--split", "random:1/0/0"),
        "column 'name' was chosen as a feature and has 12 different words in 12 training nodes",
    ),
}

WRONG_EDGES: list[tuple[str, Change, str]] = [
    (".parquet", with_cell("target", "n99", 1), "1 ends of edges name no node, the first is 'n99'"),
    (".parquet", with_cell("source", None, 1), "edges.parquet: row 2 has no 'source': give"),
    (".csv", with_cell("source", "", 1), "edges.csv: row 2 has no 'source': give"),
    (".parquet", lambda t: t.assign(source=[[1], [2], [3]]), "ends of edges must be integers or text"),
    (".parquet", lambda t: t.rename(columns={"source": "begin"}), "needs columns source and target"),
    (".parquet", lambda t: t.assign(target=[1.5, 2.5, 3.5]), "6 ends of edges|3 ends of edges name no node"),
]
