"""Predictions for new nodes equal evaluation where the node is one of the graph, and the dense definition elsewhere."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from nfdist.attention.dense import dense_attend
from nfdist.config import RelationConfig
from nfdist.errors import ConfigError
from nfdist.evaluation.new_nodes import NewNodes
from nfdist.evaluation.predict import NODES_AT_ONCE, StatesPredictor, _totals
from nfdist.evaluation.states import States
from nfdist.store.store import Store
from tests.comparing import difference
from tests.evaluation.building import (
    Options,
    evaluation_draw,
    weight_matrix,
    weighted_graph,
    write_graph,
    write_weighted_graph,
)
from tests.evaluation.new_rows import own_rows, write_new_nodes
from tests.evaluation.trained import SEED, evaluate_with_states, trained_model
from tests.model.building import OPTIONS
from tests.model.reference import adjacency_matrix, embedded, fed_forward, finish, joined, mixed_with_branch, weighted

NODES = 60
DIRECTED = {"undirected": False, "directed": True}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind, parts in product(DIRECTED, (1, 3)):
        write_graph(folder / f"{kind} {parts}", kind, parts)
    return folder


def predicted(run: Path, store: Store, options: Options, file: Path, nodes_at_once: int = NODES_AT_ONCE) -> Tensor:
    trained = trained_model(options, store)
    predictor = StatesPredictor(trained, States.open(run, trained), store)
    return predictor.logits(NewNodes.read(file, store), nodes_at_once)


@pytest.mark.parametrize("kind", DIRECTED)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_node_of_the_graph_with_its_own_edges_gets_its_own_logits(
    name: str, parts: int, kind: str, graphs: Path, tmp_path: Path
) -> None:
    options, store = Options.named(name), Store.open(graphs / f"{kind} {parts}")
    evaluation, _ = evaluate_with_states(tmp_path, trained_model(options, store), store)
    chosen = [59, 3, 47, *range(4, 30)]
    file = own_rows(store, tmp_path / "new.parquet", chosen)
    assert difference(predicted(tmp_path, store, options, file), evaluation.logits[chosen]) < 1e-10


def test_it_gets_them_with_directions_of_the_step_too(graphs: Path, tmp_path: Path) -> None:
    model, attention, relation = OPTIONS["defaults"]
    options = Options(model, replace(attention, eval_directions="step"), relation)
    store = Store.open(graphs / "undirected 3")
    evaluation, full = evaluate_with_states(tmp_path, trained_model(options, store), store)
    logits = evaluation.logits.clone()
    file = own_rows(store, tmp_path / "new.parquet", [*range(30)])
    assert difference(predicted(tmp_path, store, options, file), logits[:30]) < 1e-10
    assert difference(full.evaluate(options.build(store.num_features), SEED).logits, logits) > 1e-3


def dense_predictions(
    options: Options, store: Store, features: Tensor, neighbors: list[list[int]], among: Tensor | None = None
) -> Tensor:
    """New nodes that attend to all old keys and hear their neighbors and themselves, one row of a matrix each.

    `among` [new, new] is 1 where a row hears another one.
    """
    model, old = options.build(store.num_features), store.take(torch.arange(store.num_nodes)).double()
    step = adjacency_matrix(store.induced(torch.arange(store.num_nodes)), torch.float64)
    joins = torch.zeros(len(features), store.num_nodes, dtype=torch.float64)
    for row, names in enumerate(neighbors):
        joins[row, names] = 1
    each = torch.eye(len(features), dtype=torch.float64)
    among = each if among is None else (among + each).clamp(max=1)
    union = torch.cat([torch.cat([step, torch.zeros_like(joins.T)], 1), torch.cat([joins, among], 1)])
    draw = evaluation_draw(model, store, SEED)
    unlabeled = replace(draw, labels=torch.full((len(features),), -1))
    hidden, new = (
        finish(model, embedded(model, rows, given), 0, given, True)
        for rows, given in ((old, draw), (features.double(), unlabeled))
    )
    states = [new]
    for index in range(1, model.model.layers + 1):
        layer = model.layer(index)
        kernel, _ = model.randomness(draw, index, old)
        heads = (model.model.heads, model.model.channels)
        keys, values, new_values = (
            part(rows).view(-1, *heads)
            for part, rows in ((layer.key, hidden), (layer.value, hidden), (layer.value, new))
        )
        heard = dense_attend(layer.query(hidden).view(-1, *heads), keys, values, kernel)
        new_heard = dense_attend(layer.query(new).view(-1, *heads), keys, values, kernel)
        for hop in range(model.relation.order):
            gate = layer.gates[hop].sigmoid() if model.relation.gate == "sigmoid" else layer.gates[hop]
            relation = relation_with_new(hop + 1, step, union, store, model.relation)
            both = gate[:, None] * torch.einsum("ts,shd->thd", relation, torch.cat([values, new_values]))
            heard, new_heard = heard + both[: store.num_nodes], new_heard + both[store.num_nodes :]
        elu = model.model.activation == "elu"
        hidden, new = (
            fed_forward(
                model,
                finish(model, joined(layer, rows) + (before if model.model.residual else 0), index, draw, elu),
                index,
                draw,
            )
            for rows, before in ((heard, hidden), (new_heard, new))
        )
        states.append(new)
    logits: Tensor = model.output(torch.cat(states, 1) if model.model.jumping_knowledge else new)
    if model.relation.order == 0:
        return logits.detach()
    everyone = relation_with_new(1, step, union, store, model.relation)
    padded = torch.cat([logits.new_zeros(store.num_nodes, logits.shape[1]), logits])
    if draw.labels is not None and unlabeled.labels is not None:
        draw = replace(draw, labels=torch.cat([draw.labels, unlabeled.labels]))
    mixed = mixed_with_branch(model, padded, torch.cat([old, features.double()]), everyone, draw)
    return mixed[store.num_nodes :].detach()


def relation_with_new(order: int, step: Tensor, union: Tensor, store: Store, relation: RelationConfig) -> Tensor:
    """Â_order of old and new nodes, in whose old rows nothing has changed; A + I is `step`, with new nodes `union`.

    A power is that of this very Â_1: a new node gets the sums that the old nodes have without it, and its own.
    """
    if relation.kind == "power":
        one_step = relation_with_new(1, step, union, store, replace(relation, kind="pattern"))
        power: Tensor = torch.linalg.matrix_power(one_step, order)
        return power
    paths = torch.linalg.matrix_power(step, order)
    reach = (torch.linalg.matrix_power(union, order)[store.num_nodes :] > 0).double()
    from_old, from_new = new_weights(reach, (paths > 0).double(), store, relation)
    everyone: Tensor = torch.block_diag(weighted(paths, relation.normalize), from_new)
    everyone[store.num_nodes :, : store.num_nodes] = from_old
    return everyone


def new_weights(reach: Tensor, old_reach: Tensor, store: Store, relation: RelationConfig) -> tuple[Tensor, Tensor]:
    """Weights of old nodes in new ones, and of new ones in each other."""
    old, new = reach.split([store.num_nodes, len(reach)], 1)
    if not relation.normalize:
        return old, new
    degrees_in = reach.sum(1)
    degrees_out = new.sum(0) if store.manifest.directed else degrees_in
    return old / (degrees_in[:, None] * old_reach.sum(0)).sqrt(), new / (degrees_in[:, None] * degrees_out).sqrt()


@pytest.mark.parametrize("kind", DIRECTED)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_new_node_gets_what_the_dense_definition_says(name: str, kind: str, graphs: Path, tmp_path: Path) -> None:
    options, store = Options.named(name), Store.open(graphs / f"{kind} 3")
    evaluate_with_states(tmp_path, trained_model(options, store), store)
    features = torch.randn(4, store.num_features, generator=torch.Generator().manual_seed(1))
    neighbors = [[1, 5, 1], [], [40, 41, 42, 43, 59], [8]]
    names = [list(store.original_ids(torch.tensor(some, dtype=torch.int64))) for some in neighbors]
    file = write_new_nodes(tmp_path / "new.parquet", store, [1, 2, 3, -5], features, names)
    wanted = dense_predictions(options, store, features, neighbors)
    assert difference(predicted(tmp_path, store, options, file, nodes_at_once=3), wanted) < 1e-9


@pytest.mark.parametrize("kind", DIRECTED)
@pytest.mark.parametrize("name", OPTIONS)
def test_new_nodes_together_hear_each_other_as_the_dense_definition_says(
    name: str, kind: str, graphs: Path, tmp_path: Path
) -> None:
    options, store = Options.named(name), Store.open(graphs / f"{kind} 3")
    evaluate_with_states(tmp_path, trained_model(options, store), store)
    features = torch.randn(5, store.num_features, generator=torch.Generator().manual_seed(1))
    neighbors, joined = [[1, 5], [], [40, 59], [8], []], [(0, 1), (1, 2), (2, 2), (3, 1), (0, 1)]
    names = [list(store.original_ids(torch.tensor(some, dtype=torch.int64))) for some in neighbors]
    for target, source in joined:
        names[target].append(-1 - source)  # what the new nodes are called
    among = torch.zeros(5, 5, dtype=torch.float64)
    among[tuple(zip(*joined, strict=True))] = 1
    among = among if store.manifest.directed else (among + among.T).clamp(max=1)
    file = write_new_nodes(tmp_path / "new.parquet", store, [-1, -2, -3, -4, -5], features, names)
    trained = trained_model(options, store)
    new_nodes = NewNodes.read(file, store, together=True)
    found = StatesPredictor(trained, States.open(tmp_path, trained), store).logits(new_nodes)
    assert difference(found, dense_predictions(options, store, features, neighbors, among)) < 1e-9
    if options.relation.order and options.relation.gate != "none" and name != "graph branch":
        assert difference(found, dense_predictions(options, store, features, neighbors)) > 1e-3


HEEDED = [
    (model, attention, replace(relation, weights=True))
    for model, attention, relation in OPTIONS.values()
    if relation.order
]


def all_edges() -> pa.Table:
    """The weighted graph's own edges, as they are listed."""
    graph = weighted_graph()
    ids = graph.original_ids
    return pa.table({"source": ids[graph.sources], "target": ids[graph.targets], "weight": graph.weights})


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("options", HEEDED, ids=[name for name, (_, _, one) in OPTIONS.items() if one.order])
def test_with_the_weights_of_its_edges_a_node_of_the_graph_gets_its_own_logits(
    options: Any, directed: bool, tmp_path: Path
) -> None:
    heeded, store = Options(*options), Store.open(write_weighted_graph(tmp_path / "p", directed, 3))
    trained = trained_model(heeded, store)
    evaluation, _ = evaluate_with_states(tmp_path, trained, store)
    everyone = torch.arange(NODES).flip(0)
    nodes = pa.table({"id": store.original_ids(everyone), "features": store.take(everyone).tolist()})
    predictor = StatesPredictor(trained, States.open(tmp_path, trained), store)
    edges = all_edges()
    pq.write_table(nodes, tmp_path / "new.parquet")
    pyarrow.csv.write_csv(edges, tmp_path / "edges.csv")
    read = NewNodes.read(tmp_path / "new.parquet", store, tmp_path / "edges.csv")
    for new_nodes in (NewNodes.from_table(nodes, store, edges), read):
        assert difference(predictor.logits(new_nodes, 17), evaluation.logits[everyone]) < 1e-10
    unsaid = predictor.logits(NewNodes.from_table(nodes, store, edges.drop_columns("weight")))
    if heeded.relation.gate != "none":
        assert difference(unsaid, evaluation.logits[everyone]) > 1e-3


