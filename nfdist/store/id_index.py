"""IdIndex: from what the user calls a node to its node id, by binary search on a mapped file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import PartitionError, UnknownNodeError
from nfdist.store.arrow_files import checked_column, map_columns
from nfdist.store.gate import CURE, Column, Gate
from nfdist.store.ids import IdColumn
from nfdist.store.manifest import IDS_FILE, Manifest


@dataclass(frozen=True)
class IdIndex:
    """Original ids ascending (strings by their bytes), and the node id of each."""

    ascending: IdColumn
    node_ids: Column
    directory: Path

    @staticmethod
    def open(directory: Path, manifest: Manifest) -> "IdIndex":
        gate = Gate(directory / IDS_FILE, manifest.files[IDS_FILE])
        columns, size = map_columns(gate), manifest.num_nodes
        if {"original_id", "node_id"} - set(columns) or any(len(column) != size for column in columns.values()):
            raise PartitionError(f"{gate.path} does not hold original_id and node_id of {size} nodes: {CURE}")
        ascending = IdColumn(columns["original_id"], gate)
        return IdIndex(ascending, checked_column(columns["node_id"], gate), directory)

    def find(self, original_ids: Any) -> Tensor:
        """The node id of each, int64 [k]; the first unknown one is named."""
        wanted = self._converted(original_ids)
        node_ids = self.known(wanted)
        for unknown in np.flatnonzero(node_ids < 0)[:1].tolist():
            raise UnknownNodeError(f"no node is called {wanted[unknown].as_py()!r} in {self.directory}")
        return torch.from_numpy(node_ids)

    def known(self, wanted: Any) -> NDArray[np.int64]:
        """The node id of each, given as an Arrow array of integers or strings as they are here; -1 for no node."""
        import pyarrow.compute as pc  # here and below, since it takes a tenth of a second

        wanted = wanted.cast(self.ascending.type)
        places = np.minimum(self._search(wanted), len(self.ascending) - 1)
        same = pc.equal(self.ascending.take(places), wanted).to_numpy(zero_copy_only=False)
        return np.where(same, self.node_ids.at(places).numpy()[places], -1).astype(np.int64)

    def _search(self, wanted: Any) -> NDArray[np.int64]:
        """How many stored ids are less than each wanted one: all binary searches take each step together."""
        import pyarrow.compute as pc

        low: NDArray[np.int64] = np.zeros(len(wanted), dtype=np.int64)
        high: NDArray[np.int64] = np.full(len(wanted), len(self.ascending), dtype=np.int64)
        for _ in range(len(self.ascending).bit_length()):
            middle = (low + high) // 2
            probe = self.ascending.take(np.minimum(middle, len(self.ascending) - 1))
            less = pc.less(probe, wanted).to_numpy(zero_copy_only=False) & (low < high)
            low = np.where(less, middle + 1, low)
            high = np.where(less, high, middle)
        return low

    def _converted(self, original_ids: Any) -> Any:
        """The request in the type of the stored ids, never by guessing: 7 is not "7"."""
        values = np.asarray(original_ids)
        text = not pa.types.is_integer(self.ascending.type)
        if len(values) == 0:
            return pa.array([], type=self.ascending.type)
        if values.dtype.kind not in ("UOT" if text else "iu"):
            kind = "strings" if text else "integers"
            raise UnknownNodeError(f"the original ids of {self.directory} are {kind}, got {values.dtype}")
        try:
            converted = pa.array(values.astype(object) if text else values)
            return converted.cast(self.ascending.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError) as error:
            raise UnknownNodeError(f"original ids cannot be looked up in {self.directory}: {error}") from None
