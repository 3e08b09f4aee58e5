"""Reading what a user hands in: whatever a library raises becomes one line, and no file takes memory without end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from nfdist.errors import NfdistError, PartitionError

_LARGE_BYTES, _LARGEST_EXPANSION = 1 << 30, 500
_ROWS_TRIED = 16
_PAGES_BYTES = 1 << 20
_SMALL_BYTES = 1 << 26  # files below are small enough to hide a text that is repeated without end


@contextmanager
def reading(path: Path | str, refusal: type[NfdistError] = PartitionError) -> Iterator[None]:
    """Refuse a file that cannot be read, whatever its library raises: the block should call little else."""
    try:
        yield
    except NfdistError:
        raise
    except FileNotFoundError as error:
        raise refusal(f"{error.filename or path} does not exist: check the path, or make the file") from error
    except MemoryError as error:
        raise refusal(f"{path} does not fit the memory of this machine: give less at once") from error
    except Exception as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:300] or type(error).__name__
        raise refusal(f"{path} cannot be read ({reason}): it is damaged or not what its name says") from error


def check_expansion(path: Path | str, num_bytes: int, stored_bytes: int) -> None:
    """Refuse what takes far more memory than it takes on disk, as a few megabytes of made zeros can."""
    if num_bytes > max(_LARGE_BYTES, _LARGEST_EXPANSION * stored_bytes):
        raise PartitionError(
            f"{path} would take {num_bytes / 2**30:,.1f} GiB of memory, {num_bytes // max(stored_bytes, 1):,} times "
            "what it takes on disk: it is damaged, or it repeats a few values, which sparse features would not"
        )


def read_parquet(file: Path, names: Sequence[str] | None = None, words: Sequence[str] = ()) -> Any:
    """Some or all columns of a Parquet file, none of them of the same name; texts of `words` are kept once each."""
    size = file.stat().st_size
    with pyarrow.parquet.ParquetFile(file) as opened:
        schema, metadata = opened.schema_arrow, opened.metadata
        columns = list(schema.names if names is None else names)
        check_distinct(file, schema.names, columns)
        kinds = {name: schema.field(name).type for name in columns}
        check_expansion(file, metadata.num_rows * sum(map(_width, kinds.values())), size)
        if size < _SMALL_BYTES:
            check_expansion(file, _list_bytes(opened, [name for name, kind in kinds.items() if kind.num_fields]), size)
    texts = [name for name, kind in kinds.items() if _is_text(kind) and (size < _SMALL_BYTES or name in words)]
    with pyarrow.parquet.ParquetFile(file, read_dictionary=texts) as opened:
        table = opened.read(columns=columns)
    for place, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
            check_expansion(file, sum(map(_decoded_bytes, column.chunks)), size)
            if table.field(place).name in words:
                continue
            table = table.set_column(place, table.field(place).name, column.cast(column.type.value_type))
    return table


def parquet_types(file: Path, names: Sequence[str]) -> dict[str, Any]:
    """What `parquet_batches` gives: the types of columns, of plain values where the file numbers them."""
    with pyarrow.parquet.ParquetFile(file) as opened:
        schema = opened.schema_arrow
        check_distinct(file, schema.names, names)
        kinds = {name: schema.field(name).type for name in names}
        check_expansion(file, opened.metadata.num_rows * sum(map(_width, kinds.values())), file.stat().st_size)
    plain = {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in kinds.items()}
    # As `read_parquet` gives them: texts that are numbered in between are no large ones after that.
    texts = {"string_view": pa.large_string(), "large_string": pa.string()}
    return {name: texts.get(str(kind), kind) for name, kind in plain.items()}


def parquet_batches(
    file: Path, names: Sequence[str], rows_at_once: int, start: int = 0, stop: int | None = None
) -> Iterator[Any]:
    """Some columns of a Parquet file in batches; of its groups of rows, which may be large, no more than pages.

    Of the rows start .. stop - 1 only; groups without any of them are not read.
    """
    with pyarrow.parquet.ParquetFile(file, buffer_size=_PAGES_BYTES, pre_buffer=False) as opened:
        ends = list(accumulate(opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups)))
        stop = opened.metadata.num_rows if stop is None else stop
        groups = [
            i for i, (first, end) in enumerate(zip([0, *ends], ends, strict=False)) if first < stop and start < end
        ]
        row = ends[groups[0]] - opened.metadata.row_group(groups[0]).num_rows if groups else stop
        for batch in opened.iter_batches(rows_at_once, row_groups=groups, columns=list(names), use_threads=False):
            some = batch.slice(max(start - row, 0), max(0, min(stop, row + len(batch)) - max(start, row)))
            row += len(batch)
            if len(some):
                yield some


def check_distinct(file: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse columns that are wanted and share their name with another."""
    seen, used = set(), set(wanted)
    for name in names:
        if name in used and name in seen:
            raise PartitionError(f"{file} has two columns called {name!r}: rename one of them")
        seen.add(name)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _width(kind: Any) -> int:
    """Bytes of a row of such a type, at least."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # as texts and lists, which are of any length
        return 4


def _list_bytes(opened: Any, names: Sequence[str]) -> int:
    """About the bytes of lists, by their first rows: of a damaged footer, Arrow's counts end the process."""
    first = next(opened.iter_batches(_ROWS_TRIED, columns=list(names)), None) if names else None
    return 0 if first is None else first.nbytes * opened.metadata.num_rows // max(first.num_rows, 1)


def _decoded_bytes(chunk: Any) -> int:
    """The bytes of the texts of a chunk that is stored as numbers of distinct ones."""
    import pyarrow.compute as pc  # here, since it takes a tenth of a second

    lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
    return int(pc.sum(lengths.take(chunk.indices)).as_py() or 0)
