"""Paths followed some at a time lead where a product of patterns says, however few are followed at once."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nfdist.store.paths import FirstHop, KnownHop, Reached, Steps, count_paths, extended
from nfdist.store.ranges import offsets
from nfdist.store.store import Store
from nfdist.store.writing import write_partition
from tests.store.building import RECIPE, build_graph, in_edges

NODES = 90
AT_ONCE = (1, 30, 1000, 1 << 20)  # a row at a time, all by marks; some of each; all rows together


def with_hub(folder: Path, listed: int, parts: int) -> Store:
    """Node 0 of the source hears all others; the last part is empty, and edges are listed so many times."""
    graph = build_graph(NODES, 200)
    indptr, sources = in_edges(graph)
    others = np.arange(1, NODES)
    sources = np.concatenate([others, sources[indptr[1] :]])
    indptr = np.concatenate([[0], indptr[1:] - indptr[1] + len(others)])
    assignment = np.random.default_rng(9).integers(0, max(1, parts - 1), NODES)
    repeated = np.repeat(sources, listed)
    write_partition(folder / "p", graph, listed * indptr, repeated, assignment, parts, RECIPE, directed=True)
    return Store.open(folder / "p")


def followed(reached: Reached, steps: Steps, at_once: int) -> tuple[list[int], list[int]]:
    """Offsets and sources of all blocks, put together."""
    blocks = list(extended(reached, steps, count_paths(reached, steps), at_once))
    counts = np.concatenate([np.empty(0, int), *(np.diff(block.offsets) for block in blocks)])
    return offsets(counts).tolist(), [source for block in blocks for source in block.sources.tolist()]


@pytest.mark.parametrize(("parts", "listed"), [(1, 1), (4, 1), (4, 2)])
def test_paths_lead_where_products_say(tmp_path: Path, parts: int, listed: int) -> None:
    store = with_hub(tmp_path, listed, parts)
    steps, step = Steps(store), store.induced(torch.arange(NODES), loops=True)
    twice = step.after(step)
    for number, part in enumerate(store.parts):
        rows = slice(part.start, part.stop)
        first, second = FirstHop(store, number), KnownHop(twice.to_targets(rows))
        for reached, wanted in ((first, twice), (second, twice.after(step))):
            truth = wanted.to_targets(rows)
            for at_once in AT_ONCE:
                found = followed(reached, steps, at_once)
                assert found == (truth.indptr.tolist(), truth.sources.tolist()), (number, at_once)
        ends = np.diff(twice.to_targets(rows).indptr.numpy())
        assert (count_paths(first, steps) >= ends).all()


def test_paths_are_those_of_a_product_and_of_loops_that_are_stored(tmp_path: Path) -> None:
    store = with_hub(tmp_path, 1, 4)
    step, everyone = store.induced(torch.arange(NODES), loops=True), torch.arange(NODES)
    degrees = store.in_degrees(everyone) + 1
    assert step.num_edges < int(degrees.sum()) < step.num_edges + NODES
    paths = [count_paths(FirstHop(store, number), Steps(store)) for number in range(len(store.parts))]
    stored = [torch.cat([store.in_neighbors(torch.tensor([node]))[1], torch.tensor([node])]) for node in range(NODES)]
    assert np.concatenate(paths).tolist() == [int(degrees[sources].sum()) for sources in stored]
