"""Steps of several batches: the mean of their gradients, counted as one step, never cut in two."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nfdist import settings
from nfdist.config import RelationConfig
from nfdist.errors import ConfigError
from nfdist.model.build import build_model
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.runs.run import Run
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.training.batches import Assembler, Batch, Buffer
from nfdist.training.optimization import make_optimizer
from nfdist.training.sampling import Pools, Position
from nfdist.training.step import Counts, Stepper
from nfdist.world import World
from tests.comparing import difference
from tests.training.building import build_partition, config_of, run_training
from tests.training.launching import training_of


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


@pytest.mark.parametrize("clip_norm", [0.0, 1e-3])
def test_a_step_is_the_mean_of_the_gradients_of_its_batches(graph: Path, tmp_path: Path, clip_norm: float) -> None:
    """Three batches of uneven sizes, each by itself, in float64; each has a noise and a dropout of its own."""
    config = config_of(graph, tmp_path, f"train.clip_norm={clip_norm}", "relation.scope=rank", "train.accumulate=3")
    store = Store.open(graph)
    task = Task(store.task, store.num_classes)
    split = store.split(torch.arange(store.num_nodes))
    assembler = Assembler(store, Hops.open(store, 2), RelationConfig(order=2), split, World(), torch.float64)
    batches = [
        assembler.assemble([torch.arange(start, stop)], Position(number))
        for number, (start, stop) in enumerate([(0, 60), (60, 71), (71, 200)], start=1)
    ]

    def model() -> Any:
        return build_model(config, store.num_features, store.num_classes, 0).to(torch.float64)

    separate, losses = model().train(), []
    wanted: dict[str, Tensor] = {}
    for batch in batches:
        separate.zero_grad()
        scale = separate.auxiliary_scale(config.train.edge_loss, batch.num_edges)
        draw = Draw(0, batch.number, batch.node_ids)
        output = separate(batch.features, batch.relations, draw, auxiliary_scale=scale)
        supervised = task.loss(output.logits[batch.labeled], batch.labels).total / len(batch.labels)
        loss = supervised + output.auxiliary_loss
        loss.backward()
        losses.append(float(loss.detach()))
        for name, parameter in separate.named_parameters():
            wanted[name] = wanted.get(name, torch.zeros_like(parameter)) + parameter.grad / len(batches)
    norm = float(torch.stack([gradient.square().sum() for gradient in wanted.values()]).sum().sqrt())
    clipped = min(1.0, clip_norm / (norm + 1e-6)) if clip_norm else 1.0  # torch adds as much
    accumulated = model()
    optimizer = make_optimizer(accumulated, config.train)
    stepper = Stepper(accumulated, accumulated, optimizer, task, config.train, World(), seed=0)
    for _ in range(2):  # what one step leaves is nothing to the next
        accumulated.load_state_dict(model().state_dict())
        for place, batch in enumerate(batches):
            counts = Counts(len(batch.labels), batch.num_edges, batch.num_nodes)
            stepper.add(batch, batch.number, counts, last=place == 2)
        moved = stepper.move(0, rate=1e-3)
        assert moved.total == pytest.approx(sum(losses) / len(losses), abs=1e-10)
        assert moved.gradient_norm == pytest.approx(norm, rel=1e-10)
        for name, parameter in accumulated.named_parameters():
            assert difference(parameter.grad, clipped * wanted[name]) < 1e-10, name


def test_a_step_in_the_records_is_a_step_of_the_optimizer(graph: Path, tmp_path: Path) -> None:
    """245 nodes in batches of 30 are 9 an epoch: 4, 4 and 1 of them make a step."""
    options = ["train.batch_nodes=30", "train.accumulate=4", "train.checkpoint_every=2", "train.keep=100"]
    warm = ["train.warmup_steps=3", "train.schedule=milestones", "train.milestones=[5]", "train.evaluate_every=1"]
    run_training(World(), settings.dump(config_of(graph, tmp_path / "run", *options, *warm)))
    run, position, sizes = Run.open(tmp_path / "run"), Position(), []
    pools = Pools([torch.arange(245)], None, 1, 30, seed=0)
    for _ in range(18):
        (nodes,), position = pools.take(position)
        sizes.append(len(nodes))
    steps = [line for line in run.metrics() if line["kind"] == "step"]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert [line["epoch"] for line in steps] == [0, 0, 0, 1, 1, 1]
    taken = [sum(sizes[start:stop]) for start, stop in ((0, 4), (4, 8), (8, 9), (9, 13), (13, 17), (17, 18))]
    assert [line["nodes"] for line in steps] == taken
    assert [line["learning_rate"] for line in steps] == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.005])
    assert [line["step"] for line in run.metrics() if line["kind"] == "evaluation"] == [3, 6]
    assert set(run.checkpoint_paths(0)) >= {2, 4, 6}
    last = run.last_checkpoint([0])
    assert last is not None
    assert (last.state["step"], last.state["batch"], last.state["epoch"]) == (6, 18, 2)


@pytest.mark.parametrize("at", [6, 9])
def test_a_signal_within_a_step_stops_at_its_end(
    graph: Path, tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the second batch of three is made, or the last of an epoch; the rest makes the same run."""
    options = ["train.batch_nodes=30", "train.accumulate=4", "train.ema=0.9", "train.evaluate_every=1"]
    texts = {name: settings.dump(config_of(graph, tmp_path / name, *options)) for name in ("whole", "stopped")}
    run_training(World(), texts["whole"])
    made, assemble = [], Assembler.assemble

    def interrupted(self: Assembler, node_ids: list[Tensor], after: Position, buffer: Buffer | None = None) -> Batch:
        made.append(after)
        if len(made) == at:
            signal.raise_signal(signal.SIGTERM)
        return assemble(self, node_ids, after, buffer)

    with monkeypatch.context() as patched:
        patched.setattr(Assembler, "assemble", interrupted)
        assert run_training(World(), texts["stopped"]) is None
    saved = Run.open(tmp_path / "stopped").last_checkpoint([0])
    assert saved is not None
    # The ninth is a step of its own, not begun when the signal came.
    assert (saved.state["step"], saved.state["batch"]) == (2, 8)
    assert run_training(World(), texts["stopped"], resume=True) is not None
    assert training_of(tmp_path / "stopped") == training_of(tmp_path / "whole")


@pytest.mark.parametrize(("accumulate", "told"), [(3, True), (2, False)])
def test_more_batches_than_an_epoch_has_are_told_of(
    graph: Path, tmp_path: Path, accumulate: int, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["train.batch_nodes=125", f"train.accumulate={accumulate}", "train.epochs=1"]
    run_training(World(), settings.dump(config_of(graph, tmp_path / "run", *options)))
    said = f"train.accumulate = {accumulate}, and an epoch has 2 batches: a step is of 2"
    assert (said in capsys.readouterr().err) == told


def test_the_whole_graph_is_one_batch() -> None:
    with pytest.raises(ConfigError, match=r"train\.accumulate = 2 needs several batches an epoch, .* set train\.batch"):
        settings.parse({"train": {"accumulate": 2}})
    with pytest.raises(ConfigError, match=r"train\.accumulate must be at least 1, got 0"):
        settings.parse({"train": {"accumulate": 0}})
