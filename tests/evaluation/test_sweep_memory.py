"""The memory of an evaluation: a limit bounds it, and what does not fit is in files."""

from dataclasses import replace

import pytest

from nfdist import settings
from nfdist.evaluation.sweep_memory import sweep_memory
from nfdist.graph.counts import GraphCounts, read_counts
from tests.training.building import build_partition

PROCESS = 165 << 20


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> GraphCounts:
    counts = read_counts(build_partition(tmp_path_factory.mktemp("graph") / "partition", 4), 1)
    parts = tuple(replace(part, start=part.start * 10**4, stop=part.stop * 10**4) for part in counts.parts)
    nodes = parts[-1].stop
    return replace(counts, nodes=nodes, edges=50 * nodes, patterns=(51 * nodes,), parts=parts)


@pytest.mark.parametrize("limit", [600 << 20, 2 << 30])
def test_a_limit_bounds_what_is_held(limit: int, graph: GraphCounts) -> None:
    config = settings.parse({"relation": {"order": 1}})
    free = sweep_memory(config, graph, process_bytes=PROCESS)
    bounded = sweep_memory(config, graph, process_bytes=PROCESS, limit_bytes=limit)
    assert free.in_files == 0
    assert free.total > limit
    assert PROCESS + bounded.total <= limit
    assert bounded.in_files > 0
    assert bounded.least == 0  # so that it is never refused
    assert 0 < free.least < free.total


def test_ranks_divide_it(graph: GraphCounts) -> None:
    config = settings.parse({"relation": {"order": 0}, "train": {"edge_loss": 0}})
    alone, four = (sweep_memory(config, graph, ranks=ranks) for ranks in (1, 4))
    assert four.held == pytest.approx(alone.held / 4, rel=0.05)


def test_smoothing_and_a_baseline_take_their_own(graph: GraphCounts) -> None:
    base = {"relation": {"order": 1}, "train": {"edge_loss": 0}}
    for tables in (base, {**base, "model": {"name": "gcn"}}):
        with_it = sweep_memory(settings.parse(tables), graph)
        without = sweep_memory(settings.parse(tables, ["evaluate.smoothing=none"]), graph)
        assert with_it.after > without.after
        assert with_it.total >= without.total


def test_a_model_of_all_pairs_is_evaluated_on_all_of_them(graph: GraphCounts) -> None:
    base = {"relation": {"order": 1}, "train": {"edge_loss": 0}}
    pairs, edges = (sweep_memory(settings.parse(base, [f"model.name={name}"]), graph) for name in ("vgcn", "gcn"))
    assert pairs.held > edges.held + 4 * graph.nodes**2
