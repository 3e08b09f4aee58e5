"""Checkpoints for every rank: one rank reads, the others get what it read over the process group."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nfdist.collectives import broadcast, broadcast_text, tally, together
from nfdist.errors import CheckpointError
from nfdist.model.protocol import Model
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run
from nfdist.world import World

GROUPS = ("weights", "optimizer")


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
    tensors = {} if checkpoint is None else {group: checkpoint.tensors(group) for group in GROUPS}
    shapes = [
        (group, name, list(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for group, named in tensors.items()
        for name, tensor in named.items()
    ]
    mine = json.dumps({"state": checkpoint.state if checkpoint else {}, "shapes": shapes})
    header = json.loads(broadcast_text(world, mine, source, "send checkpoint"))
    received: dict[str, dict[str, Tensor]] = {group: {} for group in GROUPS}
    for group, name, shape, dtype in header["shapes"]:
        content = tensors[group][name] if tensors else torch.empty(shape, dtype=getattr(torch, dtype))
        received[group][name] = broadcast(world, content, source, "send checkpoint")
    return Restored(header["state"], received, source)


def load_weights(model: Model, weights: Mapping[str, Tensor], source: str) -> None:
    """Weights by name; the first that does not fit is named."""
    own = model.state_dict()
    for name in own.keys() ^ weights.keys():
        where = "the model has none" if name in weights else f"{source} has none"
        raise CheckpointError(f"{source} does not fit: {where} of the weights {name}; use the same [model] settings")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            raise CheckpointError(
                f"{source} does not fit: {name} is {list(weights[name].shape)} there and {list(tensor.shape)} here; "
                "use the same [model] settings and a partition of the same features and classes"
            )
    model.load_state_dict(dict(weights))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, or of a run's best one (its last where none is marked)."""
    if not Run.holds_run(path):
        return Checkpoint.open(path).tensors("weights")
    run = Run.open(path)
    checkpoint = run.chosen_checkpoint()
    if checkpoint is None:
        raise CheckpointError(f"{path} holds a run without checkpoints: give another train.init_from")
    return checkpoint.tensors("weights")
