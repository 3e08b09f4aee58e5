"""What the ranks of a world do together. Every rank must call each of these; only tensors travel, never a pickle."""

from collections.abc import Sequence

import torch
import torch.distributed as distributed
from torch import Tensor

from nfdist.world import World


def exchange(world: World, outgoing: Sequence[Tensor]) -> list[Tensor]:
    """Send one tensor to every rank and receive one from each, in the order of ranks.

    Tensors may differ in their first dimension only. Every rank must call this.
    """
    assert len(outgoing) == world.size
    if world.size == 1:
        return list(outgoing)
    sent = torch.tensor([len(tensor) for tensor in outgoing])
    received = torch.empty_like(sent)
    distributed.all_to_all_single(received, sent)
    together = torch.cat(list(outgoing)).contiguous()
    arrived = together.new_empty(int(received.sum()), *together.shape[1:])
    distributed.all_to_all_single(arrived, together, received.tolist(), sent.tolist())
    return list(torch.split(arrived, received.tolist()))


def least(world: World, values: Tensor) -> Tensor:
    """The smallest value of every entry over the ranks. Every rank must call this."""
    lowest = values.clone()
    if world.size > 1:
        distributed.all_reduce(lowest, distributed.ReduceOp.MIN)
    return lowest
