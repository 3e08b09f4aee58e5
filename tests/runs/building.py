"""Small runs and checkpoints for the tests of runs."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nfdist import files, settings
from nfdist.config import Config, TrainConfig
from nfdist.fields import each_setting
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.records import sealed
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


def make_format_2(path: Path) -> None:
    """Make a run what it would have been in format version 2, when no section was inside another."""
    run = Run.open(path)
    then = {field.metadata["was"] and name.rpartition(".")[0] for name, field in each_setting(Config)}
    text = re.sub(
        r"\n\[(model\.\w+)\]\n((?:[^\[\n].*\n)*)",
        lambda table: table[2] * (table[1] in then),
        settings.dump(run.config),
    )
    (path / "config.toml").write_text(sealed(text, run.id))
    for record in (path / "run.json", path / "result.json", *path.glob("checkpoints/*/best.json")):
        content = json.loads(record.read_bytes())
        del content["format_version"], content["checksum"]
        record.write_bytes(files.dump_checked(2, content))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def steps(run: Run, seed: int) -> list[int]:
    return list(run.checkpoint_paths(seed))


def last_step(run: Run, *seeds: int) -> tuple[int, int] | None:
    checkpoint = run.last_checkpoint(seeds)
    return None if checkpoint is None else (checkpoint.state["seed"], checkpoint.state["step"])


def fail_with(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
