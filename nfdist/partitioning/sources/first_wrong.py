"""What is wrong in the shares of all ranks, as one process would find it in the whole."""

import json

from nfdist.collectives import gather_text
from nfdist.world import World


def first_wrong(world: World, count: int, told: str) -> tuple[int, str]:
    """How many mistakes all ranks found together, and how the first of these is told; "" where there are none.

    `told` is of the first one in the share of this rank; shares follow one another. Every rank must call this.
    """
    everyones = [json.loads(text) for text in gather_text(world, json.dumps([int(count), told]))]
    return sum(count for count, _ in everyones), next((told for count, told in everyones if count), "")
