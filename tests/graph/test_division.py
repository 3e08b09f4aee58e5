"""Every node has one rank, which holds its part."""

from itertools import pairwise

import pytest

from nfdist.errors import WorldError
from nfdist.graph.division import divide, divide_held
from nfdist.store.manifest import Part


def parts_of(*sizes: int) -> list[Part]:
    stops = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return [Part(stop - size, stop, 0, 0, 0, 0) for size, stop in zip(sizes, stops, strict=True)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("sizes", [(), (10,), (5, 5), (0, 10), (10, 0, 0), (7, 1, 1, 1, 7), (1, 1)])
def test_ranges_cover_all_nodes_in_order(sizes: tuple[int, ...], ranks: int) -> None:
    divided = divide(parts_of(*sizes), ranks)
    assert [nodes.start for nodes in divided] == [0, *(nodes.stop for nodes in divided[:-1])]
    assert divided[-1].stop == sum(sizes)
    if len(sizes) >= ranks:
        bounds = {0, *(part.stop for part in parts_of(*sizes))}
        assert {nodes.start for nodes in divided} <= bounds


@pytest.mark.parametrize(
    "held",
    [
        [[0, 1, 2, 3]],
        [[0, 1], [2, 3]],
        [[2, 3], [0, 1]],
        [[3], [0, 1, 2], [3], [0, 1, 2], [3]],
        [[0, 1, 2, 3], []],
        [[0, 1, 2, 3]] * 3,
    ],
)
def test_every_rank_takes_nodes_of_its_own_parts(held: list[list[int]]) -> None:
    parts = parts_of(4, 6, 0, 5)
    divided = divide_held(parts, held)
    nodes = sorted((nodes for nodes in divided if nodes), key=lambda nodes: nodes.start)
    assert [0, *(one.stop for one in nodes)] == [*(one.start for one in nodes), 15]
    for own, range_of in zip(held, divided, strict=True):
        assert set(range_of) <= {node for number in own for node in range(parts[number].start, parts[number].stop)}
    assert divide_held(parts, [[0, 1, 2, 3]] * 3) == divide(parts, 3)
    assert all(one.stop <= other.start for one, other in pairwise(nodes))


@pytest.mark.parametrize("held", [[[0, 1], [1, 2]], [[0, 2], [1]], [[0, 1, 2], [2]]])
def test_parts_that_cannot_be_divided_are_named(held: list[list[int]]) -> None:
    with pytest.raises(WorldError, match=r"rank \d holds parts [\d, ]+: .* put consecutive parts on each host"):
        divide_held(parts_of(4, 6, 5), held)
