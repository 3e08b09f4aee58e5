"""Restreaming lowers the cut and brings parts that are too heavy back under their caps."""

import numpy as np

from nfdist import seeds
from nfdist.partitioning.multilevel.refinement import Refinement, caps_of
from tests.partitioning.multilevel.graphs import clustered, row_graph


def test_the_cut_falls_and_loads_are_those_of_the_parts() -> None:
    graph = row_graph(clustered(8, 100, strays=0.1), np.arange(800) % 2)
    parts = seeds.numpy_generator(0, "parts").permutation(800).astype(np.int32) % 4
    caps = caps_of(graph, 4, 1.05)
    before, _ = graph.cut(parts)
    refinement = Refinement(graph, parts, 4, caps, seed=0)
    refinement.restream(6)
    assert graph.cut(parts)[0] < 0.8 * before
    assert refinement.is_balanced
    assert np.array_equal(refinement.loads, graph.loads(parts, 4))


def test_parts_that_are_too_heavy_give_up_what_costs_least() -> None:
    graph = row_graph(clustered(8, 100, strays=0.1))
    for lopsided in (np.zeros(800, np.int32), (np.arange(800) // 700).astype(np.int32)):
        refinement = Refinement(graph, lopsided, 2, caps_of(graph, 2, 1.03), seed=0)
        assert not refinement.is_balanced
        refinement.restream(8)
        assert refinement.is_balanced


def test_caps_leave_room_for_the_heaviest_node() -> None:
    graph = row_graph(clustered(2, 50), np.r_[90, np.zeros(99, np.int64)])
    caps = caps_of(graph, 4, 1.03)
    assert caps[0] == 26  # of 100 nodes; 1.03 times a quarter would be less than a node more
    assert caps[2] == np.ceil(90 / 4 + 90)
