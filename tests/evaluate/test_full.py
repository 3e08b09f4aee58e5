"""The evaluation of a whole graph equals the model's own forward pass, in any world, partition and memory."""

from itertools import product
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from nfdist.config import RelationConfig
from nfdist.evaluate.full import FullGraph
from nfdist.evaluate.memory import Budget
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import difference
from tests.evaluate.building import KINDS, Options, forward, write_graph
from tests.model.test_nodeformer import OPTIONS
from tests.worlds import run_world

SEED = 4
SMALL = Budget(held_bytes=0, work_bytes=3000)  # everything in files, a few rows at a time
PAPER = Options(*OPTIONS["paper's large graphs"])
TWO_HOPS = Options(*OPTIONS["defaults"])
CASES = list(product(KINDS, (1, 2, 7), (PAPER, TWO_HOPS), (None, SMALL)))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind, parts in product(KINDS, (1, 2, 7)):
        write_graph(folder / f"{kind} {parts}", kind, parts)
        Hops.open(Store.open(folder / f"{kind} {parts}"), 2)
    return folder


def full_graph(
    path: Path, relation: RelationConfig, world: World, budget: Budget | None, dtype: torch.dtype = torch.float64
) -> FullGraph:
    store = Store.open(path)
    with patch.object(Budget, "within", lambda *_: budget or Budget(None, 1 << 20)):
        return FullGraph(store, Hops.open(store, relation.order), relation, world, dtype=dtype)


@pytest.mark.parametrize("budget", [None, SMALL], ids=["memory", "files"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIONS)
def test_it_equals_the_model_itself_with_every_option(
    name: str, kind: str, budget: Budget | None, graphs: Path
) -> None:
    options, path = Options(*OPTIONS[name]), graphs / f"{kind} 2"
    store = Store.open(path)
    wanted = forward(options.build(5), store, SEED)
    exact = full_graph(path, options.relation, World(), budget).evaluate(options.build(5), SEED)
    assert exact.nodes == range(60)
    assert difference(exact.logits, wanted) < 1e-10
    rounded = full_graph(path, options.relation, World(), budget, torch.float32)
    assert difference(rounded.evaluate(options.build(5, torch.float32), SEED).logits.double(), wanted) < 1e-5


def every_case(world: World, graphs: Path) -> list[list[list[float]]]:
    torch.set_num_threads(1)
    logits = []
    for kind, parts, options, budget in CASES:
        graph = full_graph(graphs / f"{kind} {parts}", options.relation, world, budget)
        logits.append(graph.evaluate(options.build(5), SEED).logits.tolist())
    return logits


@pytest.mark.parametrize("size", [2, 3, 8])
def test_every_world_computes_the_same_rows_in_the_same_order(size: int, graphs: Path) -> None:
    ranks = run_world(size, every_case, graphs)
    for case, (kind, parts, options, _) in enumerate(CASES):
        rows = [torch.tensor(rank[case], dtype=torch.float64).view(-1, 4) for rank in ranks]
        wanted = forward(options.build(5), Store.open(graphs / f"{kind} {parts}"), SEED)
        assert difference(torch.cat(rows), wanted) < 1e-10, (kind, parts, options.relation)
