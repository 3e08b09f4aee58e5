"""First parts keep to the caps and beat parts at random, with few parts and with many."""

import numpy as np
import pytest

from nfdist.partitioning.multilevel import first_parts as module
from nfdist.partitioning.multilevel.first_parts import first_parts
from nfdist.partitioning.multilevel.refinement import caps_of
from tests.partitioning.multilevel.graphs import clustered, row_graph


@pytest.mark.parametrize("steps", [1 << 20, 0])  # with tries, and by ranges alone
def test_first_parts_are_balanced_and_better_than_chance(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_STEPS", steps)
    graph = row_graph(clustered(8, 40, strays=0.1))
    caps = caps_of(graph, 4, 1.05)
    parts = first_parts(graph, 4, caps, seed=0)
    assert (graph.loads(parts, 4) <= caps).all()
    assert graph.cut(parts)[0] < 0.6 * graph.cut((np.arange(320) % 4).astype(np.int32))[0]
    assert np.array_equal(parts, first_parts(graph, 4, caps, seed=0))
