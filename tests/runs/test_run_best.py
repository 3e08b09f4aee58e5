"""The best checkpoint of a run is known, with or without its mark, and nothing stands in for it silently."""

import pytest
import torch

from nfdist import files
from nfdist.errors import CheckpointError
from nfdist.runs.records import write_record
from nfdist.runs.run import Run
from tests.runs.building import flip, save, steps


def test_the_best_is_a_saved_step_and_comes_back_with_its_scores(run: Run) -> None:
    assert run.best_of(0) is None
    with pytest.raises(CheckpointError, match="seed-0 holds no checkpoint of step 3: save it first"):
        run.mark_best(0, 3, {"valid": 1.0})
    save(run, 0, 3)
    run.mark_best(0, 3, {"epoch": 1, "valid": 0.25, "test": float("nan")})
    assert run.best_of(0) == {"step": 3, "epoch": 1, "valid": 0.25, "test": None}
    write_record(run.path / "checkpoints" / "seed-0" / "best.json", run.id, {"step": "3"})
    with pytest.raises(CheckpointError, match=r"best\.json names no step"):
        run.best_of(0)


@pytest.mark.parametrize(
    ("valid", "winner"),
    [
        ({}, None),
        ({5: None}, 5),
        ({5: None, 6: -1.0}, 6),
        ({10: 0.3, 3: None, 2: 0.9, 1: -1.0}, 2),
        ({11: 0.5, 2: 0.5, 3: 0.5}, 2),
    ],
)
def test_the_best_checkpoint_has_the_highest_valid_score_of_all_seeds(
    run: Run, valid: dict[int, float | None], winner: int | None
) -> None:
    for seed, score in valid.items():
        save(run, seed, 1)
        save(run, seed, 2)
        run.mark_best(seed, 1, {"valid": score})
    assert run.seeds == sorted(valid)
    best = run.best_checkpoint()
    assert (best and (best.state["seed"], best.state["step"])) == (winner and (winner, 1))


def test_no_other_stands_in_for_the_best_checkpoint(run: Run) -> None:
    path = save(run, 0, 1).path
    save(run, 0, 2)
    run.mark_best(0, 1, {"valid": 1.0})
    flip(path / "weights.safetensors", -1)
    with pytest.raises(CheckpointError, match="was altered"):
        run.best_checkpoint()
    files.remove(path)
    with pytest.raises(CheckpointError, match=r"seed-0 has its best scores from step 1, which is gone"):
        run.best_checkpoint()


def test_the_best_is_known_without_its_mark(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a crash between a checkpoint and its mark, or when the mark was lost or damaged."""
    best = {"step": 2, "valid": 0.75}
    for step, known in ((1, {"step": 1, "valid": 0.5}), (2, best), (3, best)):
        run.save_checkpoint(0, step, {"weights": {"a": torch.ones(1)}}, {"seed": 0, "step": step, "best": known}, 9)
        if step == 1:
            run.mark_best(0, 1, known)
    mark = run.path / "checkpoints" / "seed-0" / "best.json"
    for damage in (lambda: None, mark.unlink, lambda: flip(mark, 40)):
        damage()
        run.forget_after(0, 3)
        assert run.best_of(0) == best
        found = run.best_checkpoint()
        assert found is not None
        assert found.state["step"] == 2
        run.mark_again(0)
        assert run._marked(0) == best
    assert "best.json was altered" in capsys.readouterr().err
    flip(mark, 40)
    run.save_checkpoint(0, 4, {"weights": {}}, {"seed": 0, "step": 4, "best": best}, 1)  # no reason to end a training
    assert steps(run, 0) == [2, 4]
    files.remove(run.checkpoint_paths(0)[2])
    mark.unlink()
    with pytest.raises(CheckpointError, match="best scores from step 2, which is gone"):
        run.chosen_checkpoint()


def test_the_last_checkpoint_stands_in_only_audibly(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    save(run, 1, 5)
    (run.path / "evaluations.jsonl").touch()
    found = run.chosen_checkpoint()
    assert found is not None
    assert found.state["step"] == 5
    assert "has no best checkpoint yet: this is the last one, step-00000005" in capsys.readouterr().err
