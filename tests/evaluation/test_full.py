"""The evaluation of a whole graph equals the model's own forward pass, in any world, partition and memory."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from nfdist.config import ModelConfig, RelationConfig
from nfdist.errors import ConfigError, NfdistError, PartitionError
from nfdist.evaluation.budget import Budget
from nfdist.evaluation.full import FullGraph
from nfdist.graph.spill import Spill
from nfdist.memory import MemoryWatch, private_bytes
from nfdist.store.distributed import DistributedStore
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.store.writing import write_partition
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import (
    KINDS,
    LABELED,
    LARGE,
    OUTPUTS,
    PAPER,
    POWERS,
    SMALL,
    TWO_HOPS,
    Options,
    forward,
    full_graph,
    split_of_all,
    write_graph,
    write_weighted_graph,
)
from tests.model.building import ATTENTION, OPTIONS
from tests.store.building import RECIPE, build_graph
from tests.worlds import run_world

SEED = 4
GRAPHS = [*product(("directed", "undirected"), (1, 2, 7)), ("sparse", 7), ("no edges", 2), ("one full part", 3)]
POWERS_LABELED = replace(POWERS, label_inputs=True)
THREE_HOPS = replace(TWO_HOPS, relation=replace(TWO_HOPS.relation, order=3))
HELD = [("directed", POWERS_LABELED), ("directed", TWO_HOPS), ("undirected", THREE_HOPS)]  # by ranks with some parts
WEIGHTED = [
    Options(options.model, options.attention, replace(options.relation, weights=True, normalize=normalize))
    for options, normalize in ((PAPER, True), (TWO_HOPS, True), (PAPER, False), (POWERS, True))
]
CASES = [
    *zip(GRAPHS, cycle([SMALL, LARGE]), cycle([TWO_HOPS, PAPER, PAPER, TWO_HOPS, POWERS]), strict=False),
    (("undirected", 7), SMALL, LABELED),
]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind, parts in GRAPHS:
        path = folder / f"{kind} {parts}"
        if kind in KINDS:
            write_graph(path, kind, parts)
        else:  # ranks without a node
            write_graph(path, "directed", parts, np.ones(60, dtype=np.int64))
        Hops.open(Store.open(path), 2)
    return folder


@pytest.mark.parametrize(("kind", "budget"), [("directed", LARGE), ("undirected", SMALL)], ids=["memory", "files"])
@pytest.mark.parametrize("name", OPTIONS)
def test_it_equals_the_model_itself_with_every_option(name: str, kind: str, budget: Budget, graphs: Path) -> None:
    options, path = Options.named(name), graphs / f"{kind} 2"
    wanted, split = forward(options.build(5), Store.open(path), SEED), split_of_all(Store.open(path))
    exact = full_graph(path, options, budget).evaluate(options.build(5), SEED, split=split)
    assert exact.nodes == range(60)
    assert difference(exact.logits, wanted) < 1e-10
    single = full_graph(path, options, budget, dtype=torch.float32)
    rounded = single.evaluate(options.build(5, torch.float32), SEED, split=split)
    assert difference(rounded.logits.double(), wanted) < 1e-5


def every_case(world: World, graphs: Path) -> list[list[list[float]]]:
    """The logits of this rank's rows."""
    logits = []
    for (kind, parts), budget, options in CASES:
        path = graphs / f"{kind} {parts}"
        graph, split = full_graph(path, options, budget, world), split_of_all(Store.open(path))
        logits.append(graph.evaluate(options.build(5), SEED, split=split).logits.tolist())
    return logits


def some_parts(world: World, graphs: Path) -> list[tuple[list[list[float]], list[int]]]:
    """The logits and the nodes of this rank, which holds the last parts if it is the first."""
    found, files = [], list[int]()
    real = Spill._file

    def counted(spill: Spill, size: int) -> Any:
        files.append(size)
        return real(spill, size)

    for kind, options in HELD:
        store = Store.open(graphs / f"{kind} 7", range(3, 7) if world.rank == 0 else range(3))
        shared = DistributedStore(store, world)
        hops = Hops.open(shared, options.relation.num_patterns)
        with patch("nfdist.graph.shard.available_bytes", lambda: 0), patch.object(Spill, "_file", counted):
            graph = FullGraph(shared, hops, options.relation, world, dtype=torch.float64)
        assert bool(files) == (options.relation.num_patterns > 1)  # of paths, for which memory has no room
        files.clear()
        split = shared.split(torch.arange(shared.num_nodes))
        logits = graph.evaluate(options.build(5), SEED, split=split).logits.tolist()
        found.append((logits, [graph.nodes.start, graph.nodes.stop]))
    return found


