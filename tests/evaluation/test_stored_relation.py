"""A baseline answers for new nodes as for those of the graph: by one matrix, in which nobody hears a new one."""

from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from nfdist.errors import ConfigError
from nfdist.evaluation.new_nodes import NewNodes
from nfdist.evaluation.predict import StatesPredictor
from nfdist.evaluation.states import States
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.build import MODELS
from nfdist.model.loading import TrainedModel
from nfdist.model.protocol import Draw
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import weight_matrix, weighted_graph, write_graph, write_weighted_graph
from tests.evaluation.new_rows import own_rows, write_new_nodes
from tests.evaluation.trained import SEED, evaluate_with_states, trained_baseline
from tests.model.reference import adjacency_matrix
from tests.needs import MODELS_LEFT_OUT
from tests.worlds import run_world

NODES = 60
KINDS = ("undirected", "directed")
NAMES = [name for name, kind in MODELS.items() if kind.inductive and name != "nodeformer"]
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "three layers, all states": {"layers": 3, "activation": "elu", "jumping_knowledge": True, "dropout": 0.5},
    "one layer": {"layers": 1, "norm": "none"},
}
NEIGHBORS = [[1, 5, 1], [], [40, 41, 42, 43, 59], [8], []]
JOINED = [(0, 1), (1, 2), (2, 2), (3, 1), (0, 1)]  # targets and sources


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind in KINDS:
        write_graph(folder / kind, kind, 3)
    for directed in (True, False):
        write_weighted_graph(folder / f"weighted {directed}", directed, 3)
    return folder


def predictor_of(run: Path, trained: TrainedModel, store: Store) -> StatesPredictor:
    return StatesPredictor(trained, States.open(run, trained), store)


def every_case(world: World, graphs: Path, runs: Path) -> list[list[list[float]]]:
    """The logits of this rank's nodes by every baseline, with every option, on one graph or another."""
    found = []
    for index, (name, options) in enumerate(product(NAMES, OPTIONS)):
        store, run = Store.open(graphs / KINDS[index % len(KINDS)]), runs / str(index)
        run.mkdir(parents=True, exist_ok=True)
        trained = trained_baseline(name, store, **OPTIONS[options])
        found.append(evaluate_with_states(run, trained, store, world)[0].logits.tolist())
    return found


@pytest.mark.parametrize("size", [1, 3])
def test_a_node_of_the_graph_with_its_own_edges_gets_its_own_logits(size: int, graphs: Path, tmp_path: Path) -> None:
    by_rank = run_world(size, every_case, graphs, tmp_path)
    chosen = [59, 3, 47, *range(4, 30)]
    for index, (name, options) in enumerate(product(NAMES, OPTIONS)):
        store = Store.open(graphs / KINDS[index % len(KINDS)])
        wanted = torch.tensor([row for rank in by_rank for row in rank[index]], dtype=torch.float64)[chosen]
        new_nodes = NewNodes.read(own_rows(store, tmp_path / "new.parquet", chosen), store)
        predictor = predictor_of(tmp_path / str(index), trained_baseline(name, store, **OPTIONS[options]), store)
        assert difference(predictor.logits(new_nodes, 7), wanted) < 1e-10, (name, options)


