"""Who has which nodes when a whole graph is divided among the ranks of a world."""

from collections.abc import Sequence
from itertools import pairwise

import torch

from nfdist.collectives import gather, together
from nfdist.errors import WorldError
from nfdist.store.manifest import Part
from nfdist.store.store import GraphStore
from nfdist.world import World


def divide_among(world: World, store: GraphStore) -> list[range]:
    """The nodes of every rank: of parts that it holds, where ranks hold different ones. Every rank must call this."""
    if not store.remote:
        return divide(store.parts, world.size)
    held = [parts.tolist() for parts in gather(world, torch.tensor(store.local.held_parts), "compare parts")]
    return together(world, lambda: divide_held(store.parts, held))


def divide(parts: Sequence[Part], ranks: int) -> list[range]:
    """The nodes of every rank as one range: whole parts where there are enough, else equal shares of all nodes."""
    bounds = [parts[0].start, *(part.stop for part in parts)] if parts else [0]
    num_nodes = bounds[-1] - bounds[0]
    ends = [bounds[0] + num_nodes * rank // ranks for rank in range(ranks + 1)]
    if len(parts) >= ranks:
        for rank in range(1, ranks):  # the nearest bound that leaves a part for every rank
            open_bounds = bounds[rank : len(bounds) - (ranks - rank)]
            ends[rank] = min((b for b in open_bounds if b >= ends[rank - 1]), key=lambda b: abs(b - ends[rank]))
    return [range(start, stop) for start, stop in pairwise(ends)]


def divide_held(parts: Sequence[Part], held: Sequence[Sequence[int]]) -> list[range]:
    """The nodes of every rank among the parts it holds: the ranks that hold the same parts divide these."""
    divided = [range(0)] * len(held)
    holders: dict[int, list[int]] = {}
    for rank, own in enumerate(held):
        ranks = [other for other, theirs in enumerate(held) if theirs == own]
        for number in own:
            if holders.setdefault(number, ranks) != ranks or own[-1] - own[0] >= len(own):
                raise WorldError(
                    f"rank {rank} holds parts {', '.join(map(str, own))}: to evaluate the whole graph, put consecutive "
                    "parts on each host and each part on one, or all parts on all hosts"
                )
        divided[rank] = divide([parts[number] for number in own], len(ranks))[ranks.index(rank)]
    return divided
