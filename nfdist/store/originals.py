"""OriginalIds: from what the user calls a node to its node id, by binary search on a mapped file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import PartitionError
from nfdist.store.arrow_files import as_array, map_columns
from nfdist.store.manifest import IDS_FILE


@dataclass(frozen=True)
class OriginalIds:
    """Original ids ascending (strings by their bytes), and the node id of each."""

    ascending: Any
    node_ids: NDArray[Any]
    path: Path

    @staticmethod
    def open(directory: Path, num_nodes: int) -> "OriginalIds":
        path = directory / IDS_FILE
        columns = map_columns(path)
        if {"original_id", "node_id"} - set(columns) or len(columns["node_id"]) != num_nodes:
            raise PartitionError(f"{path} does not hold original_id and node_id of {num_nodes} nodes: partition again")
        return OriginalIds(columns["original_id"], as_array(columns["node_id"]), path)

    def find(self, original_ids: Any) -> Tensor:
        """The node id of each, int64 [k]; the first unknown one is named."""
        wanted = self._converted(original_ids)
        if pa.types.is_integer(self.ascending.type):
            values = as_array(wanted)
            order = np.argsort(values)  # neighbors in the request then share most of their way through the file
            places = np.empty(len(values), dtype=np.int64)
            places[order] = np.searchsorted(as_array(self.ascending), values[order])
        else:
            places = _search(self.ascending, wanted)
        last = len(self.ascending) - 1
        equal = pc.equal(self.ascending.take(pa.array(np.minimum(places, last))), wanted)
        unknown = equal.index(False).as_py()
        if unknown >= 0:
            raise PartitionError(f"no node is called {wanted[unknown].as_py()!r} in {self.path.parent}")
        return torch.from_numpy(self.node_ids[places].astype(np.int64))

    def _converted(self, original_ids: Any) -> Any:
        """The request in the type of the stored ids, never by guessing: 7 is not "7"."""
        values = np.asarray(original_ids)
        text = not pa.types.is_integer(self.ascending.type)
        if len(values) == 0:
            return pa.array([], type=self.ascending.type)
        if values.dtype.kind not in ("UOT" if text else "iu"):
            kind = "strings" if text else "integers"
            raise PartitionError(f"the original ids of {self.path.parent} are {kind}, got {values.dtype}")
        try:
            converted = pa.array(values.astype(object) if text else values)
            return converted.cast(self.ascending.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError) as error:
            raise PartitionError(f"original ids cannot be looked up in {self.path.parent}: {error}") from None


def _search(ascending: Any, wanted: Any) -> NDArray[np.int64]:
    """How many stored strings are less than each wanted one: all binary searches take each step together."""
    low = np.zeros(len(wanted), dtype=np.int64)
    high = np.full(len(wanted), len(ascending), dtype=np.int64)
    for _ in range(len(ascending).bit_length()):
        middle = (low + high) // 2
        probe = ascending.take(pa.array(np.minimum(middle, len(ascending) - 1)))
        less = pc.less(probe, wanted).to_numpy(zero_copy_only=False) & (low < high)
        low = np.where(less, middle + 1, low)
        high = np.where(less, high, middle)
    return low
