"""Work a few rows at a time: which rows, and buffers that every chunk uses again.

What there is of every node, head and feature has the shape [n, h, m] where it is passed on, but lies in memory and is
worked on as [h, m, n]: features are few, and loops over them would be short.
"""

import math
import threading
from collections.abc import Iterator

import torch
from torch import Tensor

# Elements of the largest temporary of a chunk. On a CPU it should stay in the cores' caches: docs/numerics.md#chunks
_CHUNK_ELEMENTS = {"cpu": 7 << 18}
_CHUNK_ELEMENTS_ON_DEVICES = 1 << 25


def chunks(num_rows: int, row_elements: int, device: torch.device, chunk_rows: int | None = None) -> Iterator[slice]:
    """Even slices that cover the rows, each small enough for its largest temporary, of `row_elements` a row."""
    if chunk_rows is None:
        most = max(64, _CHUNK_ELEMENTS.get(device.type, _CHUNK_ELEMENTS_ON_DEVICES) // row_elements // 64 * 64)
        count = max(1, -(-num_rows // most))
        chunk_rows = max(64, -(-num_rows // (64 * count)) * 64)
    return (slice(start, min(start + chunk_rows, num_rows)) for start in range(0, num_rows, chunk_rows))


class Scratch:
    """Named buffers of one type and device; a chunk overwrites what the last one left there.

    Fresh memory would be paged in again for every chunk, which costs more than the arithmetic done in it.
    """

    _of_thread = threading.local()

    def __init__(self, like: Tensor) -> None:
        self._dtype, self._device = like.dtype, like.device
        self._buffers: dict[str, Tensor] = {}

    @staticmethod
    def of(like: Tensor) -> "Scratch":
        """The one that this thread keeps for such tensors."""
        kept: dict[str, Scratch] = vars(Scratch._of_thread)
        return kept.setdefault(str(like.dtype), Scratch(like))

    def take(self, name: str, *shape: int) -> Tensor:
        size = math.prod(shape)
        if name not in self._buffers or self._buffers[name].numel() < size:
            with torch.inference_mode(False):  # or it could be used in no other mode
                self._buffers[name] = torch.empty(size, dtype=self._dtype, device=self._device)
        return self._buffers[name][:size].view(shape)


def outer(shared: Tensor, own: Tensor, scratch: Scratch) -> Tensor:
    """shared[h, m, n] own[h, k, n], as [h x k x m, n], in a buffer."""
    out = scratch.take("outer", *own.shape[:2], *shared.shape[1:])
    return torch.mul(shared[:, None], own[:, :, None], out=out).flatten(0, 2)


def rows_last(*shape: int, like: Tensor) -> Tensor:
    """An empty tensor [rows, ...] that lies in memory as [..., rows]."""
    return like.new_empty(*shape[1:], shape[0]).movedim(-1, 0)


def by_head(hidden: Tensor, weight: Tensor, bias: Tensor, width: int) -> Tensor:
    """A linear map of hidden states, as [n, h, width] that lies in memory as [h, width, n]."""
    rows = torch.addmm(bias[:, None], weight, hidden.t())
    return rows.view(len(weight) // width, width, len(hidden)).movedim(-1, 0)


def peaks_of(exponents: Tensor) -> Tensor:
    """exponents.amax(1) of [h, m, n], m at least 1; maxima of halves, which may overlap, need no second pass."""
    while exponents.shape[1] > 1:
        half = -(-exponents.shape[1] // 2)
        exponents = torch.maximum(exponents[:, :half], exponents[:, -half:])
    return exponents[:, 0]


def smallest_factor(dtype: torch.dtype) -> float:
    """How small a factor may be that draws are told apart by: docs/numerics.md#underflow."""
    return float(torch.finfo(dtype).tiny ** 0.7)