@pytest.mark.parametrize("directed", [True, False])
def test_edges_weigh_1_unless_a_table_says_what(directed: bool, tmp_path: Path) -> None:
    store = Store.open(write_weighted_graph(tmp_path / "p", directed, 3))
    known = [str(one) for one in store.original_ids(torch.tensor([3, 8, 20]))]
    nodes = pa.table({"id": ["a", "b"], "features": [[0.0] * 5] * 2, "neighbors": [[*known[:2], known[0]], [known[2]]]})
    edges = pa.table(
        {"source": [known[1], known[1], "a", "a"], "target": ["a", "a", "b", "b"], "weight": [2.0, 0.5, 3, 4]}
    )
    found = NewNodes.from_table(nodes, store, edges, together=True)
    assert found.weights is not None
    assert found.neighbors[1].tolist() == [3, 8, 20]
    assert found.weights.tolist() == [1, 2.5, 1]
    assert found.among is not None
    assert found.among_weights is not None
    assert [row.tolist() for row in found.among] == ([[0, 0, 1], [0]] if directed else [[0, 1, 2], [1, 0]])
    assert found.among_weights.tolist() == ([7] if directed else [7, 7])
    wrong = edges.set_column(2, "weight", pa.array([2.0, 0.5, None, 4]))
    with pytest.raises(ConfigError, match=r"row 3 has the weight nan: give a finite number from 0 on"):
        NewNodes.from_table(nodes, store, wrong, together=True)


