"""nfdist evaluate scores a run, writes what it says it writes, and refuses in one line what does not fit together."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
import torch

import nfdist
from nfdist import settings
from nfdist.cli.main import main
from nfdist.rendezvous import Place
from nfdist.runs.ownership import owning
from nfdist.runs.run import Run
from nfdist.store.store import Store
from tests.accelerator.device import accelerator
from tests.cli.runs import copied, mistake, outcome, train_run
from tests.runs.building import flip
from tests.training.building import build_partition, build_two_classes, config_of
from tests.training.launching import finish, started, torchrun

KEYS = {"metric", "train", "valid", "test", "seconds", "peak_memory_bytes", "peak_private_bytes", "world_size", "parts"}
WRITTEN = ("predictions.parquet", "embeddings.parquet", "edges.parquet", "neighbors.parquet", "states")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_run(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return copied(trained, tmp_path)


def holdings(run: Path) -> list[str]:
    return sorted(entry.name for entry in run.iterdir())


def test_it_scores_and_writes_predictions_embeddings_and_states(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(holdings(run))
    facts = outcome(capsys, "evaluate", run)
    assert facts.keys() >= KEYS | {"per_class", "epoch", "step", "seed"}
    assert (facts["world_size"], facts["parts"], facts["nodes"]) == (1, 3, 245)
    assert set(holdings(run)) - before == {
        "predictions.parquet",
        "embeddings.parquet",
        "evaluation.json",
        "states",
        "smoothing",
    }
    table = pq.read_table(run / "predictions.parquet").to_pydict()
    pairs = zip(table["label"], table["true_label"], table["split"], strict=True)
    right = [label == truth for label, truth, split in pairs if split == "test" and truth is not None]
    assert facts["smoothed"]["test"] == pytest.approx(sum(right) / len(right))
    assert len(facts["per_class"]["test"]) == 47
    store = Store.open(Run.open(run).config.data.partition)
    embeddings = pq.read_table(run / "embeddings.parquet").to_pydict()
    assert embeddings["id"] == table["id"] == store.original_ids(torch.arange(245)).tolist()
    assert {len(row) for row in embeddings["embedding"]} == {8}


def test_raw_and_smoothed_scores_are_told_apart(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--json"]) == 0
    told = capsys.readouterr()
    assert re.findall(r"smooth: .*\((\d+)%\)", told.err)[-1] == "100"  # also where one kind of two was chosen
    *table, last = told.out.splitlines()
    facts = json.loads(last)
    smoothed = facts["smoothed"]
    assert smoothed.keys() >= {"metric", "train", "valid", "test", "loss", "strengths", "seconds"}
    assert smoothed["accuracy"] == {name: smoothed[name] for name in ("train", "valid", "test")}  # the metric of it
    assert smoothed["valid"] > facts["valid"]  # or nothing would be smoothed
    for name in ("train", "valid", "test"):
        (raw,) = (line.split() for line in table if line.split()[:1] == [name])
        assert raw[1] == f"{facts[name]:.4f}"
        (other,) = (line.split() for line in table if line.split()[:2] == ["smoothed", name])
        assert other[2] == f"{smoothed[name]:.4f}"
    (kept,) = (run / "smoothing").iterdir()
    written, states = kept.stat().st_mtime_ns, run / "states"
    again = outcome(capsys, "evaluate", run)["smoothed"]
    assert {**again, "seconds": 0} == {**smoothed, "seconds": 0}
    assert kept.stat().st_mtime_ns == written  # applied, not chosen again
    assert list(states.glob("smoothing-*.npy"))
    assert set(pq.read_table(run / "predictions.parquet")["smoothed"].to_pylist()) == {True}


def test_without_smoothing_answers_are_raw(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = Run.open(run)
    opened.reconfigured(replace(opened.config, evaluate=replace(opened.config.evaluate, smoothing="none")))
    facts = outcome(capsys, "evaluate", run)
    assert "smoothed" not in facts
    table = pq.read_table(run / "predictions.parquet").to_pydict()
    assert set(table["smoothed"]) == {False}
    pairs = zip(table["label"], table["true_label"], table["split"], strict=True)
    right = [label == truth for label, truth, split in pairs if split == "test" and truth is not None]
    assert facts["test"] == pytest.approx(sum(right) / len(right))
    assert not (run / "smoothing").exists()
    assert not list((run / "states").glob("smoothing-*"))


def test_the_scores_are_those_of_the_training_with_directions_of_the_step_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train_run(tmp_path, "attention.eval_directions=step", "train.evaluate_every=1")
    result, scores = Run.open(run).result(), ("epoch", "train", "valid", "test")
    assert result is not None
    trained = [result["best"][name] for name in scores]
    assert [outcome(capsys, "evaluate", run)[name] for name in scores] == trained
    opened = Run.open(run)
    opened.reconfigured(replace(opened.config, attention=replace(opened.config.attention, eval_directions="seed")))
    assert [outcome(capsys, "evaluate", run)[name] for name in scores] != trained  # so they tell the directions apart


def test_two_writers_of_one_output_exclude_each_other(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with owning(run / "train.lock", "trained"), owning(run / "evaluate.lock", "evaluated"):
        assert f"{run} is being evaluated by process" in mistake(capsys, "evaluate", run)
        outcome(capsys, "evaluate", run, "--no-outputs", "--no-states")
        assert main(["inspect", str(run)]) == 0
        assert outcome(capsys, "evaluate", run, "--follow", "--until-done") == {"evaluated": 2}
    with owning(run / "train.lock", "trained"), owning(run / "follow.lock", "followed"):
        outcome(capsys, "evaluate", run, "--no-states")
        said = mistake(capsys, "evaluate", run, "--follow", "--until-done")
        assert f"{run} is being followed by process" in said
    assert not list(run.glob("*.lock"))


def test_it_only_scores_when_asked_to(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = holdings(run)
    scores = outcome(capsys, "evaluate", run, "--no-outputs", "--no-states", "--memory", "40GiB")
    assert holdings(run) == before
    assert scores["test"] == outcome(capsys, "evaluate", run, "--no-states")["test"]


def test_it_writes_learned_links(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = run / "chosen.txt"
    chosen.write_text("7\n 200\n\n")
    outcome(capsys, "evaluate", run, "--edges", "--top-neighbors", chosen, "--count", 4, "--top-k", 2)
    store = Store.open(Run.open(run).config.data.partition)
    assert pq.read_metadata(run / "edges.parquet").num_rows == store.num_edges
    table = pq.read_table(run / "neighbors.parquet").to_pydict()
    assert (table["id"], table["layer"]) == ([7, 7, 200, 200], [1, 2, 1, 2])
    assert {len(row) for row in table["neighbors"]} == {4}
    assert {len(row) for row in pq.read_table(run / "predictions.parquet").to_pydict()["top_labels"]} == {2}
    by_ids = pq.read_table(run / "neighbors.parquet")
    outcome(capsys, "evaluate", run, "--no-outputs", "--no-states", "--top-neighbors", "7,200", "--count", 4)
    assert pq.read_table(run / "neighbors.parquet") == by_ids


@pytest.mark.timeout(200)
def test_two_ranks_write_what_one_writes(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("evaluate", run, "--edges", "--top-neighbors", "7,200")
    alone = outcome(capsys, *words)
    tables = [pq.read_table(run / name).to_pydict() for name in WRITTEN[:-1]]
    facts = json.loads(finish(torchrun(*words, "--json"), tmp_path / "log").splitlines()[-1])
    assert facts["world_size"] == 2
    assert facts["test"] == pytest.approx(alone["test"], abs=1e-6)
    for name, before in zip(WRITTEN, tables, strict=False):
        table = pq.read_table(run / name).to_pydict()
        assert table.keys() == before.keys()
        for key in ("id", "source", "target", "split", "true_label", "layer"):
            assert table.get(key) == before.get(key), name


def test_mistakes_are_one_line_and_leave_nothing_behind(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = holdings(run)
    checkpoint = next(iter(Run.open(run).checkpoint_paths(0).values()))
    other = build_partition(tmp_path / "other", parts=2)
    capsys.readouterr()
    for words, pattern in (
        (["--partition", other], "trained on another graph than .*other holds: give the partition"),
        (["--partition", tmp_path / "none"], "none is not a directory"),
        (["--memory", "1MiB"], "a memory limit of 1MiB is too low.*give at least"),
        (["--memory", "much"], "--memory must be a size such as 4GiB"),
        (["--checkpoint", tmp_path], "holds no state.json"),
        (["--top-k", "0"], "--top-k must be at least 1, got 0"),
        (["--top-neighbors", "7,99999"], "no node is called 99999"),
        (["--top-neighbors", "7,x"], "ids of .* are integers"),
        (["--top-neighbors", "", "--count", "0"], "--count must be at least 1, got 0"),
        (["--follow", "--edges"], "--follow only scores"),
        (["--follow", "--poll-seconds", "0"], "--poll-seconds must be positive"),
    ):
        assert re.search(pattern, mistake(capsys, "evaluate", run, *words)), words
        assert holdings(run) == before
    assert "holds no run.json" in mistake(capsys, "evaluate", tmp_path)
    with patch("torch.cuda.is_available", lambda: False):
        told = mistake(capsys, "evaluate", run, "--device", "cuda")
    assert "--device cuda needs a GPU, and this host has none: give --device cpu" in told
    flip(checkpoint / "weights.safetensors", -1)
    assert "weights.safetensors was altered" in mistake(capsys, "evaluate", run, "--checkpoint", checkpoint)
    shutil.rmtree(run / "checkpoints")
    assert "holds no checkpoint yet" in mistake(capsys, "evaluate", run)
    assert holdings(run) == sorted(set(before) - {"checkpoints"})


@pytest.mark.accelerator
def test_the_device_is_that_of_the_option_and_a_follower_leaves_gpus_alone(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, asked = accelerator(), []

    def choose(wanted: str, place: Place, option: str) -> torch.device:
        asked.append(wanted)
        return torch.device("cpu") if wanted == "cpu" else device

    monkeypatch.setattr("nfdist.rendezvous.choose_device", choose)
    here = outcome(capsys, "evaluate", run, "--device", "cpu")
    there = outcome(capsys, "evaluate", run)
    assert main(["evaluate", str(run), "--no-states", "--no-outputs"]) == 0
    assert f" s on {device}; a process held" in capsys.readouterr().out
    outcome(capsys, "evaluate", run, "--follow", "--until-done")
    outcome(capsys, "evaluate", run, "--follow", "--until-done", "--device", "cuda")
    assert asked == ["cpu", "auto", "auto", "cpu", "cuda"]
    assert (here.pop("device"), there.pop("device")) == ("cpu", str(device))
    assert there["test"] == here["test"]
    assert there["smoothed"]["test"] == here["smoothed"]["test"]


def test_a_finished_run_is_followed_to_its_end(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "metrics.jsonl").read_bytes()
    assert outcome(capsys, "evaluate", run, "--follow", "--until-done") == {"evaluated": 2}
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["step"], line["epoch"]) for line in lines] == [
        ("evaluation", 8, 1),
        ("evaluation", 10, 2),
    ]
    best = max(lines, key=lambda line: line["valid"])
    assert Run.open(run).best_of(0) == {
        name: best[name] for name in ("step", "seed", "epoch", "train", "valid", "test")
    }
    assert outcome(capsys, "evaluate", run, "--no-outputs", "--no-states")["valid"] == best["valid"]
    assert outcome(capsys, "evaluate", run, "--follow", "--until-done") == {"evaluated": 0}
    assert (run / "metrics.jsonl").read_bytes() == before


@pytest.mark.timeout(200)
def test_following_ends_cleanly_on_a_signal_under_torchrun(run: Path, tmp_path: Path) -> None:
    (run / "result.json").unlink()
    lines = run / "evaluations.jsonl"
    with started(torchrun("evaluate", run, "--follow", "--until-done", "--poll-seconds", 600), tmp_path / "log") as job:
        job.wait_until(lambda: lines.exists() and lines.read_text().count("\n") == 2)
        for worker in job.workers().values():
            worker.terminate()
        assert job.wait() == 1  # torchrun's, of workers that ended with 143
    assert "exitcode  : 143" in job.output
    assert job.output.count("nfdist: SIGTERM: stopped") == 1
    assert "2 checkpoints evaluated" in job.output
    assert "nfdist/cli" not in job.output  # in no traceback but torchrun's own


def test_a_model_is_loaded_by_the_public_api(run: Path) -> None:
    loaded = nfdist.load_model(run)
    assert not loaded.model.training
    assert (loaded.seed, loaded.epoch) == (0, 2)
    assert loaded.config == nfdist.Run.open(run).config
    first = next(iter(Run.open(run).checkpoint_paths(0).values()))
    assert nfdist.load_model(str(run), str(first)).step == 8


def test_two_classes_are_scored_by_roc_auc_beside_their_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(build_two_classes(tmp_path), tmp_path / "run", "train.evaluate_every=1", "train.epochs=5")
    (tmp_path / "two.toml").write_text(settings.dump(config))
    trained = outcome(capsys, "train", tmp_path / "two.toml", "train.precision=float32")
    assert main(["evaluate", str(tmp_path / "run"), "--json", "--probabilities"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    facts = json.loads(last)
    assert (trained["metric"], facts["metric"]) == ("roc_auc", "roc_auc")
    assert table[1].split() == ["roc_auc", "loss", "accuracy"]
    shown = facts["test"], facts["loss"]["test"], facts["accuracy"]["test"]
    assert table[4].split() == ["test", *(f"{value:.4f}" for value in shown)]
    answers = pq.read_table(tmp_path / "run" / "predictions.parquet").to_pandas()
    scored = facts["smoothed"] if answers["smoothed"].all() else facts
    tested = answers[answers["split"] == "test"]
    yes, no = (tested[tested["true_label"] == label]["probability_1"].to_numpy() for label in (1, 0))
    assert scored["test"] == pytest.approx((yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2)


def test_a_split_of_one_class_has_no_roc_auc_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = build_two_classes(tmp_path, one_sided=True)
    config = config_of(graph, tmp_path / "run", "train.evaluate_every=1", "train.precision=float32")
    (tmp_path / "two.toml").write_text(settings.dump(config))
    assert main(["train", str(tmp_path / "two.toml")]) == 0
    said = "the valid nodes have no roc_auc, since their labels are all alike: "
    assert f"{said}the last epoch counts as the best" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    captured = capsys.readouterr()
    facts = json.loads(captured.out.splitlines()[-1])
    assert said in captured.err
    assert (facts["valid"], facts["epoch"]) == (None, 2)
    assert facts["accuracy"]["valid"] >= 0
    assert facts["test"] > 0
