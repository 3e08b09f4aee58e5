"""Checkpoints for every rank: one rank reads, the others get what it read over the process group."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nfdist.collectives import broadcast_state, tally, together
from nfdist.errors import CheckpointError
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run
from nfdist.world import World

RAW_WEIGHTS = "raw_weights"  # those that training goes on with, where `weights` are an average
ALWAYS_SAVED = ("weights", "optimizer")
GROUPS = (*ALWAYS_SAVED, RAW_WEIGHTS)


@dataclass(frozen=True)
class Restored:
    """What a checkpoint held, on every rank; `rank` had it."""

    state: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]
    rank: int


def restore_newest(world: World, path: Path, seeds: tuple[int, ...]) -> Restored | None:
    """The newest whole checkpoint that any rank can see in a run directory. Every rank must call this."""
    checkpoint = together(
        world, lambda: Run.open(path).last_checkpoint(seeds) if Run.holds_run(path) else None, CheckpointError
    )
    state = checkpoint.state if checkpoint else {}
    age = seeds.index(state["seed"]) * 2**40 + state["step"] if checkpoint else -1
    ages = tally(world, torch.tensor([age]), "compare checkpoints")[:, 0]
    source = int(ages.argmax())
    if int(ages[source]) < 0:
        return None
    return _send(world, checkpoint if world.rank == source else None, source)


def _send(world: World, checkpoint: Checkpoint | None, source: int) -> Restored:
    saved = [group for group in GROUPS if checkpoint and (group in ALWAYS_SAVED or group in checkpoint.files)]
    groups = {group: checkpoint.tensors(group) for group in saved if checkpoint}
    mine = {f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()}
    state, received = broadcast_state(world, checkpoint.state if checkpoint else {}, mine, source, "send checkpoint")
    tensors: dict[str, dict[str, Tensor]] = {group: {} for group in GROUPS}
    for full_name, tensor in received.items():
        group, _, name = full_name.partition("/")
        tensors[group][name] = tensor
    return Restored(state, tensors, source)


def read_weights(path: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights of a checkpoint, or of a run's best one (its last where none is marked), as numbers of a type."""
    found = Run.open(path).chosen_checkpoint() if Run.holds_run(path) else Checkpoint.open(path)
    if found is None:
        raise CheckpointError(f"{path} holds a run without checkpoints: give another train.init_from")
    weights = found.tensors("weights")
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
