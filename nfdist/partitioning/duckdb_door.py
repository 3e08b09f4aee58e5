"""The one place that imports DuckDB: sorts and joins of columns of any length, within a limit of memory.

What comes out of a sort is checked to be in order as it is read: with insertion order not preserved, one of DuckDB's
ways to run a query was seen to give rows out of order.
"""

import errno
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.files import folder_aside
from nfdist.memory import format_bytes

Columns = tuple[NDArray[Any], ...]

ROWS_AT_ONCE = 1 << 20
_LEAST_BYTES = 64 << 20  # with less, DuckDB cannot hold a block of every thread
_COPIES_OF_A_SORT = 4  # of keys that are sorted in memory: as given, joined, and sorted by an order of their own
_FULL = ("no space left", "max_temp_directory_size", "disk quota exceeded")


class Engine:
    """DuckDB within `limit_bytes` of memory; what does not fit is spilled into a folder beside `beside`.

    It is started at its first use: what fits into this memory is sorted without it.
    """

    def __init__(self, limit_bytes: int, threads: int, beside: Path, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self.rows_at_once = rows_at_once
        self._limit_bytes, self._threads, self._beside = max(limit_bytes, _LEAST_BYTES), threads, beside
        self._opened = ExitStack()
        self._connection: Any = None

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back all memory and disk; the next use starts anew."""
        self._connection = None
        self._opened.close()

    def ascending(self, batches: Iterable[Columns], names: Sequence[str], by: int) -> Iterator[Columns]:
        """The rows of columns of numbers in the order of the first `by` columns, in batches; equal rows in any order.

        The sum of all batches may be of any length, a single one must fit into memory.
        """
        held: deque[Columns] = deque()
        batches, size = iter(batches), 0
        for columns in batches:
            held.append(columns)
            size += sum(column.nbytes for column in columns)
            if size > self._limit_bytes // _COPIES_OF_A_SORT:
                break
        else:
            yield from self._sorted_here(held, by)
            return
        given = _stream(itertools.chain(_emptied(held), batches), names)
        query = f"SELECT {', '.join(names)} FROM given ORDER BY {', '.join(names[:by])}"
        last: Columns | None = None
        for batch in self._rows(query, {"given": given}):
            columns = tuple(column.to_numpy() for column in batch.columns)
            if len(columns[0]):
                assert _is_ascending(columns[:by], last), "DuckDB gave rows out of order"
                last = tuple(column[-1:] for column in columns[:by])
                yield columns

    def _sorted_here(self, held: deque[Columns], by: int) -> Iterator[Columns]:
        """The same for what fits into memory."""
        if not held:
            return
        columns = tuple(map(np.concatenate, zip(*_emptied(held), strict=True)))
        if len(columns) == 1:
            columns[0].sort()
        else:
            order = np.lexsort(columns[by - 1 :: -1])
            columns = tuple(column[order] for column in columns)
        for start in range(0, len(columns[0]), self.rows_at_once):
            yield tuple(column[start : start + self.rows_at_once] for column in columns)

    def query(self, text: str, **tables: Any) -> Iterator[Any]:
        """The record batches of a query of Arrow tables or readers, which the query calls by these names."""
        yield from self._rows(text, tables)

    def _rows(self, query: str, tables: dict[str, Any]) -> Iterator[Any]:
        connection = self._connect()
        failures: list[BaseException] = []
        with self._explained(failures):
            for name, table in tables.items():
                guarded = _guarded(table, failures) if isinstance(table, pa.RecordBatchReader) else table
                connection.register(name, guarded)
            try:
                yield from connection.sql(query).to_arrow_reader(self.rows_at_once)
            finally:
                for name in tables:
                    connection.unregister(name)

    def _connect(self) -> Any:
        if self._connection is None:
            try:
                import duckdb
            except ImportError as error:
                text = f"a graph of this size needs DuckDB to be ordered ({error}): pip install duckdb"
                raise PartitionError(text) from error
            folder = self._opened.enter_context(folder_aside(self._beside))
            settings: dict[str, Any] = {
                "memory_limit": f"{self._limit_bytes >> 10}KiB",
                "threads": self._threads,
                "temp_directory": str(folder),
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
            self._connection = duckdb.connect(config=settings)
            self._connection.execute("SET enable_progress_bar = false")  # on stdout, which belongs to results
            self._opened.callback(self._connection.close)
        return self._connection

    @contextmanager
    def _explained(self, failures: list[BaseException]) -> Iterator[None]:
        """What went wrong in words of ours; an error of what is read is raised as it was."""
        import duckdb

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for failure in failures:
                raise failure from None
            told = str(error).lower()
            if any(words in told for words in _FULL):
                raise OSError(errno.ENOSPC, "No space left on device") from error
            if isinstance(error, duckdb.OutOfMemoryException) or "out of memory" in told:
                limit = format_bytes(self._limit_bytes)
                text = f"{limit} are too little to sort what there is: give a larger --memory"
                raise PartitionError(text) from error
            raise


def _stream(batches: Iterable[Columns], names: Sequence[str]) -> Any:
    """Columns as Arrow reads them, batch by batch; there must be at least one."""
    batches = iter(batches)
    first = next(batches)
    schema = pa.schema([(name, pa.from_numpy_dtype(column.dtype)) for name, column in zip(names, first, strict=True)])
    rows = (pa.record_batch(list(map(pa.array, one)), schema=schema) for one in itertools.chain([first], batches))
    return pa.RecordBatchReader.from_batches(schema, rows)


def _guarded(reader: Any, failures: list[BaseException]) -> Any:
    """The same batches; an error on the way is kept, since DuckDB would only tell its text."""

    def batches() -> Iterator[Any]:
        try:
            yield from reader
        except BaseException as error:
            failures.append(error)
            raise

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _emptied(held: deque[Columns]) -> Iterator[Columns]:
    """What is held, which is let go one by one."""
    while held:
        yield held.popleft()


def _is_ascending(columns: Columns, last: Columns | None) -> bool:
    """Whether rows are in the order of all columns, the first one not before `last`."""
    if last is not None:
        columns = tuple(np.concatenate(pair) for pair in zip(last, columns, strict=True))
    before: Any = False
    same: Any = True
    for column in columns:
        before = before | (same & (column[:-1] < column[1:]))
        same = same & (column[:-1] == column[1:])
    return bool(np.all(before | same))
