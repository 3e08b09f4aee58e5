"""Small runs and checkpoints for the tests of runs."""

from pathlib import Path

import torch
from torch import Tensor

from nfdist.config import Config, TrainConfig
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run

CONFIG = Config(train=TrainConfig(epochs=7, seeds=(2, 1), learning_rate=0.1))


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


def save(run: Run, seed: int, step: int, keep: int = 2, note: str = "") -> Checkpoint:
    tensors = {"weights": {"a": torch.full((3,), float(step))}}
    return run.save_checkpoint(seed, step, tensors, {"seed": seed, "step": step, "note": note}, keep)
