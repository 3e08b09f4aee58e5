"""Small checkpoints for the tests of runs."""

from pathlib import Path

import torch
from torch import Tensor


def build_tensors(seed: int = 0) -> dict[str, dict[str, Tensor]]:
    """Tensors of all types and shapes a checkpoint may hold."""
    generator = torch.Generator().manual_seed(seed)
    weights = {
        f"{dtype}.{name}": torch.randn(shape, generator=generator).mul(100).to(dtype)
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64)
        for name, shape in {"matrix": (3, 5), "vector": (7,), "number": (), "none": (0,), "rows": (0, 4)}.items()
    }
    return {
        "weights": weights,
        "optimizer": {"moments": torch.randn(3, 5, generator=generator), "step": torch.tensor(9)},
    }


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
