"""Cells that are no numbers in columns that should hold nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nfdist.errors import PartitionError
from nfdist.store.table_files import Table

_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_CELLS_ENOUGH = 10_000  # to tell whether a column is text
_SHOWN_CHARACTERS = 60


@dataclass
class _Column:
    """What was seen of a column of text: its cells, how many are numbers, and the first that is none."""

    seen: int = 0
    numbers: int = 0
    wrong: tuple[Path, int, Any] | None = None
    empty: tuple[Path, int, Any] | None = None

    def add(self, file: Path, row: int, cells: Any) -> None:
        numbers = _are_numbers(cells)
        self.seen += len(cells) - cells.null_count
        self.numbers += pc.sum(numbers).as_py() or 0
        place = pc.fill_null(numbers, True).index(False).as_py()
        if place >= 0 and self.wrong is None:
            self.wrong = file, row + place, cells[place].as_py()
        place = numbers.is_null().index(True).as_py() if numbers.null_count else -1
        if place >= 0 and self.empty is None:
            self.empty = file, row + place, None

    @property
    def is_text(self) -> bool:
        """Whether no more than half of its cells are numbers."""
        return 2 * self.numbers <= self.seen

    @property
    def is_clear(self) -> bool:
        """Whether more cells would change nothing: it is text, or numbers with one that is none."""
        return self.seen >= _CELLS_ENOUGH and (self.is_text or self.wrong is not None)


LEAVE_OUT = "say how to use the column (--column NAME=category, or NAME=ignore to leave it out)"


def refuse_spoiled(nodes: Table, names: Sequence[str], cure: str = LEAVE_OUT) -> None:
    """Refuse columns of text that are numbers but for some cells: left out, they would be missed by nobody."""
    for name, column in _scan(nodes, names).items():
        wrong = column.wrong or (column.empty if pa.types.is_null(nodes.schema.field(name).type) else None)
        if wrong and not column.is_text:
            raise PartitionError(f"{_show(name, wrong)}, and most of the column are numbers: repair it, or {cure}")


def refuse_words(nodes: Table, names: Sequence[str]) -> None:
    """Refuse the first cell that is no number in columns that were chosen as features."""
    for name, column in _scan(nodes, names).items():
        if column.wrong:
            raise PartitionError(f"{_show(name, column.wrong)}, no number: features must be numbers, so repair it")


def _scan(nodes: Table, names: Sequence[str]) -> dict[str, _Column]:
    found = {name: _Column() for name in names}
    open_names = list(names)
    for file, row, batch in nodes.scan_text(names) if names else ():
        for name in open_names:
            found[name].add(file, row, batch.column(batch.schema.get_field_index(name)))
        open_names = [name for name in open_names if not found[name].is_clear]
        if not open_names:
            break
    return found


def _show(name: str, wrong: tuple[Path, int, Any]) -> str:
    file, row, value = wrong
    shown = "empty" if value is None else f"{value[:_SHOWN_CHARACTERS]!r}"
    return f"{file}: row {row + 1}, column {name!r} is {shown}"


def _are_numbers(cells: Any) -> Any:
    """Which cells are, null for empty ones; of texts that are stored once, each is compared once."""
    if pa.types.is_dictionary(cells.type):
        return pc.match_substring_regex(cells.dictionary, _NUMBER).take(cells.indices)
    return pc.match_substring_regex(cells, _NUMBER)
