"""Copies are their owners' rows, and what is given back adds up there, however many rounds it takes."""

import pytest
import torch
from torch import Tensor

from nfdist import seeds
from nfdist.graph.halo import Halo
from nfdist.world import World
from tests.worlds import run_world

ROWS, CHANNELS = (40, 0, 25), 3  # of each rank; the second has no rows


def rows_of(rank: int) -> Tensor:
    return torch.randn(ROWS[rank], CHANNELS, generator=seeds.generator(rank, "rows"))


def wanted_by(rank: int, size: int) -> list[Tensor]:
    """Which rows a rank borrows from every other: some twice as many as others, from itself none."""
    return [
        torch.randperm(ROWS[other], generator=seeds.generator(rank, "wanted", other))[
            : 0 if other == rank else 9 * other + 7
        ]
        for other in range(size)
    ]


def trade(world: World, round_bytes: int) -> None:
    own, wanted = rows_of(world.rank), wanted_by(world.rank, world.size)
    halo = Halo.build(world, wanted, round_bytes)
    extended = torch.cat([own, torch.full((halo.num_copied, CHANNELS), torch.nan)])
    halo.fetch(extended, world)
    copied = torch.cat([rows_of(rank)[rows] for rank, rows in enumerate(wanted)])
    assert torch.equal(extended, torch.cat([own, copied]))
    halo.accumulate(extended, world)
    lent = torch.zeros(len(own))
    for rank in range(world.size):
        lent.index_add_(
            0, wanted_by(rank, world.size)[world.rank], torch.ones(len(wanted_by(rank, world.size)[world.rank]))
        )
    torch.testing.assert_close(extended[: len(own)], own * (1 + lent[:, None]))
    rows = own.clone().requires_grad_()
    halo.extend(rows, world).sum().backward()
    torch.testing.assert_close(rows.grad, (1 + lent[:, None]).expand_as(own))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_rows_come_and_go_in_any_number_of_rounds(size: int) -> None:
    run_world(size, trade_in_rounds)


def trade_in_rounds(world: World) -> None:
    for round_bytes in (1, 60, 1 << 30):
        trade(world, round_bytes)
