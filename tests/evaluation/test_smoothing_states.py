"""New nodes are smoothed as an evaluation smooths: nodes of the graph get what it gave them."""

from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import pytest
import torch

from nfdist.config import RelationConfig
from nfdist.evaluation.evaluation_graph import open_evaluation_graph
from nfdist.evaluation.new_nodes import NewNodes
from nfdist.evaluation.predict import StatesPredictor
from nfdist.evaluation.scores import score
from nfdist.evaluation.smoothed import Smoothed, smooth
from nfdist.evaluation.smoothing import Rows, Strengths
from nfdist.evaluation.smoothing_states import SmoothingWriter
from nfdist.evaluation.states import States, writing_states
from nfdist.model.loading import TrainedModel
from nfdist.model.task import Task
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import PAPER, TWO_HOPS, Options, write_graph
from tests.evaluation.new_rows import own_rows, write_new_nodes
from tests.evaluation.trained import trained_baseline, trained_model
from tests.worlds import run_world

KINDS = ("directed", "undirected")
PLAIN = Options(PAPER.model, PAPER.attention, RelationConfig(order=1, normalize=False, gate="identity"))
MODELS: list[Options | str] = [PAPER, TWO_HOPS, PLAIN, "gcn", "mlp"]
CASES: list[tuple[str, Options | str, Strengths]] = [
    (kind, model, strengths)
    for (kind, model), strengths in zip(
        product(KINDS, MODELS),
        cycle([Strengths(0.8, "auto", 0.6), Strengths(0.5, 2.0), Strengths(smoothing=0.8), Strengths(0.95, 1.0, 0.4)]),
    )
]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind in KINDS:
        Hops.open(Store.open(write_graph(folder / kind, kind, 3)), 2)
    return folder


def trained_of(model: Options | str, store: Store) -> TrainedModel:
    """A NodeFormer with some options, or a baseline."""
    return trained_baseline(model, store) if isinstance(model, str) else trained_model(model, store)


def smoothed_with_states(
    run: Path, trained: TrainedModel, store: Store, strengths: Strengths, world: World
) -> Smoothed:
    """An evaluation that is smoothed and leaves its states in a folder."""
    config, task = trained.config, Task(store.task, store.num_classes)
    full = open_evaluation_graph(config, store, Hops.open(store, config.relation.order), world, dtype=torch.float64)
    nodes = torch.arange(full.nodes.start, full.nodes.stop)
    labels, split = store.labels(nodes), store.split(nodes)
    with writing_states(run, world, full.nodes, store.num_nodes) as states:
        listeners = states.listeners(full, trained.model)
        evaluation = full.evaluate(trained.model, trained.evaluation_seed, None, *listeners)
        keep = SmoothingWriter(states.write, full.propagation())
        raw = score(world, task, "accuracy", evaluation.logits, labels, split)
        known = Rows(task, evaluation.logits, labels, split == TRAIN)
        smoothed = smooth(full, world, known, split, raw, strengths, keep)
        assert smoothed is not None
        states.write_summaries(evaluation.summaries, trained, keep.finish(smoothed))
    return smoothed


def every_case(world: World, graphs: Path, runs: Path) -> list[list[list[float]]]:
    """The smoothed logits of this rank's nodes."""
    found = []
    for index, (kind, model, strengths) in enumerate(CASES):
        store, run = Store.open(graphs / kind), runs / str(index)
        run.mkdir(parents=True, exist_ok=True)
        smoothed = smoothed_with_states(run, trained_of(model, store), store, strengths, world)
        found.append(smoothed.logits.tolist())
    return found


def test_a_node_of_the_graph_with_its_own_edges_gets_its_smoothed_answer(graphs: Path, tmp_path: Path) -> None:
    by_rank = run_world(2, every_case, graphs, tmp_path)
    everyone = [*range(60)]
    for index, (kind, model, _) in enumerate(CASES):
        store = Store.open(graphs / kind)
        trained = trained_of(model, store)
        file = own_rows(store, tmp_path / "new.parquet", everyone)
        predictor = StatesPredictor(trained, States.open(tmp_path / str(index), trained), store)
        wanted = torch.tensor([row for answer in by_rank for row in answer[index]], dtype=torch.float64)
        assert difference(predictor.logits(NewNodes.read(file, store)), wanted) < 1e-10, CASES[index]


def test_a_new_node_hears_what_its_neighbors_had_before_the_last_step(graphs: Path, tmp_path: Path) -> None:
    """One neighbor that only hears itself and was trained on: its own label, and the new node's own answer."""
    store = Store.open(graphs / "undirected")
    trained = trained_model(PAPER, store)
    strengths = Strengths(smoothing=0.5)
    smoothed_with_states(tmp_path, trained, store, strengths, World())
    opened = States.open(tmp_path, trained)
    labeled = (store.split(torch.arange(60)) == TRAIN) & (store.labels(torch.arange(60)) >= 0)
    neighbor = int(labeled.nonzero()[0])
    names = [list(store.original_ids(torch.tensor([neighbor])))]
    file = write_new_nodes(tmp_path / "new.parquet", store, [5], store.take(torch.tensor([3])), names)
    new = NewNodes.read(file, store)
    found = StatesPredictor(trained, opened, store).logits(new).exp()
    raw = StatesPredictor(trained, replace(opened, smoothing=None), store).logits(new).softmax(1)
    assert opened.smoothing is not None
    assert opened.smoothing.answers is not None
    before, root = opened.smoothing.answers.rows()[neighbor], opened.smoothing.roots.rows()[neighbor]
    wanted = 0.5 * raw + 0.5 * (raw / 2 + before * root / 2**0.5)  # two edges in, the loop's source has two out
    assert difference(found, wanted) < 1e-10


def test_states_of_raw_answers_give_raw_answers(graphs: Path, tmp_path: Path) -> None:
    store = Store.open(graphs / "undirected")
    trained = trained_model(PAPER, store)
    smoothed_with_states(tmp_path, trained, store, Strengths(), World())
    assert States.open(tmp_path, trained).smoothing is None
    assert not list((tmp_path / "states").glob("smoothing-*"))


def test_new_nodes_that_are_together_take_part_in_each_others_answers(graphs: Path, tmp_path: Path) -> None:
    store = Store.open(graphs / "undirected")
    trained = trained_model(PAPER, store)
    smoothed_with_states(tmp_path, trained, store, Strengths(smoothing=0.5), World())
    opened = States.open(tmp_path, trained)
    features = store.take(torch.tensor([3, 8]))
    new = NewNodes.read(
        write_new_nodes(tmp_path / "new.parquet", store, [5, 6], features, [[6], [5]]), store, together=True
    )
    found = StatesPredictor(trained, opened, store).logits(new).exp()
    raw = StatesPredictor(trained, replace(opened, smoothing=None), store).logits(new).softmax(1)
    assert difference(found, 0.5 * raw + 0.5 * raw.mean(0)) < 1e-10  # an edge and a loop, each of weight 1/2
