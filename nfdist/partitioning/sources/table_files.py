"""The files of a table, in Parquet or CSV: their columns, and where each row came from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from nfdist.errors import PartitionError
from nfdist.partitioning.sources.validation import check_column
from nfdist.reading import check_expansion, read_parquet, reading

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Rows:
    """Some columns of all files of a table, and how many rows each file has."""

    table: pa.Table
    counts: tuple[tuple[Path, int], ...]

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.table[name]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def place(self, row: int) -> str:
        """The file of a row and its number there, from 1."""
        for file, count in self.counts:
            if row < count:
                return f"{file}: row {row + 1}"
            row -= count
        raise IndexError(row)


@dataclass(frozen=True)
class Table:
    """The files of one table, all with the same columns."""

    files: tuple[Path, ...]
    schema: pa.Schema

    @property
    def is_csv(self) -> bool:
        return self.files[0].suffix == ".csv"

    def read(self, names: Sequence[str], types: dict[str, pa.DataType] | None = None) -> Rows:
        """Some columns of all files; `types` are for CSV, whose values have none of their own."""
        parts = []
        for file in self.files:
            with reading(file):
                parts.append(_read_csv(file, names, types) if self.is_csv else _read_parquet(file, names))
        counts = tuple((file, int(part.num_rows)) for file, part in zip(self.files, parts, strict=True))
        with reading(self.files[0].parent):
            return Rows(pa.concat_tables(parts, promote_options="permissive"), counts)

    def scan_text(self, names: Sequence[str]) -> Iterator[tuple[Path, int, Any]]:
        """Columns of text batch by batch, with their file and the number of their first row there, from 0."""
        for file in self.files:
            row = 0
            with reading(file):
                for batch in _text_of_csv(file, names) if self.is_csv else _text_of_parquet(file, names):
                    yield file, row, batch
                    row += batch.num_rows

    def pick(self, wanted: str, usual: Sequence[str]) -> str:
        """The column the user named, else the first of the usual names that is there, else nothing."""
        if wanted:
            check_column(str(self.files[0]), wanted, self.schema.names)
        name = wanted or next((name for name in usual if name in self.schema.names), "")
        self.check_once([name])
        return name

    def check_once(self, names: Sequence[str]) -> None:
        """Refuse columns that share their name with another."""
        wanted = set(names)
        seen = set()
        for name in self.schema.names:
            if name in wanted and name in seen:
                raise PartitionError(f"{self.files[0]} has two columns called {name!r}: rename one of them")
            seen.add(name)


def open_table(folder: Path, what: str) -> Table:
    """The table of `nodes` or `edges` of a folder; Parquet wins over CSV."""
    for path in (folder / f"{what}.parquet", folder / f"{what}.csv"):
        if path.is_dir():
            # Writers of folders leave notes such as _SUCCESS beside their files.
            files = tuple(sorted(f for f in path.rglob(f"*{path.suffix}") if not f.name.startswith(("_", "."))))
        else:
            files = (path,) if path.exists() else ()
        if files:
            with reading(files[0]):
                schema = _read_schema(files[0])
                _ = schema.names  # fails here if they are no text
                return Table(files, schema)
    raise PartitionError(f"{folder} has no {what}.parquet or {what}.csv: a graph needs nodes and edges")


def _read_parquet(file: Path, names: Sequence[str]) -> pa.Table:
    there = pyarrow.parquet.read_schema(file).names
    for name in sorted(set(names) - set(there)):
        check_column(str(file), name, there)
    return read_parquet(file, names)


def _read_csv(file: Path, names: Sequence[str], types: dict[str, pa.DataType] | None) -> pa.Table:
    return pyarrow.csv.read_csv(file, convert_options=_csv_options(names, types))


def _csv_options(names: Sequence[str], types: dict[str, pa.DataType] | None) -> Any:
    return pyarrow.csv.ConvertOptions(include_columns=list(names), column_types=types, strings_can_be_null=True)


def _text_of_csv(file: Path, names: Sequence[str]) -> Iterator[Any]:
    options = _csv_options(names, dict.fromkeys(names, pa.string()))
    with pyarrow.csv.open_csv(file, convert_options=options) as stream:
        yield from stream


def _text_of_parquet(file: Path, names: Sequence[str]) -> Iterator[Any]:
    size = file.stat().st_size
    with pyarrow.parquet.ParquetFile(file, read_dictionary=list(names)) as opened:
        check_expansion(file, 4 * opened.metadata.num_rows, size)
        yield from opened.iter_batches(_ROWS_AT_ONCE, columns=list(names))


def _read_schema(file: Path) -> pa.Schema:
    if file.suffix == ".csv":
        with pyarrow.csv.open_csv(file) as stream:
            return stream.schema
    return pyarrow.parquet.read_schema(file)
