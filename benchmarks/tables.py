"""What columns cost on their way to features: gaps and categories beside reading the file, text beside its hashing.

    python benchmarks/tables.py [--rows 2000000] [--text-rows 200000] [--rounds 5]

gaps and categories   four columns of numbers with gaps and three of words, of 8, 50 and 500 values, in a Parquet file:
                      inferred and encoded, as `nfdist partition` does it, beside reading the file with pyarrow
text                  a column of sentences, inferred and encoded, beside scikit-learn's HashingVectorizer alone

Rounds take turns; shown are medians of core seconds, of all threads together, and the ratio that is wanted at most.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import HashingVectorizer

from nfdist.partitioning.sources.inference import TEXT_WIDTH, TableFeatures
from nfdist.store.table_files import open_table

MOST = {"gaps and categories": 2.0, "text": 1.2}
WORDS = 5000


def write_columns(path: Path, rows: int) -> None:
    stream = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for number in range(4):
        columns[f"number{number}"] = pa.array(stream.normal(size=rows), mask=stream.random(rows) < 0.1)
    for count in (8, 50, 500):
        words = pa.array([f"value-{number}" for number in range(count)])
        columns[f"words{count}"] = words.take(pa.array(stream.integers(count, size=rows)))
    pq.write_table(pa.table(columns), path)


def write_texts(path: Path, rows: int) -> None:
    stream = np.random.default_rng(1)
    words = np.array([f"word{number}" for number in range(WORDS)])
    picked = words[np.minimum(stream.zipf(1.3, size=(rows, 15)) - 1, WORDS - 1)]
    pq.write_table(pa.table({"text": [" ".join(row) for row in picked]}), path)


def encoded(path: Path) -> Callable[[], Any]:
    """Infers and encodes columns that are in memory."""
    table = open_table(path)
    rows = table.read(table.schema.names, verbatim=table.schema.names)
    found = TableFeatures(rows, tuple(table.schema.names), np.empty(0), {}, (), {})
    training = np.random.default_rng(2).random(len(rows)) < 0.5
    return lambda: found.encoded(training)


def hashed(path: Path) -> Callable[[], Any]:
    texts = pq.read_table(path)["text"].to_pylist()
    hashing = HashingVectorizer(n_features=TEXT_WIDTH, alternate_sign=False, norm=None, dtype=np.float32)
    return lambda: hashing.transform(texts)


def seconds_of(works: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The median core seconds of each, one after another in every round, after one that does not count."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):
        for place, work in enumerate(works):
            started = time.process_time()
            work()
            taken[place].append(time.process_time() - started)
    return [statistics.median(each[1:]) for each in taken]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--text-rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        columns, texts = Path(folder) / "columns.parquet", Path(folder) / "texts.parquet"
        write_columns(columns, options.rows)
        write_texts(texts, options.text_rows)
        pairs = {
            "gaps and categories": (options.rows, [lambda: pq.read_table(columns), encoded(columns)]),
            "text": (options.text_rows, [hashed(texts), encoded(texts)]),
        }
        print(f"{'':22}{'rows':>12}{'beside':>12}{'nfdist':>12}{'ratio':>8}{'wanted':>8}")
        for name, (rows, works) in pairs.items():
            beside, own = seconds_of(works, options.rounds)
            print(f"{name:22}{rows:>12,}{beside:>10.3f} s{own:>10.3f} s{own / beside:>8.2f}{MOST[name]:>8.2f}")


if __name__ == "__main__":
    main()
