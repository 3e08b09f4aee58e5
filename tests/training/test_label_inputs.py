"""Labels as inputs: no node is both given and trained on, no prediction follows its own label, all answers agree."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

import nfdist
from nfdist import settings
from nfdist.config import RelationConfig
from nfdist.evaluation.full import FullGraph
from nfdist.graph.relation import build_relations
from nfdist.graph.split import has_label, split_of
from nfdist.model.loading import load_model
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw, Output
from nfdist.model.task import Task
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN, SourceGraph
from nfdist.store.store import Store
from nfdist.training.batches import Assembler, Batch
from nfdist.training.label_inputs import give_labels
from nfdist.training.sampling import Position
from nfdist.training.step import Counts, Stepper
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.new_rows import own_rows
from tests.store.building import build_graph, write
from tests.training.building import config_of, run_training

NODES, SHARE = 90, 0.4
KINDS = {"single": 0, "multi": 3}  # questions


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind, questions in KINDS.items():
        write(folder / kind, build_graph(NODES, 300, questions=questions), 2)
    return folder


def batch_of(store: Store, node_ids: Tensor) -> Batch:
    split = store.split(torch.arange(store.num_nodes))
    assembler = Assembler(store, Hops.open(store, 1), RelationConfig(order=1), split, World(), torch.float64)
    return assembler.assemble([node_ids], Position(1))


def numbered(batch: Batch, number: int) -> Batch:
    """The batch as one that so many came before."""
    return replace(batch, after=replace(batch.after, batch=number + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_gives_some_training_labels_and_is_trained_on_the_others(kind: str, graphs: Path) -> None:
    store = Store.open(graphs / kind)
    everyone = torch.arange(NODES)
    labels, trained = store.labels(everyone), store.split(everyone) == TRAIN
    whole, seen, counts = batch_of(store, everyone), [], []
    for step in range(40):
        batch = give_labels(numbered(whole, step), SHARE, 5)
        assert batch.given is not None
        given, lost = has_label(batch.given), torch.zeros(NODES, dtype=torch.bool)
        lost[batch.labeled] = True
        assert not (given & lost).any()
        assert torch.equal(given | lost, trained & has_label(labels))
        assert torch.equal(batch.given[given], labels[given])
        assert torch.equal(batch.labels, labels[lost])
        some = everyone[everyone % 3 == step % 3].flip(0)  # a rank's nodes, in any order
        given_to_some = give_labels(numbered(batch_of(store, some), step), SHARE, 5).given
        assert given_to_some is not None
        assert torch.equal(given_to_some, batch.given[some])
        seen.append(given)
        counts.append(int(given.sum()))
    assert len({tuple(given.tolist()) for given in seen}) == 40
    assert abs(sum(counts) / (40 * int((trained & has_label(labels)).sum())) - SHARE) < 0.05
    assert give_labels(whole, 0.0, 5) is whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_prediction_does_not_follow_its_own_label(kind: str, graphs: Path) -> None:
    store = Store.open(graphs / kind)
    whole = batch_of(store, torch.arange(NODES))
    altered = replace(whole, labels=whole.labels.clone())
    changed = int(whole.labeled[4])
    altered.labels[4] = (altered.labels[4] + 1) % 2
    found = {"trained on": 0, "given": 0}
    for step in range(8):
        (batch, logits), (other, others) = (step_logits(one, step, store) for one in (whole, altered))
        assert torch.equal(batch.labeled, other.labeled)
        if changed in batch.labeled.tolist():
            assert torch.equal(logits, others)
            found["trained on"] += 1
        else:  # its label is an input, of which all others may hear
            assert not torch.equal(logits[batch.labeled], others[batch.labeled])
            found["given"] += 1
    assert min(found.values()) > 0


def step_logits(whole: Batch, step: int, store: Store) -> tuple[Batch, Tensor]:
    """The batch of a step, and the logits that its loss is computed from."""
    options = ["relation.order=1", "model.graph_layers=1", f"train.label_inputs={SHARE}"]
    config = config_of(store.directory, store.directory / "run", *options)
    model = NodeFormer.build(config, store.num_features, store.num_classes, seed=2).double()
    seen: list[Output] = []
    model.register_forward_hook(lambda module, inputs, output: seen.append(output))
    task, optimizer = Task(store.task, store.num_classes), torch.optim.Adam(model.parameters())
    batch = give_labels(numbered(whole, step), SHARE, 2)
    counts = Counts(task.count(batch.labels), batch.num_edges, batch.num_nodes)
    stepper = Stepper(model, model, optimizer, task, config.train, World(), 2)
    stepper.add(batch, step, counts, last=True)
    stepper.move(step, 0.01)
    return batch, seen[0].logits.detach()


@pytest.mark.parametrize("kind", KINDS)
def test_training_evaluation_and_prediction_give_all_training_labels_of_the_seed(
    kind: str, graphs: Path, tmp_path: Path
) -> None:
    run, store = tmp_path / "run", Store.open(graphs / kind)
    options = ["train.label_inputs=0.5", "data.split=random:0.5/0.25/0.25", "train.seeds=[3]", "model.graph_layers=1"]
    config = config_of(graphs / kind, run, *options, "train.batch_nodes=0", "train.evaluate_every=1")
    result = run_training(World(), settings.dump(config))
    assert result is not None
    facts = nfdist.evaluate(run, probabilities=True)
    assert {name: facts[name] for name in ("train", "valid", "test")}.items() <= result["best"].items()
    assert facts["smoothed"] is not None
    everyone = torch.arange(NODES)
    rows = pq.read_table(own_rows(store, tmp_path / "new.parquet", everyone.tolist()))
    answers = nfdist.Predictor(run).predict(rows, probabilities=True)
    written = pq.read_table(run / "predictions.parquet")
    assert answers["id"] == written["id"]
    columns = [name for name in answers.column_names if name.startswith("probability_")]
    assert len(columns) == store.num_classes
    for name in columns:
        assert np.allclose(answers[name], written[name], rtol=0, atol=1e-6)
    trained, split = load_model(run), split_of(store, config.data, 3)
    assert not torch.equal(split, store.split(everyone))
    labels = store.labels(everyone)
    labels[split != TRAIN] = -1
    relations = build_relations(store.induced(everyone), config.relation.order, dtype=torch.float64)
    with torch.no_grad():
        draw = Draw(trained.seed, trained.step, everyone, labels)
        wanted = trained.model(store.take(everyone).double(), relations, draw).logits
    full = FullGraph(store, Hops.open(store, 2), config.relation, World(), dtype=torch.float64)
    assert difference(full.evaluate(trained.model, trained.evaluation_seed, split=split).logits, wanted) < 1e-10


def noisy_graph(num_nodes: int = 300, classes: int = 6) -> SourceGraph:
    """Features that say nothing, and edges among nodes of one class alone."""
    stream = np.random.default_rng(0)
    labels = stream.integers(0, classes, num_nodes)
    ends = stream.integers(0, num_nodes, (2, 9 * num_nodes))
    ends = ends[:, (labels[ends[0]] == labels[ends[1]]) & (ends[0] != ends[1])]
    return SourceGraph(
        name="noise",
        original_ids=np.arange(num_nodes),
        sources=np.append(*ends),
        targets=np.append(*ends[::-1]),
        features=stream.standard_normal((num_nodes, 2)).astype("float32"),
        labels=labels,
        split=stream.choice([1, 1, 2, 3], num_nodes).astype(np.int8),
        task="single",
        num_classes=classes,
    )


def test_it_learns_from_the_labels_of_neighbors_where_features_say_nothing(tmp_path: Path) -> None:
    write(tmp_path / "graph", noisy_graph(), 1)
    scores = []
    for share in (0.0, 0.5):
        options = ["train.batch_nodes=0", "train.epochs=40", "train.evaluate_every=40", "train.precision=float32"]
        options += ["model.layers=1", "model.channels=32", "model.graph_layers=2", "model.branch_share=0.9"]
        options += ["model.dropout=0", "relation.order=1", "train.learning_rate=0.03"]
        options += ["evaluate.smoothing=none", f"train.label_inputs={share}"]
        result = run_training(World(), settings.dump(config_of(tmp_path / "graph", tmp_path / str(share), *options)))
        assert result is not None
        scores.append(result["final"]["test"])
    without, given = scores
    assert given > without + 0.2
