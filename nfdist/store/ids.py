"""IdColumn: what the user calls nodes, mapped from disk."""

from typing import Any

import numpy as np
import pyarrow as pa

from nfdist.errors import PartitionError
from nfdist.store.arrow_files import checked_buffer, checked_column, read_only
from nfdist.store.gate import CURE, Gate
from nfdist.store.ranges import Integers


class IdColumn:
    """An Arrow column of int64 or large strings, behind the gate of its file."""

    def __init__(self, values: Any, gate: Gate) -> None:
        self._values = values
        self.type = values.type
        if self.type == pa.int64():
            self._numbers, self._text = checked_column(values, gate), None
        elif self.type == pa.large_string():
            _, offsets, text = values.buffers()
            count = len(values) + 1 if offsets is not None and offsets.size else 0
            self._numbers = checked_buffer(read_only(np.frombuffer(offsets or b"", np.int64, count)), gate)
            self._text = checked_buffer(read_only(np.frombuffer(text or b"", np.uint8)), gate)
        else:
            raise PartitionError(f"{gate.path} has original ids of type {self.type}: {CURE}")

    def __len__(self) -> int:
        return len(self._values)

    def take(self, rows: Integers) -> Any:
        """The ids of some rows, as an Arrow array."""
        if self._text is None:
            self._numbers.at(rows)
        elif len(rows):
            offsets = self._numbers.at(rows, 2).numpy()
            self._text.at(offsets[rows], offsets[rows + 1] - offsets[rows])
        return self._values.take(pa.array(rows))
