"""Following a run: every whole checkpoint is evaluated once, on all ranks alike, and the best one is marked."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.evaluation.follow import FollowedRun, follow, read_evaluations
from nfdist.model.loading import TrainedModel
from nfdist.model.nodeformer import NodeFormer
from nfdist.runs.run import Run
from nfdist.world import World
from tests.worlds import run_world


def save(run: Run, step: int, keep: int = 9, seed: int = 0) -> None:
    weights = NodeFormer(5, 3, seed=step).state_dict()
    state = {"seed": seed, "epoch": step // 10, "step": step, "partition": "a graph"}
    run.save_checkpoint(seed, step, {"weights": weights}, state, keep)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "run", Config(), "")
    for step in (10, 20, 30):
        save(run, step)
    return run


def score(trained: TrainedModel) -> dict[str, Any]:
    valid = {10: 0.2, 20: 0.7}.get(trained.step, 0.5)
    return {"metric": "accuracy", "train": 0.9, "valid": valid, "test": None, "loss": {"valid": 1.5}, "per_class": {}}


def followed(run: Run, evaluate: Any = score, stopped: Any = lambda: False, until_done: bool = True) -> int:
    return follow(World(), FollowedRun(run), evaluate, stopped, until_done=until_done, poll_seconds=0.01)


def steps(run: Run) -> list[int]:
    return [line["step"] for line in read_evaluations(run)]


def test_every_checkpoint_is_evaluated_once_even_by_another_process(run: Run) -> None:
    run.write_result({})
    assert followed(run) == 3
    assert steps(run) == [10, 20, 30]
    assert run.best_of(0) == {"step": 20, "seed": 0, "epoch": 2, "train": 0.9, "valid": 0.7, "test": None}
    assert read_evaluations(run)[0]["valid_loss"] == 1.5
    assert followed(run) == 0
    shutil.rmtree(run.checkpoint_paths(0)[30])
    save(run, 30)  # a training that went back and came to other weights, or to the same
    save(run, 40, seed=1)
    assert followed(run) == 1
    assert steps(run) == [10, 20, 30, 40]


def test_checkpoints_that_appear_meanwhile_are_seen_and_the_best_is_kept(run: Run) -> None:
    def train_on(trained: TrainedModel) -> dict[str, Any]:
        if trained.step == 20:
            save(run, 40, keep=3)
        if trained.step == 30:
            save(run, 50, keep=1)  # 40 goes without an evaluation, 20 stays since it is the best
            run.write_result({})
        return score(trained)

    assert followed(run, train_on) == 4
    assert steps(run) == [10, 20, 30, 50]
    assert list(run.checkpoint_paths(0)) == [20, 50]


def test_a_checkpoint_that_is_gone_when_it_is_read_is_skipped(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (run.checkpoint_paths(0)[20] / "weights.safetensors").unlink()
    run.write_result({})
    assert followed(run) == 2
    assert steps(run) == [10, 30]
    errors = capsys.readouterr().err
    assert errors.count("checkpoint skipped") == 1
    assert "step-00000020" in errors


def test_a_best_checkpoint_that_was_pruned_meanwhile_is_told_of(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def prune(trained: TrainedModel) -> dict[str, Any]:
        shutil.rmtree(run.checkpoint_paths(0)[trained.step])
        return score(trained)

    run.write_result({})
    assert followed(run, prune) == 3
    assert run.best_of(0) is None
    assert "train.keep" in capsys.readouterr().err


def test_a_model_that_diverged_does_not_end_the_watch(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def diverge(trained: TrainedModel) -> dict[str, Any]:
        if trained.step == 20:
            error = ConfigError("the model has diverged")
            error.everywhere = True
            raise error
        return score(trained)

    run.write_result({})
    assert followed(run, diverge) == 2
    assert "step 20 skipped: the model has diverged" in capsys.readouterr().err


def test_it_goes_on_until_it_is_stopped(run: Run) -> None:
    looks: list[int] = []

    def stopped() -> bool:
        looks.append(len(steps(run)))
        return len(looks) > 40

    run.write_result({})
    assert followed(run, stopped=stopped, until_done=False) == 3
    assert looks[-1] == 3


def test_a_torn_last_line_is_no_line(run: Run) -> None:
    run.write_result({})
    followed(run)
    path = run.path / "evaluations.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert followed(run) == 1
    assert steps(run) == [10, 20, 30]


def follow_as_rank(world: World, path: Path) -> list[list[float]]:
    """What a rank evaluated: steps, and something of the weights."""
    seen = []

    def look(trained: TrainedModel) -> dict[str, Any]:
        seen.append([trained.step, trained.nodeformer("this test").input.weight.sum().item()])
        return score(trained)

    run = FollowedRun(Run.open(path)) if world.rank == 0 else None
    follow(world, run, look, lambda: False, until_done=True, poll_seconds=0.01)
    return seen


def test_all_ranks_evaluate_the_same_models(run: Run) -> None:
    run.write_result({})
    ranks = run_world(2, follow_as_rank, run.path)
    wanted = [[step, NodeFormer(5, 3, seed=step).input.weight.sum().item()] for step in (10, 20, 30)]
    assert ranks == [wanted, wanted]
    assert steps(run) == [10, 20, 30]