def one_fails(world: World, graphs: Path) -> list[str]:
    """What this rank says when the last one has no room for a tensor, wherever that may be."""
    said: list[str] = []
    real = Spill.tensor
    for allowed in range(100):
        left = iter(range(allowed)) if world.rank == world.size - 1 else cycle([0])

        def tensor(space: Spill, *arguments: object, left: Iterator[int] = left) -> Tensor:
            if next(left, None) is None:
                raise ConfigError("no room")
            return real(space, *arguments)  # type: ignore[arg-type]

        with patch.object(Spill, "tensor", tensor):
            try:
                full_graph(graphs / "directed 2", TWO_HOPS, LARGE, world).evaluate(TWO_HOPS.build(5), SEED)
                return said
            except NfdistError as error:
                said.append(str(error))
    return said


def whole_world(world: World, graphs: Path) -> list[Any]:
    works: tuple[Callable[[World, Path], Any], ...] = (
        (every_case, some_parts, one_fails) if world.size == 2 else (every_case,)
    )
    return [work(world, graphs) for work in works]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_world_computes_the_same_rows_in_the_same_order(size: int, graphs: Path) -> None:
    ranks = [whole_world(World(), graphs)] if size == 1 else run_world(size, whole_world, graphs)
    for case, ((kind, parts), _, options) in enumerate(CASES):
        rows = [rows_of(rank[0][case]) for rank in ranks]
        wanted = forward(options.build(5), Store.open(graphs / f"{kind} {parts}"), SEED)
        assert difference(torch.cat(rows), wanted) < 1e-10, (kind, parts, options.relation)
    if size == 2:
        for case, (kind, options) in enumerate(HELD):
            wanted = forward(options.build(5), Store.open(graphs / f"{kind} 7"), SEED)
            for rank in ranks:
                logits, (start, stop) = rank[1][case]
                assert difference(rows_of(logits), wanted[start:stop]) < 1e-10
        assert len(ranks[0][2]) > 10
        assert set(ranks[0][2]) == {"rank 1 cannot go on: no room"}
        assert set(ranks[1][2]) == {"no room"}


def rows_of(logits: list[list[float]]) -> Tensor:
    return torch.tensor(logits, dtype=torch.float64).view(-1, OUTPUTS)


def test_evaluations_of_one_graph_do_not_disturb_each_other(graphs: Path) -> None:
    graph = full_graph(graphs / "directed 2", PAPER, SMALL)
    wide = Options(ModelConfig(layers=1, channels=16, heads=2), ATTENTION, PAPER.relation)
    first = [tensor.clone() for tensor in tensors_of(graph, PAPER)]
    other = tensors_of(graph, wide)
    assert difference(other[0], forward(wide.build(5), Store.open(graphs / "directed 2"), SEED)) < 1e-10
    for one, again in zip(first, tensors_of(graph, PAPER), strict=True):
        assert torch.equal(one, again)


def tensors_of(graph: FullGraph, options: Options) -> list[Tensor]:
    evaluation = graph.evaluate(options.build(5), SEED)
    assert evaluation.hidden is not None
    return [evaluation.logits, evaluation.hidden, *(summary.mean for summary in evaluation.summaries)]


def test_the_last_hidden_state_and_the_summaries_are_those_of_the_model(graphs: Path) -> None:
    options = Options(OPTIONS["defaults"][0], ATTENTION, RelationConfig(order=1))
    model = options.build(5)
    evaluation = full_graph(graphs / "undirected 7", options, SMALL).evaluate(model, SEED)
    assert difference(model.output(evaluation.hidden).detach(), evaluation.logits) < 1e-12
    assert len(evaluation.summaries) == model.model.layers
    for summary in evaluation.summaries:  # without epsilon the mass of all keys under every feature
        assert summary.log_mass.shape == (model.model.heads, 1, model.model.random_features)


