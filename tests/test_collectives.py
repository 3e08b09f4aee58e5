"""Collectives in real worlds of 1, 2 and 3."""

import pytest
import torch

from nfdist.collectives import exchange, least
from nfdist.world import World
from tests.worlds import run_world


def letters(sender: int, receiver: int) -> torch.Tensor:
    """What a rank sends to another: as many rows as both their numbers say, none from rank 0 to itself."""
    return torch.arange(2 * (sender + 2 * receiver)).view(-1, 2) + 100 * sender + 10 * receiver


def trade(world: World) -> list[list[list[int]]]:
    return [tensor.tolist() for tensor in exchange(world, [letters(world.rank, other) for other in range(world.size)])]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_everyone_receives_what_was_sent_to_it_in_the_order_of_ranks(size: int) -> None:
    for receiver, arrived in enumerate(run_world(size, trade)):
        assert arrived == [letters(sender, receiver).tolist() for sender in range(size)]


def lowest(world: World) -> list[int]:
    mine = torch.tensor([world.rank, -world.rank, 5])
    found = least(world, mine).tolist()
    assert mine.tolist() == [world.rank, -world.rank, 5]  # a rank's own tensor is left alone
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_least_of_every_entry_is_known_everywhere(size: int) -> None:
    assert run_world(size, lowest) == [[0, 1 - size, 5]] * size
