"""The files of a table, in Parquet or CSV, one or a folder of them: their columns, and where each row came from."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from nfdist.errors import NfdistError, PartitionError
from nfdist.reading import check_distinct, check_expansion, parquet_batches, parquet_types, read_parquet, reading
from nfdist.scratch import Scratch
from nfdist.store import csv_files
from nfdist.store.columns import spelled_integers
from nfdist.store.spooled import spooled

SUFFIXES = (".parquet", ".csv")
_ROWS_AT_ONCE = 1 << 16
_EXPANSION = 4
_MOST_NAMED = 30
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Rows:
    """Some columns of all files of a table, and how many rows each file has; `first` of these come before."""

    table: pa.Table
    counts: tuple[tuple[Path, int], ...]
    first: int = 0

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.table[name]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def name(self) -> str:
        """What messages call the table: its first file."""
        return str(self.counts[0][0])

    def slice(self, start: int, count: int) -> "Rows":
        """Some consecutive rows."""
        return Rows(self.table.slice(start, count), self.counts, self.first + start)

    def place(self, row: int) -> str:
        """The file of a row and its number there, from 1."""
        row += self.first
        for file, count in self.counts:
            if row < count:
                return f"{file}: row {row + 1}"
            row -= count
        raise IndexError(row)

    def check_filled(self, name: str, refusal: type[NfdistError] = PartitionError) -> None:
        """Refuse a column of the ends of edges with a gap."""
        column = self[name]
        if column.null_count:
            row = column.is_null().index(True).as_py()
            raise refusal(f"{self.place(row)} has no {name!r}: give every edge both ends, or leave it out")


@dataclass(frozen=True)
class Table:
    """The files of one table, all with the same columns; some of these may be in the names of `root`'s folders."""

    files: tuple[Path, ...]
    schema: pa.Schema
    root: Path

    @property
    def is_csv(self) -> bool:
        return self.files[0].suffix == ".csv"

    @property
    def in_folders(self) -> frozenset[str]:
        """The columns that are in the names of folders, not in the files."""
        return frozenset(_folder_columns(self.root, self.files[0]))

    def read(
        self,
        names: Sequence[str],
        types: Mapping[str, pa.DataType] | None = None,
        verbatim: Sequence[str] = (),
        scratch: Scratch | None = None,
    ) -> Rows:
        """Some columns of all files; `types` are for CSV, whose values have none of their own.

        There NA, null and the like are missing values, except in `verbatim` columns, where they are words. What has no
        room in the memory of `scratch` passes in batches into a file there.
        """
        if scratch is not None and not scratch.has_room(sum(map(expected_bytes, self.files))):
            return self._read_in_batches(names, types, verbatim, scratch)
        parts = []
        for file in self.files:
            inside = _folder_columns(self.root, file)
            own = [name for name in names if name not in inside]
            with reading(file):
                part = (
                    csv_files.read_columns(file, own, types, verbatim)
                    if self.is_csv
                    else _read_parquet(file, own, verbatim)
                )
                for name in names:
                    if name in inside:
                        part = part.append_column(name, pa.array([inside[name]] * len(part), pa.string()))
                parts.append(part.select(list(names)))
        counts = tuple((file, int(part.num_rows)) for file, part in zip(self.files, parts, strict=True))
        with reading(self.files[0].parent):
            whole = pa.concat_tables(parts, promote_options="permissive")
            for name in self.in_folders.intersection(names):
                numbers = spelled_integers(whole[name])
                if numbers is not None:
                    whole = whole.set_column(whole.schema.get_field_index(name), name, numbers)
            return Rows(whole, counts)

    def _read_in_batches(
        self,
        names: Sequence[str],
        types: Mapping[str, pa.DataType] | None,
        verbatim: Sequence[str],
        scratch: Scratch,
    ) -> Rows:
        """The same rows, mapped from a file; texts are not numbered there."""
        kinds = {file: self.kinds(file, names, types) for file in self.files}
        schema = self.unified(list(kinds.values()))
        counts = dict.fromkeys(self.files, 0)

        def batches() -> Iterator[Any]:
            for file in self.files:
                for part in self.batches(file, kinds[file], verbatim, schema):
                    counts[file] += len(part)
                    yield part

        return Rows(spooled(batches(), schema, scratch), tuple(counts.items()))

    def kinds(self, file: Path, names: Sequence[str], types: Mapping[str, pa.DataType] | None) -> pa.Schema:
        """What the columns of a file are read as."""
        inside = _folder_columns(self.root, file)
        own = [name for name in names if name not in inside]
        with reading(file):
            found = csv_files.read_types(file, own, types) if self.is_csv else parquet_types(file, own)
        return pa.schema([(name, pa.string() if name in inside else found[name]) for name in names])

    def unified(self, kinds: Sequence[pa.Schema]) -> pa.Schema:
        """What the columns of all files are together."""
        with reading(self.files[0].parent):
            schema = pa.unify_schemas(kinds, promote_options="permissive")
            for name in self.in_folders.intersection(schema.names):
                schema = schema.set(schema.get_field_index(name), pa.field(name, self._kind_in_folders(name)))
        return schema

    def batches(
        self,
        file: Path,
        kinds: pa.Schema,
        verbatim: Sequence[str],
        schema: pa.Schema,
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[Any]:
        """The columns of `kinds` of a file, as those of `schema`; of a Parquet file maybe some of its rows."""
        inside = _folder_columns(self.root, file)
        own = [name for name in kinds.names if name not in inside]
        with reading(file):
            read = (
                csv_files.read_batches(file, own, dict(zip(kinds.names, kinds.types, strict=True)), verbatim)
                if self.is_csv
                else parquet_batches(file, own, _ROWS_AT_ONCE, start, stop)
            )
            for batch in read:
                part = pa.Table.from_batches([batch])
                for name in inside:
                    part = part.append_column(name, pa.array([inside[name]] * len(part), pa.string()))
                yield from part.select(kinds.names).cast(schema).to_batches()

    def _kind_in_folders(self, name: str) -> pa.DataType:
        values = [_folder_columns(self.root, file)[name] for file in self.files]
        return (
            pa.string() if spelled_integers(pa.chunked_array([pa.array(values, pa.string())])) is None else pa.int64()
        )

    def scan_text(self, names: Sequence[str]) -> Iterator[tuple[Path, int, Any]]:
        """Columns of text batch by batch, with their file and the number of their first row there, from 0."""
        for file in self.files:
            row = 0
            with reading(file):
                for batch in csv_files.read_text(file, names) if self.is_csv else _text_of_parquet(file, names):
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
        check_distinct(self.files[0], self.schema.names, names)


def check_column(name: str, column: str, columns: Iterable[str]) -> None:
    """Refuse a column that is not there, naming one that is spelled alike, else those that are."""
    names = list(columns)
    if column not in names:
        nearest = difflib.get_close_matches(column, names, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else told_columns(names)
        raise PartitionError(f"{name} has no column {column!r}: {hint}")


def told_columns(names: Sequence[str], having: str = "it has") -> str:
    """The columns that a table has, for messages."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{having} {', '.join(map(repr, names[:_MOST_NAMED]))}{more}" if names else f"{having} no columns"


def find_table(folder: Path, what: str) -> Path | None:
    """Where a folder has the table of `nodes` or `edges`: a file or a folder of files; Parquet wins over CSV."""
    for path in (*(folder / f"{what}{suffix}" for suffix in SUFFIXES), folder / what):
        if path.exists() and (path.is_file() or _files_in(path)):
            return path
    return None


def open_table(path: Path) -> Table:
    """The table of a file, or of all files in a folder and the folders in it."""
    files = _files_in(path) if path.is_dir() else (path,)
    if not files:
        raise PartitionError(f"{path} has no files named *.parquet or *.csv: add some")
    if files[0].suffix not in SUFFIXES:
        raise PartitionError(f"{path} is no table: name a file that ends in .parquet or .csv, or a folder of them")
    schemas = []
    for file in files:
        with reading(file):
            schema = _read_schema(file)
            schemas.append(schema)
            _check_alike(files[0], schemas[0].names, file, schema.names)
    with reading(path):
        return Table(files, _with_folder_columns(_unified(files, schemas), path, files), path)


def _files_in(folder: Path) -> tuple[Path, ...]:
    """The files of a folder of one kind, Parquet first; writers leave notes such as _SUCCESS beside them."""
    for suffix in SUFFIXES:
        files = sorted(file for file in folder.rglob(f"*{suffix}") if file.is_file())
        kept = [f for f in files if not any(part.startswith(("_", ".")) for part in f.relative_to(folder).parts)]
        if kept:
            return tuple(kept)
    return ()


def _check_alike(first: Path, wanted: Sequence[str], file: Path, names: Sequence[str]) -> None:
    for name in sorted(set(wanted) ^ set(names)):
        having, lacking = (first, file) if name in wanted else (file, first)
        raise PartitionError(f"{lacking} has no column {name!r}, which {having} has: give all files the same columns")


def _unified(files: Sequence[Path], schemas: Sequence[pa.Schema]) -> pa.Schema:
    if files[0].suffix == ".csv" or len(schemas) == 1:  # whose types are only those of its first lines
        return schemas[0]
    check_distinct(files[0], schemas[0].names, schemas[0].names)
    return pa.unify_schemas([one.remove_metadata() for one in schemas], promote_options="permissive")


def _folder_columns(root: Path, file: Path) -> dict[str, str | None]:
    """The columns that folders of Hive's layout name, as in kind=a/part-0.parquet."""
    folders = () if file == root else file.relative_to(root).parts[:-1]
    pairs = (part.split("=", 1) for part in folders if "=" in part)
    return {unquote(name): None if value == _HIVE_NULL else unquote(value) for name, value in pairs}


def expected_bytes(file: Path) -> int:
    """About what a file takes in memory."""
    return _EXPANSION * file.stat().st_size


def _with_folder_columns(schema: pa.Schema, root: Path, files: Sequence[Path]) -> pa.Schema:
    found = [_folder_columns(root, file) for file in files]
    for file, names in zip(files, found, strict=True):
        _check_alike(files[0], list(found[0]), file, list(names))
    for name in found[0]:
        values = pa.chunked_array([pa.array([names[name] for names in found], pa.string())])
        kind = pa.string() if spelled_integers(values) is None else pa.int64()
        if name not in schema.names:  # DuckDB may write the column into the files, too
            schema = schema.append(pa.field(name, kind))
    return schema


def _read_parquet(file: Path, names: Sequence[str], words: Sequence[str]) -> pa.Table:
    there = pyarrow.parquet.read_schema(file).names
    for name in sorted(set(names) - set(there)):
        check_column(str(file), name, there)
    return read_parquet(file, names, words)


def _text_of_parquet(file: Path, names: Sequence[str]) -> Iterator[Any]:
    size = file.stat().st_size
    with pyarrow.parquet.ParquetFile(file, read_dictionary=list(names)) as opened:
        check_expansion(file, 4 * opened.metadata.num_rows, size)
        yield from opened.iter_batches(_ROWS_AT_ONCE, columns=list(names))


def _read_schema(file: Path) -> pa.Schema:
    if file.suffix == ".csv":
        return csv_files.read_schema(file)
    schema = pyarrow.parquet.read_schema(file)
    _ = schema.names  # fails here if they are no text
    return schema
