"""Collectives in real worlds of 1, 2 and 3."""

import time
from unittest.mock import Mock, patch

import pytest
import torch

from nfdist import collectives
from nfdist.collectives import exchange, least, patiently
from nfdist.errors import ConfigError, NfdistError
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


def long_work(world: World) -> tuple[int, int, str]:
    """The last rank works long, and then fails; how often ranks told each other that somebody works."""
    last = world.rank == world.size - 1
    telling = Mock(wraps=collectives.total)

    def work() -> int:
        time.sleep(0.5 * last)
        return world.rank

    def fail() -> None:
        if last:
            raise ConfigError("no room")

    with patch.object(collectives, "total", telling):
        result = patiently(world, work, pause=0.05)
    with pytest.raises(NfdistError) as caught:
        patiently(world, fail, ConfigError)
    assert caught.value.everywhere
    return result, telling.call_count, str(caught.value)


@pytest.mark.parametrize("size", [1, 3])
def test_who_is_done_hears_of_those_who_still_work(size: int) -> None:
    found = run_world(size, long_work)
    assert [result for result, _, _ in found] == list(range(size))
    rounds = {told for _, told, _ in found}
    assert len(rounds) == 1
    assert (rounds.pop() >= 3) == (size > 1)
    said = [text for _, _, text in found]
    assert said == [*["rank 2 cannot go on: no room"] * (size - 1), "no room"]
