"""Baselines through the real trainer: they learn, go on to the bit, and add up over ranks."""

from pathlib import Path

import pytest
import torch

from nfdist import settings
from nfdist.graph.relation import Relation
from nfdist.model.build import MODELS, build_model
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.sampling import Pools, Position
from nfdist.world import World
from tests.comparing import difference
from tests.needs import MODELS_LEFT_OUT, needs_dgl
from tests.training.building import (
    build_partition,
    config_of,
    flat_weights,
    refused,
    resumed,
    run_training,
    several,
    step_losses,
)
from tests.worlds import run_world

NEEDED = ["relation.order=1", "relation.scope=rank", "train.edge_loss=0"]
WALKS = ["train.sampling=walks", "train.walk_length=3"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


def named(name: str) -> list[str]:
    return [f"model.name={name}", *NEEDED, *(["model.dropedge.edge_dropout=0.3"] if name == "dropedge" else [])]


@pytest.mark.parametrize(
    "batches", [["train.batch_nodes=0"], ["train.batch_nodes=120", *WALKS]], ids=["whole", "walks"]
)
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"nodeformer"} - MODELS_LEFT_OUT))
def test_a_baseline_learns_and_is_scored(name: str, batches: list[str], graph: Path, tmp_path: Path) -> None:
    options = ["train.epochs=20", "train.evaluate_every=5", "train.precision=float32", "model.dropout=0.1"]
    text = settings.dump(config_of(graph, tmp_path / "run", *named(name), *batches, *options))
    result = run_training(World(), text)
    assert result is not None
    losses = torch.tensor(step_losses(tmp_path / "run"))
    quarter = len(losses) // 4
    assert losses[-quarter:].mean() < losses[:quarter].mean()
    assert 0 <= result["best"]["test"] <= 1
    assert result["final"]["epoch"] == 20


def keeping(name: str, size: int, *words: str) -> list[str]:
    """Ten steps, all of which can be gone back to."""
    batches = ["train.precision=float32", f"train.batch_nodes={-(-245 // 5 // size)}", "train.evaluate_every=1"]
    return [*named(name), *batches, "train.checkpoint_every=1", "train.keep=20", *words]


def assert_bit_equal(whole: Path, cut: Path) -> None:
    assert len(step_losses(whole)) == 10
    assert step_losses(cut) == step_losses(whole)
    assert torch.equal(flat_weights(cut), flat_weights(whole))


@pytest.mark.parametrize(
    ("name", "words"),
    [("gcn", []), pytest.param("gat", WALKS, marks=needs_dgl), ("dropedge", []), ("vgcn", ["train.edge_loss=0.5"])],
)
def test_a_resumed_run_is_bit_equal(name: str, words: list[str], graph: Path, tmp_path: Path) -> None:
    """Ten steps at once, and seven, an end within an epoch, and the rest; dropout is on."""
    runs = [tmp_path / "whole", tmp_path / "cut"]
    texts = [settings.dump(config_of(graph, run, *keeping(name, 1, *words))) for run in runs]
    resumed(World(), texts[0], texts[1], str(runs[0]), 7)
    assert_bit_equal(*runs)


TOGETHER = {
    "whole": keeping("dropedge", 2, *WALKS),
    "cut": keeping("dropedge", 2, *WALKS),
    "averaged": [*named("gcn"), "train.batch_nodes=41"],
    "by itself": [*named("mlp"), "train.batch_nodes=0", "relation.scope=world"],
}
CROSSING = {
    "divided": [*named("gcn"), "train.batch_nodes=0", "relation.scope=world"],
    "heard": [*named("sgc"), "relation.scope=world"],
}


def two_ranks(world: World, texts: dict[str, str]) -> list[str]:
    """Train what two ranks can, and say what is refused of the rest."""
    resumed(world, texts["whole"], texts["cut"], settings.parse(texts["whole"]).run.dir, 7)
    several(world, [texts["averaged"], texts["by itself"]])
    return refused(world, [texts[name] for name in CROSSING])


def test_two_ranks_go_on_to_the_bit_add_up_and_refuse_what_would_cross(graph: Path, tmp_path: Path) -> None:
    cases = {**TOGETHER, **CROSSING}
    texts = {name: settings.dump(config_of(graph, tmp_path / name, *words)) for name, words in cases.items()}
    for said in run_world(2, two_ranks, texts):
        assert "model.name = gcn sees only nodes of its own rank, so 2 ranks need train.batch_nodes" in said[0]
        assert 'relation.scope=rank, got 60 and "world"' in said[1]
    assert not any((tmp_path / name).exists() for name in CROSSING)
    assert_bit_equal(tmp_path / "whole", tmp_path / "cut")
    assert difference(flat_weights(tmp_path / "averaged"), averaged(graph)) < 1e-8
    assert len(step_losses(tmp_path / "by itself")) == 2


def averaged(graph: Path) -> torch.Tensor:
    """The weights of one process that adds up the losses of both ranks' batches."""
    config = config_of(graph, graph, *TOGETHER["averaged"])
    store = Store.open(graph)
    task, hops = Task(store.task, store.num_classes), Hops.open(store, 1)
    model = build_model(config, store.num_features, task.num_classes).to(torch.float64)
    rows = store.take((store.split(torch.arange(store.num_nodes)) == TRAIN).nonzero()[:, 0]).double()
    model.input.set_statistics(rows.mean(0), rows.std(0, correction=0))
    optimizer = torch.optim.Adam(model.parameters(), lr=config.train.learning_rate)
    pools, position = Pools([torch.arange(store.num_nodes)], None, 2, 41, seed=0), Position()
    while position.epoch < config.train.epochs:
        batches, after = pools.take(position)
        labels = sum(int((store.split(ids) == TRAIN).sum()) for ids in batches)
        optimizer.zero_grad()
        for ids in batches:
            relation = Relation.build(hops.induced(1, ids), dtype=torch.float64)
            logits = model(store.take(ids).double(), [relation], Draw(0, position.batch, ids)).logits
            chosen = store.split(ids) == TRAIN
            (task.loss(logits[chosen], store.labels(ids)[chosen]).total / labels).backward()
        optimizer.step()
        position = after
    return torch.cat([tensor.flatten() for _, tensor in sorted(model.state_dict().items())])
