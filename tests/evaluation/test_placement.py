"""An evaluation on an accelerator equals the CPU's, wherever the rows of all nodes lie, in all that it writes."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from nfdist.devices import MemoryUse, placed
from nfdist.errors import ConfigError
from nfdist.evaluation.evaluator import Wanted, evaluate_run
from nfdist.evaluation.full import Evaluation, FullGraph
from nfdist.evaluation.new_nodes import NewNodes
from nfdist.evaluation.placement import CPU, Placement
from nfdist.evaluation.predict import StatesPredictor
from nfdist.evaluation.states import States
from nfdist.model.loading import load_model
from nfdist.rendezvous import Place
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.accelerator.counts import counted
from tests.accelerator.device import accelerator, needs_counts, needs_worlds
from tests.cli.runs import copied, train_run
from tests.comparing import difference
from tests.evaluation.building import Options, split_of_all, write_graph, write_weighted_graph
from tests.evaluation.new_rows import own_rows
from tests.evaluation.trained import SEED
from tests.model.building import OPTIONS
from tests.needs import needs_dgl
from tests.worlds import run_world

pytestmark = pytest.mark.accelerator

GIBIBYTE = 1 << 30
PLACES = {
    "little room for work": (True, True, 40_000),
    "without edges": (True, False, 1 << 20),
    "host": (False, False, 40_000),
}
MODELS = {
    "nodeformer": ("relation.order=2", "model.graph_layers=1", "model.feed_forward=1", "model.branch_residual=false"),
    "label inputs": ("relation.order=1", "train.label_inputs=0.5", "train.edge_loss=0"),
    "gcn": ("model.name=gcn", "relation.order=1", "train.edge_loss=0"),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind in ("directed", "sparse"):
        write_graph(folder / kind, kind, 3)
        Hops.open(Store.open(folder / kind), 2)
    write_weighted_graph(folder / "weighted", True, 2)
    return folder


@pytest.fixture(scope="module", params=MODELS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_run(tmp_path_factory.mktemp("run"), *MODELS[request.param])


def evaluated(world: World, path: Path, options: Options, device: torch.device) -> Evaluation:
    store = Store.open(path)
    hops = Hops.open(store, options.relation.num_patterns, weighted=options.relation.weights)
    graph = FullGraph(store, hops, options.relation, world, dtype=torch.float64, device=device)
    return graph.evaluate(options.build(store.num_features), SEED, split=split_of_all(store))


def check_same(found: Evaluation, wanted: Evaluation) -> None:
    assert found.hidden is not None
    assert wanted.hidden is not None
    assert difference(found.logits.cpu(), wanted.logits) < 1e-12
    assert difference(found.hidden.cpu(), wanted.hidden) < 1e-12
    for ours, theirs in zip(found.summaries, wanted.summaries, strict=True):
        assert difference(ours.mean.cpu(), theirs.mean) < 1e-12


@pytest.mark.parametrize("name", OPTIONS)
def test_every_model_has_the_logits_of_the_cpu(name: str, graphs: Path) -> None:
    options, device = Options.named(name), accelerator()
    path = graphs / ("sparse" if options.label_inputs else "directed")
    found = evaluated(World(), path, options, device)
    assert found.logits.device == device
    check_same(found, evaluated(World(), path, options, CPU))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["defaults", "powers", "label inputs of a graph branch"])
def test_rows_of_all_nodes_may_lie_anywhere(
    name: str, place: str, graphs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, device = Options.named(name), accelerator()
    there, edges, work_bytes = PLACES[place]
    chosen = Placement(device, device if there else CPU, work_bytes, edges)
    monkeypatch.setattr(Placement, "decided", lambda *_: chosen)
    found = evaluated(World(), graphs / "directed", options, device)
    assert found.logits.device == chosen.states
    check_same(found, evaluated(World(), graphs / "directed", options, CPU))


@pytest.mark.parametrize(
    ("free", "there", "edges"), [(4 * GIBIBYTE, True, True), (2.5 * GIBIBYTE, True, False), (GIBIBYTE, False, False)]
)
def test_what_is_left_of_a_gpu_decides(free: float, there: bool, edges: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    device = accelerator()
    monkeypatch.setattr("nfdist.evaluation.placement.memory_use", lambda _: MemoryUse(5, 5, 5 + int(free)))
    placement = Placement.decided(World(), device, GIBIBYTE, GIBIBYTE, 5)
    assert (placement.states, placement.edges) == (device if there else CPU, edges)
    assert 0 < placement.work_bytes <= free / 8


def test_ranks_on_accelerators_have_the_logits_of_the_cpu(graphs: Path) -> None:
    needs_worlds(2)
    wanted = evaluated(World(), graphs / "directed", Options.named("defaults"), CPU).logits
    for answers in zip(*run_world(2, _of_a_rank, graphs / "directed"), strict=True):
        found = torch.tensor([row for rows in answers for row in rows], dtype=torch.float64)
        assert difference(found, wanted) < 1e-12


def _of_a_rank(world: World, path: Path) -> Any:
    """What one rank finds where both have room, and where the second has none."""
    device, found = accelerator(world.rank), []
    for least in (1 << 40, 9):
        with pytest.MonkeyPatch.context() as patch:
            use = MemoryUse(0, 0, least if world.rank else 1 << 40)
            patch.setattr("nfdist.evaluation.placement.memory_use", lambda _, use=use: use)
            evaluation = evaluated(world, path, Options.named("defaults"), device)
        assert evaluation.logits.device == (CPU if least == 9 else device)
        found.append(evaluation.logits.tolist())
    return found


def test_a_run_is_evaluated_as_on_the_cpu(run: Path, tmp_path: Path) -> None:
    """Scores, smoothing, predictions, embeddings, states and exports of the attention; then answers for new nodes."""
    device = accelerator()
    here, there = copied(run, tmp_path / "here"), copied(run, tmp_path / "there")
    nodeformer = load_model(run).config.model.name == "nodeformer"
    chosen = ",".join(map(str, Store.open(load_model(run).config.data.partition).original_ids(torch.arange(3))))
    wanted = Wanted(outputs=True, states=True, edges=nodeformer, chosen=chosen * nodeformer, smoothing=True)
    facts = {
        path: evaluate_run(path, wanted, Place(), World(), device=on) for path, on in ((here, CPU), (there, device))
    }
    assert facts[there]["device"] == str(device)
    for name in ("metric", "train", "valid", "test"):
        assert facts[here][name] == facts[there][name]
        assert facts[here]["smoothed"][name] == facts[there]["smoothed"][name]
    assert facts[here]["smoothed"]["strengths"] == facts[there]["smoothed"]["strengths"]
    written = sorted(path.relative_to(here) for path in here.rglob("*") if path.suffix in (".npy", ".parquet"))
    assert len(written) > 3
    for file in written:
        check_same_file(here / file, there / file)
    check_same_predictions(here, device, tmp_path)


def check_same_predictions(path: Path, device: torch.device, folder: Path) -> None:
    trained = load_model(path)
    store = Store.open(trained.config.data.partition)
    file = own_rows(store, folder / "new.parquet", [3, 100, 7])
    new_nodes, states = NewNodes.read(file, store), States.open(path, trained)
    found, wanted = (StatesPredictor(trained, states, store, on).logits(new_nodes) for on in (device, CPU))
    assert found.device == CPU
    assert difference(found, wanted) < 1e-5


def check_same_file(ours: Path, theirs: Path) -> None:
    if ours.suffix == ".npy":
        np.testing.assert_allclose(np.load(ours), np.load(theirs), rtol=1e-4, atol=1e-5)
        return
    left, right = pq.read_table(ours), pq.read_table(theirs)
    assert left.schema == right.schema
    for name in left.column_names:
        mine, others = (_flat(table.column(name)) for table in (left, right))
        assert mine == (pytest.approx(others, abs=1e-5) if mine and isinstance(mine[0], float) else others), name


def _flat(column: Any) -> list[Any]:
    while pa.types.is_list(column.type):
        column = pc.list_flatten(column)
    return list(column.to_pylist())


def test_the_host_waits_for_a_chunk_of_a_layer_once(graphs: Path) -> None:
    needs_counts()
    options, store = Options.named("defaults"), Store.open(graphs / "directed")
    graph = FullGraph(store, Hops.open(store, 2), options.relation, World(), dtype=torch.float64, device=accelerator())
    model = placed(options.build(store.num_features), graph.device)
    graph.evaluate(model, SEED)  # decides where states lie, and draws directions
    with counted() as counts:
        graph.evaluate(model, SEED)
    assert counts.syncs.total() <= model.model.layers, counts.table("syncs")


@needs_dgl
def test_a_model_without_code_for_gpus_is_evaluated_by_the_cpu_unless_one_is_asked_for(tmp_path: Path) -> None:
    run, device = train_run(tmp_path, "model.name=gat", "relation.order=1", "train.edge_loss=0"), accelerator()
    given = run, Wanted(), Place(), World()
    assert evaluate_run(*given, device=device)["device"] == "cpu"
    with pytest.raises(ConfigError, match="gat has no code for GPUs: give --device cpu or auto"):
        evaluate_run(*given, device=device, wanted_device="cuda")