class MatrixRelation:
    """Sums by a dense matrix."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix

    def propagate(self, rows: Tensor) -> Tensor:
        return self._matrix @ rows


def dense_predictions(trained: TrainedModel, store: Store, features: Tensor, among: Tensor | None) -> Tensor:
    """The model on the graph and the new nodes at once: these have in-edges alone, and change no old degree."""
    old, count = adjacency_matrix(store.induced(torch.arange(NODES)), torch.float64), len(features)
    joins, new = torch.zeros(count, NODES, dtype=torch.float64), torch.eye(count, dtype=torch.float64)
    for row, names in enumerate(NEIGHBORS):
        joins[row, names] = 1
    new = new if among is None else (new + among).clamp(max=1)
    received = joins.sum(1) + new.sum(1)
    sent = new.sum(0) if store.manifest.directed else received
    union = torch.cat([torch.cat([old, torch.zeros_like(joins.T)], 1), torch.cat([joins, new], 1)])
    matrix = union / (union.sum(1, keepdim=True) * torch.cat([old.sum(0), sent])).sqrt()
    rows = torch.cat([store.take(torch.arange(NODES)).double(), features.double()])
    model = trained.model
    assert isinstance(model, Baseline)
    draw = Draw(SEED, 0, torch.arange(len(rows)))
    with torch.no_grad():
        return model.logits(model.input(rows), [MatrixRelation(matrix)], draw)[NODES:]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_new_nodes_get_what_the_definition_says(
    name: str, kind: str, together: bool, graphs: Path, tmp_path: Path
) -> None:
    store = Store.open(graphs / kind)
    trained = trained_baseline(name, store, **OPTIONS["three layers, all states"])
    evaluate_with_states(tmp_path, trained, store)
    features = torch.randn(5, store.num_features, generator=torch.Generator().manual_seed(1))
    names = [list(store.original_ids(torch.tensor(some, dtype=torch.int64))) for some in NEIGHBORS]
    among = None
    if together:
        among = torch.zeros(5, 5, dtype=torch.float64)
        among[tuple(zip(*JOINED, strict=True))] = 1
        among = among if store.manifest.directed else (among + among.T).clamp(max=1)
        for target, source in JOINED:
            names[target].append(-1 - source)  # what the new nodes are called
    file = write_new_nodes(tmp_path / "new.parquet", store, [-1, -2, -3, -4, -5], features, names)
    found = predictor_of(tmp_path, trained, store).logits(NewNodes.read(file, store, together=together), 3)
    assert difference(found, dense_predictions(trained, store, features, among)) < 1e-10
    if together and name != "mlp":
        assert difference(found, dense_predictions(trained, store, features, None)) > 1e-3


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("name", [name for name in NAMES if MODELS[name].heeds_weights])
def test_edges_to_new_nodes_count_by_their_weights(name: str, directed: bool, graphs: Path, tmp_path: Path) -> None:
    store = Store.open(graphs / f"weighted {directed}")
    trained = trained_baseline(name, store, weights=True)
    evaluation, _ = evaluate_with_states(tmp_path, trained, store)
    graph, everyone = weighted_graph(), torch.arange(NODES).flip(0)
    ids = graph.original_ids
    edges = pa.table({"source": ids[graph.sources], "target": ids[graph.targets], "weight": graph.weights})
    nodes = pa.table({"id": store.original_ids(everyone), "features": store.take(everyone).tolist()})
    predictor = predictor_of(tmp_path, trained, store)
    found = predictor.logits(NewNodes.from_table(nodes, store, edges), 17)
    assert difference(found, evaluation.logits[everyone]) < 1e-10
    unsaid = predictor.logits(NewNodes.from_table(nodes, store, edges.drop_columns("weight")))
    assert difference(unsaid, evaluation.logits[everyone]) > 1e-3
    roots = States.open(tmp_path, trained).roots
    assert roots is not None
    assert difference(roots.rows()[:, 0], weight_matrix(store, directed).sum(0).rsqrt()) < 1e-10


def test_states_hold_the_rows_of_every_sum_and_nothing_else(graphs: Path, tmp_path: Path) -> None:
    store = Store.open(graphs / "directed")
    widths = {"mlp": [], "gcn": [8, 8, 4], "dropedge": [8, 8, 4], "sgc": [4] * 3, "mixhop": [16, 8] * 3}
    for name, wanted in {**widths, "jknet": [8] * 3}.items():
        trained = trained_baseline(name, store, layers=3)
        evaluate_with_states(tmp_path, trained, store)
        states = States.open(tmp_path, trained)
        assert [column.rows().shape[1] for column in states.hidden] == wanted
        assert (states.roots is None) == (name == "mlp")
        assert (states.summaries, states.branch) == ((), ())


@pytest.mark.parametrize("name", sorted({"gat", "idgl"} - MODELS_LEFT_OUT))
def test_who_cannot_answer_for_new_nodes_is_told_who_can(name: str, graphs: Path) -> None:
    trained = trained_baseline(name, Store.open(graphs / "directed"))
    with pytest.raises(ConfigError) as caught:
        trained.check_inductive()
    able = "nodeformer, mlp, gcn, sgc, mixhop, jknet, dropedge"
    assert str(caught.value) == f"nfdist predict cannot answer by model.name = {name}: train one of {able}"