@pytest.mark.parametrize("directed", [True, False])
def test_new_nodes_together_weigh_each_other_as_the_definition_says(directed: bool, tmp_path: Path) -> None:
    """One convolution's worth: Â_1 of the rows of new nodes, beside the graph whose own degrees stay."""
    model, attention, relation = OPTIONS["paper's large graphs"]
    options = Options(model, attention, replace(relation, weights=True, order=1))
    store = Store.open(write_weighted_graph(tmp_path / "p", directed, 3))
    trained = trained_model(options, store)
    evaluate_with_states(tmp_path, trained, store)
    known = [str(one) for one in store.original_ids(torch.tensor([3, 8]))]
    nodes = pa.table({"id": list("abc"), "features": torch.randn(3, 5).tolist()})
    ends = {"source": [known[0], known[1], "a", "c"], "target": ["a", "b", "b", "b"], "weight": [2.0, 0.5, 3, 4]}
    new_nodes = NewNodes.from_table(nodes, store, pa.table(ends), together=True)
    predictor = StatesPredictor(trained, States.open(tmp_path, trained), store)
    ((of_graph, among),) = predictor._hops(new_nodes)
    joins, each = torch.zeros(3, NODES, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    joins[0, 3], joins[1, 8], each[1, 0], each[1, 2] = 2, 0.5, 3, 4
    if not directed:
        each[0, 1], each[2, 1] = 3, 4
    received = joins.sum(1) + each.sum(1)
    sent = each.sum(0) if directed else received
    matrix = weight_matrix(store, directed)
    from_old = joins / (received[:, None] * matrix.sum(0)).sqrt()
    from_new = each / (received[:, None] * sent).sqrt()
    old, new = torch.eye(NODES, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    everyone = slice(0, 3)
    assert difference(of_graph.sums(everyone, old, torch.zeros(3, NODES, dtype=torch.float64)), from_old) < 1e-10
    states = torch.zeros(NODES, 3, dtype=torch.float64)
    heard = of_graph.sums(everyone, states, new) + among.sums(everyone, new, new)
    assert difference(heard, from_new) < 1e-10
    assert difference(_totals([of_graph, among]), from_old.sum(1) + from_new.sum(1)) < 1e-10