def test_a_model_of_other_features_is_refused(graphs: Path) -> None:
    graph = full_graph(graphs / "directed 2", PAPER, LARGE)
    with pytest.raises(ConfigError, match=r"the model takes 6 features, the nodes of .* have 5: evaluate it on"):
        graph.evaluate(PAPER.build(6), SEED)


def grown_bytes(world: World, path: Path, memory_bytes: int) -> list[int]:
    """How much evaluations of a graph, with a limit and without, add to what this process holds privately."""
    store = Store.open(path)
    options = Options(ModelConfig(layers=1, channels=192, heads=1), ATTENTION, RelationConfig(order=1))
    model = options.build(5, torch.float32)
    grown = []
    for extra in (memory_bytes, None):
        before = private_bytes()
        limit = None if extra is None else before + extra
        with MemoryWatch() as watch:
            graph = FullGraph(store, Hops.open(store, 1), options.relation, world, memory_bytes=limit)
            graph.evaluate(model, SEED)
        grown.append(watch.peak_private_bytes - before)
    return grown


def test_memory_stays_within_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    source = build_graph(60_000, 300_000)
    order = np.lexsort((source.sources, source.targets))
    indptr = np.searchsorted(source.targets[order], np.arange(60_001))
    assignment = np.arange(60_000) // 20_000
    write_partition(path, source, indptr, source.sources[order], assignment, 3, RECIPE, directed=True)
    limit = (66 << 20) + 48 * 60_000  # hardly more than the least that is accepted
    [(limited, unlimited)] = run_world(1, grown_bytes, path, limit)
    assert limited < limit < unlimited
    store = Store.open(path)
    with pytest.raises(ConfigError, match=r"a memory limit of 5MiB is too low for 60,000 nodes .* at least \d+MiB"):
        FullGraph(store, Hops.open(store, 1), PAPER.relation, World(), memory_bytes=5 << 20)


def weighted_cases(world: World, folder: Path) -> list[list[list[float]]]:
    """The logits of this rank's rows, and those of a rank that holds some of the parts."""
    logits = []
    for directed, options, budget in product((True, False), WEIGHTED, (SMALL, LARGE)):
        graph = full_graph(folder / f"directed={directed}", options, budget, world)
        logits.append(graph.evaluate(options.build(5), SEED).logits.tolist())
    return logits


@pytest.mark.parametrize("size", [1, 2, 3])
def test_weights_of_edges_count_alike_in_every_world(size: int, tmp_path: Path) -> None:
    for directed in (True, False):
        path = write_weighted_graph(tmp_path / f"directed={directed}", directed, 3)
        Hops.open(Store.open(path), 2)
    ranks = run_world(size, weighted_cases, tmp_path) if size > 1 else [weighted_cases(World(), tmp_path)]
    for case, (directed, options, _) in enumerate(product((True, False), WEIGHTED, (SMALL, LARGE))):
        wanted = forward(options.build(5), Store.open(tmp_path / f"directed={directed}"), SEED)
        assert difference(torch.cat([rows_of(rank[case]) for rank in ranks]), wanted) < 1e-10, (directed, case)


def test_weights_that_are_not_there_are_refused_in_a_line(graphs: Path) -> None:
    with pytest.raises(PartitionError, match=r"relation.weights = true needs edge weights, and .* has none: partition"):
        full_graph(graphs / "directed 2", WEIGHTED[0], LARGE)


@pytest.mark.parametrize("directed", [True, False])
def test_smoothing_knows_no_weights(directed: bool, tmp_path: Path) -> None:
    path = write_weighted_graph(tmp_path / "p", directed, 3)
    heeded, plain = (full_graph(path, options, LARGE).propagation().shard for options in (WEIGHTED[0], PAPER))
    everyone = slice(0, 60)
    assert torch.equal(heeded.source_factors(everyone), plain.source_factors(everyone))
    assert torch.equal(heeded.totals, plain.totals)
