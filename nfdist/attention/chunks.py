"""Work a few rows at a time: which rows, and buffers that every chunk uses again."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

# Elements of the largest temporary of a chunk. On a CPU it should stay in the cores' caches.
_CHUNK_ELEMENTS = {"cpu": 3 << 19, "cuda": 1 << 25}


def chunks(num_rows: int, row_elements: int, device: torch.device, chunk_rows: int | None = None) -> Iterator[slice]:
    """Slices that cover the rows, each small enough for its largest temporary, of `row_elements` a row."""
    if chunk_rows is None:
        chunk_rows = max(64, _CHUNK_ELEMENTS.get(device.type, 1 << 22) // row_elements // 64 * 64)
    return (slice(start, min(start + chunk_rows, num_rows)) for start in range(0, num_rows, chunk_rows))


class Scratch:
    """Named buffers of one type and device; a chunk overwrites what the last one left there.

    Fresh memory would be paged in again for every chunk, which costs more than the arithmetic done in it.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        size = math.prod(shape)
        if name not in self._buffers or self._buffers[name].numel() < size:
            self._buffers[name] = self._like.new_empty(size)
        return self._buffers[name][:size].view(shape)


def outer(shared: Tensor, own: Tensor, scratch: Scratch) -> Tensor:
    """shared[n, h, m] own[n, h, k], as [n, h x k x m], in a buffer."""
    out = scratch.take("outer", *own.shape, shared.shape[2])
    return torch.mul(shared[:, :, None], own[..., None], out=out).flatten(1)


def max_over_rows(rows: Tensor) -> Tensor:
    """rows.amax(0) of at least one row; folding 16 rows into one makes it ten times faster where rows are short."""
    folded = rows[: len(rows) // 16 * 16].reshape(-1, 16, *rows.shape[1:])
    tail = rows[len(folded) * 16 :]
    if len(folded) == 0:
        return tail.amax(0)
    top = folded.amax(0).amax(0)
    return torch.maximum(top, tail.amax(0)) if len(tail) else top


def max_of_rows(rows: Tensor) -> Tensor:
    """rows.amax(-1), of at least one column; halves that overlap are three times faster where rows are short."""
    while rows.shape[-1] > 1:
        half = -(-rows.shape[-1] // 2)
        rows = torch.maximum(rows[..., :half], rows[..., -half:])
    return rows[..., 0]
