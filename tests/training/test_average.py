"""The moving average of the weights: its definition, and that scores and checkpoints are those of the average."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nfdist
from nfdist import settings
from nfdist.config import Config
from nfdist.model.build import build_model
from nfdist.model.loading import load_model
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.describe import describe_checkpoint
from nfdist.runs.run import Run
from nfdist.store.source_graph import TEST, TRAIN, VALID
from nfdist.store.store import Store
from nfdist.training.average import WeightAverage
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import forward
from tests.needs import needs_dgl
from tests.training.building import build_partition, config_of, last_weights, run_training

EMA = 0.6
EVERYTHING = ("train.evaluate_every=1", "train.checkpoint_every=1", "train.keep=100", "evaluate.smoothing=none")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


@pytest.fixture(scope="module")
def runs(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The same training of ten steps, with an average and without."""
    folder = tmp_path_factory.mktemp("runs")
    for name, ema in (("plain", 0.0), ("averaged", EMA)):
        run_training(World(), settings.dump(config_of(graph, folder / name, *EVERYTHING, f"train.ema={ema}")))
    return {name: Run.open(folder / name) for name in ("plain", "averaged")}


def averages(decay: float, weights: list[Tensor]) -> list[Tensor]:
    """The definition: after step t, counted from 0, so much of the average so far stays, and the rest is new."""
    found = [weights[0]]
    for step, new in enumerate(weights[1:]):
        kept = min(decay, (1 + step) / (10 + step))
        found.append(kept * found[-1] + (1 - kept) * new)
    return found


def flat(tensors: dict[str, Tensor], config: Config) -> Tensor:
    """The parameters in one vector, without constants."""
    names = [name for name, _ in build_model(config, *sizes(config)).named_parameters()]
    return torch.cat([tensors[name].detach().double().flatten() for name in names])


def sizes(config: Config) -> tuple[int, int]:
    store = Store.open(Path(config.data.partition))
    return store.num_features, store.num_classes


def saved(run: Run, group: str) -> list[dict[str, Tensor]]:
    return [Checkpoint.open(path).tensors(group) for path in run.checkpoint_paths(0).values()]


@pytest.mark.parametrize("decay", [0.05, 0.5, 0.999])
def test_it_is_the_recursive_definition(decay: float) -> None:
    generator = torch.Generator().manual_seed(5)
    model: Any = nn.Linear(3, 2).double()
    model.register_buffer("constant", torch.arange(3.0))
    average, weights = WeightAverage(model, decay), [model.weight.detach().clone()]
    for step in range(40):
        with torch.no_grad():
            model.weight.copy_(torch.randn(2, 3, generator=generator, dtype=torch.float64))
        weights.append(model.weight.detach().clone())
        average.update(model, step)
        wanted = averages(decay, weights)[-1]
        assert difference(average.model.state_dict()["weight"], wanted) < 1e-14
        assert torch.equal(model.weight, weights[-1])
    assert torch.equal(average.model.state_dict()["constant"], model.constant)


def test_training_goes_on_with_the_raw_weights_and_keeps_their_average(runs: dict[str, Run]) -> None:
    plain, averaged = runs["plain"], runs["averaged"]
    steps = [[line["loss"] for line in run.metrics() if line["kind"] == "step"] for run in (plain, averaged)]
    assert steps[0] == steps[1]
    assert len(steps[0]) == 10
    for mine, wanted in zip(saved(averaged, "raw_weights"), saved(plain, "weights"), strict=True):
        assert mine.keys() == wanted.keys()
        assert all(torch.equal(mine[name], wanted[name]) for name in mine)
    config = averaged.config
    first = build_model(config, *sizes(config), 0).to(torch.float64).state_dict()
    weights = [flat(tensors, config) for tensors in (first, *saved(plain, "weights"))]
    for mine, average in zip(saved(averaged, "weights"), averages(EMA, weights)[1:], strict=True):
        assert difference(flat(mine, config), average) < 1e-10
    for mine, wanted in zip(saved(averaged, "weights"), saved(plain, "weights"), strict=True):
        constants = {name for name in wanted if name in ("input.center", "input.scale")}
        assert len(constants) == 2
        assert all(torch.equal(mine[name], wanted[name]) for name in constants)
    assert not {"raw_weights.safetensors"} & {path.name for path in plain.path.rglob("*.safetensors")}


def test_scores_are_those_of_the_average(graph: Path, runs: dict[str, Run]) -> None:
    """Every line of the metrics, by the model's own forward pass over the whole graph."""
    store = Store.open(graph)
    everyone = torch.arange(store.num_nodes)
    labels, split = store.labels(everyone), store.split(everyone)
    lines = [line for line in runs["averaged"].metrics() if line["kind"] == "evaluation"]
    assert len(lines) == 2
    for line in lines:
        path = runs["averaged"].checkpoint_paths(0)[line["step"]]
        model: Any = load_model(runs["averaged"].path, path).model
        logits = forward(model, store, 0)
        losses = nn.functional.cross_entropy(logits, labels.long(), reduction="none")
        for name, part in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
            assert line[f"{name}_loss"] == pytest.approx(float(losses[split == part].mean()), abs=1e-10)
            assert line[name] == pytest.approx(float((logits.argmax(1) == labels)[split == part].double().mean()))
        raw = deepcopy(model)
        raw.load_state_dict(Checkpoint.open(path).tensors("raw_weights"))
        assert difference(forward(raw, store, 0), logits) > 1e-3  # or the test could not tell them apart


def test_evaluate_and_a_new_training_take_the_average(graph: Path, runs: dict[str, Run], tmp_path: Path) -> None:
    averaged = runs["averaged"]
    best, result = averaged.best_checkpoint(), averaged.result()
    assert best is not None
    assert result is not None
    told = describe_checkpoint(best)["files"]
    assert set(told) == {"weights", "optimizer", "raw_weights"}
    assert told["raw_weights"] == told["weights"]  # as many tensors and numbers
    scores = nfdist.evaluate(averaged.path, outputs=False)
    assert {name: scores[name] for name in ("train", "valid", "test")} == {
        name: result["best"][name] for name in ("train", "valid", "test")
    }
    # A step so small that it changes nothing, for the sake of a checkpoint.
    start = (f'train.init_from="{averaged.path}"', "train.epochs=1", "train.batch_nodes=0", "train.learning_rate=1e-30")
    run_training(World(), settings.dump(config_of(graph, tmp_path / "run", *start)))
    started = last_weights(tmp_path / "run")
    for name, tensor in best.tensors("weights").items():
        assert difference(started[name], tensor) < 1e-15, name


@pytest.mark.parametrize("name", ["mlp", "gcn", "idgl", pytest.param("gat", marks=needs_dgl)])
def test_any_model_has_one(name: str, graph: Path, tmp_path: Path) -> None:
    order = int(name != "mlp")
    options = ["train.edge_loss=0", f"relation.order={order}", "relation.scope=rank", "train.ema=0.9", "train.epochs=1"]
    run_training(World(), settings.dump(config_of(graph, tmp_path / "run", f"model.name={name}", *options)))
    checkpoint = Run.open(tmp_path / "run").last_checkpoint([0])
    assert checkpoint is not None
    average, raw = checkpoint.tensors("weights"), checkpoint.tensors("raw_weights")
    assert average.keys() == raw.keys()
    assert any(difference(average[key], raw[key]) > 1e-6 for key in raw if raw[key].is_floating_point())
    assert load_model(tmp_path / "run").model.state_dict().keys() == average.keys()
