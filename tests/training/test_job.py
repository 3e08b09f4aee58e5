"""Runs from start to end in one process: what they leave behind, how they go on, and what they refuse."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nfdist import files, settings
from nfdist.errors import CheckpointError, ConfigError, NfdistError
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.runs import ownership
from nfdist.runs.run import Run
from nfdist.world import World
from tests.comparing import difference
from tests.training.building import (
    build_partition,
    config_of,
    flat_weights,
    last_weights,
    refused,
    run_training,
    step_losses,
)
from tests.worlds import run_world


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


def trained(graph: Path, run: Path, *overrides: str, resume: bool = False) -> dict[str, Any]:
    text = settings.dump(config_of(graph, run, "train.precision=float32", *overrides))
    result = run_training(World(), text, resume)
    assert result is not None
    return result


def test_a_run_leaves_what_others_rely_on(graph: Path, tmp_path: Path) -> None:
    result = trained(graph, tmp_path / "run", "train.evaluate_every=1", "train.epochs=3")
    run = Run.open(tmp_path / "run")
    assert run.result() == json.loads(json.dumps(result))
    assert result["metric"] == "accuracy"
    assert set(result["best"]) >= {"epoch", "train", "valid", "test"} <= set(result["final"])
    assert result["final"]["epoch"] == 3
    assert result["world_size"] == 1
    assert set(result["seconds"]) == {"train", "wait", "evaluate", "checkpoint"}
    lines = run.metrics()
    assert [line["kind"] for line in lines] == (["step"] * 5 + ["evaluation"]) * 3
    assert {"seed", "epoch", "step", "nodes", "edges", "loss", "supervised_loss", "edge_loss"} <= set(lines[0])
    assert {"seconds", "nodes_per_second", "peak_memory_bytes", "sent_bytes"} <= set(lines[0])
    assert [line["step"] for line in lines if line["kind"] == "step"] == list(range(1, 16))
    assert sum(line["nodes"] for line in lines if line["kind"] == "step" and line["epoch"] == 1) == 245
    assert {"train", "valid", "test", "metric"} <= set(lines[5])
    best = run.best_checkpoint()
    assert best is not None
    assert best.state["step"] == result["best"]["step"]
    assert best.state["epoch"] == result["best"]["epoch"]


def test_training_learns(graph: Path, tmp_path: Path) -> None:
    result = trained(graph, tmp_path / "run", "train.evaluate_every=5", "train.epochs=30", "model.dropout=0")
    assert result["final"]["train"] > 0.9
    losses = step_losses(tmp_path / "run")
    assert losses[-1] < 0.5 * losses[0]


def test_several_seeds_give_mean_and_deviation(graph: Path, tmp_path: Path) -> None:
    options = ["train.evaluate_every=1", "data.split=random:0.5/0.25/0.25"]
    result = trained(graph, tmp_path / "three", *options, "train.seeds=[3,1,2]")
    tests = [seed["best"]["test"] for seed in result["per_seed"]]
    assert [seed["seed"] for seed in result["per_seed"]] == [3, 1, 2]
    assert result["test_mean"] == pytest.approx(np.mean(tests))
    assert result["test_std"] == pytest.approx(np.std(tests, ddof=1))
    assert len({seed["final"]["train"] for seed in result["per_seed"]}) > 1
    alone = trained(graph, tmp_path / "one", *options, "train.seeds=[1]")
    assert alone["per_seed"][0]["best"] == result["per_seed"][1]["best"]


def test_seeds_without_validation_nodes_have_a_result(graph: Path, tmp_path: Path) -> None:
    options = ["train.evaluate_every=1", "data.split=random:0.8/0/0.2", "train.seeds=[4,3]", "train.epochs=2"]
    result = trained(graph, tmp_path / "run", *options)
    assert result is not None
    assert [result["best"][key] for key in ("seed", "epoch", "valid")] == [4, 2, None]
    best = Run.open(tmp_path / "run").best_checkpoint()
    assert best is not None
    assert [best.state[key] for key in ("seed", "step")] == [result["best"][key] for key in ("seed", "step")]
    again = trained(graph, tmp_path / "run", *options, resume=True)
    assert again is not None
    assert again["best"] == result["best"]


def test_a_crash_before_the_mark_of_the_best_is_made_up_for(graph: Path, tmp_path: Path) -> None:
    options = ["train.evaluate_every=1", "train.seeds=[4,3]", "train.epochs=2"]
    trained(graph, tmp_path / "run", *options)
    run = Run.open(tmp_path / "run")
    marks = {path: path.read_bytes() for path in run.path.glob("checkpoints/*/best.json")}
    (run.path / "checkpoints" / "seed-3" / "best.json").unlink()
    (run.path / "result.json").unlink()
    trained(graph, tmp_path / "run", *options, resume=True)
    assert {path: path.read_bytes() for path in run.path.glob("checkpoints/*/best.json")} == marks


@pytest.mark.parametrize(
    ("number", "said"), [(errno.EROFS, "Read-only file system"), (errno.ENOSPC, "the disk that holds .* is full")]
)
def test_a_disk_that_takes_nothing_is_one_line_when_a_run_goes_on(
    number: int, said: str, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(graph, tmp_path / "run", "train.epochs=1")

    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ownership, "_open_locked" if number == errno.EROFS else "_write", refuse)
    with pytest.raises(CheckpointError, match=said):
        trained(graph, tmp_path / "run", "train.epochs=2", resume=True)
    monkeypatch.undo()
    monkeypatch.setattr(files, "replace_bytes", refuse)
    with pytest.raises(CheckpointError, match=said):
        trained(graph, tmp_path / "run", "train.epochs=2", resume=True)


def test_several_seeds_go_on_where_they_ended(graph: Path, tmp_path: Path) -> None:
    options = ["train.evaluate_every=1", "train.seeds=[0,1]"]
    whole = trained(graph, tmp_path / "whole", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "seed-1")
    again = trained(graph, tmp_path / "cut", *options, resume=True)
    for result in (whole, again):
        for seed in result["per_seed"]:
            seed.pop("seconds")
            seed.pop("rank_seconds")
            seed["smoothed"].pop("seconds")
    assert again["per_seed"] == whole["per_seed"]
    assert step_losses(tmp_path / "cut") == step_losses(tmp_path / "whole")


def test_early_stopping_ends_after_evaluations_without_gain_and_says_so(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "train.evaluate_every=1",
        "train.epochs=200",
        "train.early_stop=2",
        "train.least_epochs=0",
        "train.early_stop_on=score",
        "train.learning_rate=1e-9",
    ]
    result = trained(graph, tmp_path / "run", *options)
    assert result["best"]["epoch"] == 1
    assert result["final"]["epoch"] == 3
    assert "seed 0: ended after epoch 3 of 200, 2 evaluations without progress" in capsys.readouterr().err
    steps = len(step_losses(tmp_path / "run"))
    trained(graph, tmp_path / "run", *options, resume=True)
    assert len(step_losses(tmp_path / "run")) == steps


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(graph: Path, tmp_path: Path) -> None:
    options = ["train.checkpoint_every=1", "model.norm=none", "train.epochs=20"]
    with pytest.raises(NfdistError, match=r"(loss|gradient) is (nan|inf) at step \d+ \(batch [0-9a-f]{16}\)") as caught:
        trained(graph, tmp_path / "run", *options, "train.learning_rate=1e9")
    assert "train.learning_rate" in str(caught.value)
    assert all(torch.isfinite(tensor).all() for tensor in last_weights(tmp_path / "run").values())


def test_a_run_is_never_overwritten(graph: Path, tmp_path: Path) -> None:
    trained(graph, tmp_path / "run", "train.epochs=1")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="already holds a run: continue it with --resume"):
        trained(graph, tmp_path / "run", "train.epochs=1")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_run_goes_on_with_its_own_settings(graph: Path, tmp_path: Path) -> None:
    trained(graph, tmp_path / "run", "train.epochs=1")
    with pytest.raises(CheckpointError, match=r"was begun with model\.heads = 2, not 4"):
        trained(graph, tmp_path / "run", "model.heads=4", resume=True)
    trained(graph, tmp_path / "run", "train.epochs=2", resume=True)
    assert Run.open(tmp_path / "run").config.train.epochs == 2
    assert len(step_losses(tmp_path / "run")) == 10


def test_a_run_does_not_go_on_with_another_graph(graph: Path, tmp_path: Path) -> None:
    trained(graph, tmp_path / "run", "train.epochs=1")
    other = build_partition(tmp_path / "other", parts=2)
    with pytest.raises(CheckpointError, match="trained on another partition"):
        trained(other, tmp_path / "run", resume=True)


def test_weights_of_another_run_are_a_start(graph: Path, tmp_path: Path) -> None:
    trained(graph, tmp_path / "first", "train.epochs=2")
    options = ["train.epochs=1", "train.learning_rate=1e-30", f'train.init_from="{tmp_path / "first"}"']
    trained(graph, tmp_path / "second", *options)
    assert difference(flat_weights(tmp_path / "second"), flat_weights(tmp_path / "first")) < 1e-6
    with pytest.raises(
        CheckpointError,
        match=r"does not fit: its weights layers.0.gates are float32 \[2, 2\], .* make float32 \[2, 4\]",
    ):
        trained(graph, tmp_path / "third", *options, "model.heads=4")
    trained(graph, tmp_path / "double", *options, "train.precision=float64")
    assert difference(flat_weights(tmp_path / "double"), flat_weights(tmp_path / "first")) < 1e-6
    with pytest.raises(CheckpointError, match="is not a directory"):
        trained(graph, tmp_path / "fourth", f'train.init_from="{tmp_path / "nothing"}"')


def test_bf16_is_close_to_float32_but_not_equal(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nfdist.training.job.check_precision", lambda *_, **__: None)
    trained(graph, tmp_path / "float32", "train.epochs=1")
    text = settings.dump(config_of(graph, tmp_path / "bf16", "train.epochs=1", "train.precision=bf16"))
    run_training(World(), text)
    exact, rough = (torch.tensor(step_losses(tmp_path / name)) for name in ("float32", "bf16"))
    assert 0 < difference(rough, exact) < 0.05


@pytest.mark.parametrize("kind", ["sparse", "multi", "binary"])
def test_every_kind_of_features_and_labels_trains(kind: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    edges = generator.integers(0, 90, (2, 300))
    features = generator.standard_normal((90, 12)) * (generator.random((90, 12)) < 0.4)
    labels: Any = generator.integers(0, 2, 90)
    arrays: dict[str, Any] = {"feat": features.astype(np.float32)}
    if kind == "sparse":
        import scipy.sparse

        rows = scipy.sparse.csr_array(features.astype(np.float32))
        arrays = {"feat_indptr": rows.indptr, "feat_indices": rows.indices, "feat_data": rows.data}
        arrays["feat_shape"] = np.array(rows.shape)
    if kind == "multi":
        labels = generator.integers(-1, 2, (90, 3))
    np.savez(tmp_path / "graph.npz", edge_index=edges, label=labels, **arrays)
    options = {"task": "binary"} if kind == "binary" else {}
    given = {"parts": 2, "out": str(tmp_path / "partition"), "split": "random:0.5/0.25/0.25", **options}
    partition(Recipe.build(str(tmp_path / "graph.npz"), given))
    result = trained(tmp_path / "partition", tmp_path / "run", "train.evaluate_every=1", "train.batch_nodes=40")
    assert result["metric"] == "roc_auc"  # of two classes, too
    assert result["best"]["test"] is not None


def test_mistakes_are_one_line(graph: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.partition names no partition"):
        run_training(World(), settings.dump(settings.parse({}, [f'run.dir="{tmp_path / "run"}"'])))
    with pytest.raises(NfdistError, match="is not a directory: give one that `nfdist partition` wrote"):
        trained(tmp_path / "nowhere", tmp_path / "run")
    with pytest.raises(ConfigError, match="has no node to train on"):
        trained(graph, tmp_path / "run", "data.split=random:0/0.5/0.5")
    with pytest.raises(ConfigError, match="roc_auc needs yes-or-no labels"):
        trained(graph, tmp_path / "other", "evaluate.metric=roc_auc")


def different(world: World, first: str, second: str) -> list[str]:
    return refused(world, [first if world.rank == 0 else second])


def test_ranks_that_disagree_or_cannot_divide_the_graph_refuse_to_start(graph: Path, tmp_path: Path) -> None:
    def text(*overrides: str) -> str:
        return settings.dump(config_of(graph, tmp_path / "run", *overrides))

    for message in run_world(2, different, text(), text("train.learning_rate=0.5")):
        assert "rank 1 has train.learning_rate 0.5, rank 0 has 0.01" in message[0]
    other = build_partition(tmp_path / "other", parts=2)
    elsewhere = text(f'data.partition="{other}"')
    for message in run_world(2, different, text(), elsewhere):
        assert "rank 1 has a partition with the fingerprint" in message[0]
    whole = text("train.batch_nodes=0", "relation.scope=rank")
    parts = text("train.sampling=local", f'data.partition="{build_partition(tmp_path / "one", parts=1)}"')
    first, second = run_world(2, refused, [whole, parts])[0]
    assert "needs attention.scope=world and relation.scope=world" in first
    assert 'train.sampling = "local" needs a part for each of the 2 ranks' in second
