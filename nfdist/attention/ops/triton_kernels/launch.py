"""How kernels are started, and what the shapes of their tiles and the order of their sums follow from."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nfdist.errors import ConfigError

SMALLEST_TILE = 16  # what a product of tiles may have in each direction
MOST_CHANNELS = 512  # of a row that lies in a processor's own memory, with a tile of means
PROGRAMS = 1024  # that sums over rows are divided among: several for each processor of a large GPU


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Start the programs of a grid, on the device of the first tensor; none where an axis is empty."""
    if 0 in grid:
        return
    with torch.cuda.device_of(next(argument for argument in arguments if isinstance(argument, Tensor))):
        kernel[grid](*arguments, **constants)


def tile(length: int, most: int = 64) -> int:
    """The power of two that covers so many entries, or the largest of several tiles."""
    return min(most, max(SMALLEST_TILE, int(triton.next_power_of_2(length))))


def row_tiles(num_features: int, channels: int) -> dict[str, int]:
    """The tiles of a program that has all channels of a few rows."""
    if channels > MOST_CHANNELS:
        raise ConfigError(
            f"the kernels of attention hold at most {MOST_CHANNELS} channels of a row, got {channels}: lower "
            "model.channels, or uninstall triton"
        )
    block_c = tile(channels, MOST_CHANNELS)
    block_m = tile(num_features, max(SMALLEST_TILE, min(64, 4096 // block_c)))
    return {
        "block_n": 32 if block_c <= 64 else 16,
        "block_m": block_m,
        "block_c": block_c,
        "num_warps": 8,
        "num_stages": 2,
    }


def count(length: int, block: int) -> int:
    """How many tiles there are."""
    return -(-length // block)


def parts(num_rows: int, columns: int, block_rows: int) -> tuple[int, int]:
    """How many parts rows are summed in, and the rows of each, where so many columns are summed side by side.

    Shapes alone decide, so that sums have one order on every device.
    """
    rows = block_rows * max(1, count(num_rows, block_rows * max(1, PROGRAMS // columns)))
    return count(num_rows, rows), rows


def arithmetic(like: Tensor) -> dict[str, Any]:
    """The type that exponents and sums have, and how float32 tiles are multiplied: docs/numerics.md#triton."""
    if like.dtype == torch.float64:
        return {"wide": tl.float64, "precision": "ieee"}
    exact = like.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return {"wide": tl.float32, "precision": "tf32x3" if exact else "tf32"}


def wide_type(like: Tensor) -> torch.dtype:
    """The type that `arithmetic` has, as torch calls it."""
    return torch.promote_types(like.dtype, torch.float32)


def addressable(rows: Tensor) -> Tensor:
    """Rows whose offsets within one fit 32 bits: where they lie in memory node last, and are too many, a copy."""
    reach = sum((size - 1) * stride for size, stride in zip(rows.shape[1:], rows.stride()[1:], strict=True))
    return rows if reach < 1 << 31 else rows.contiguous()
