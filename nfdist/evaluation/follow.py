"""Following a run: every new checkpoint is evaluated once, while the training goes on elsewhere.

Lines go to evaluations.jsonl, since only the training writes metrics.jsonl. Rank 0 looks at the run and decides; the
others hear of it over the process group.
"""

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nfdist import log
from nfdist.collectives import broadcast_text, largest, together
from nfdist.errors import CheckpointError, ConfigError
from nfdist.files import disk_errors_as
from nfdist.model.loading import TrainedModel, broadcast_model, fingerprint, read_model
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.ranking import better
from nfdist.runs.run import EVALUATIONS_FILE, Run
from nfdist.world import World

_SECONDS_BETWEEN_LOOKS_AT_SIGNALS = 0.1


class FollowedRun:
    """A run as rank 0 sees it, and which of its checkpoints were evaluated, by this process or one before it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._path = run.path / EVALUATIONS_FILE
        with disk_errors_as(CheckpointError, self._path):
            if self._path.exists():  # a line that a crash has torn would spoil the next
                os.truncate(self._path, self._path.read_bytes().rfind(b"\n") + 1)
        self._evaluated = {line.get("checkpoint") for line in read_evaluations(run)}
        self._skipped: set[Path] = set()

    def next_model(self) -> TrainedModel | None:
        """The model of the oldest whole checkpoint that is still to be evaluated."""
        for seed in self._run.seeds:
            for path in self._run.checkpoint_paths(seed).values():
                if path in self._skipped:
                    continue
                try:
                    checkpoint = Checkpoint.open(path, verify=False)
                    if fingerprint(checkpoint) not in self._evaluated:
                        return read_model(self._run.config, checkpoint)
                except CheckpointError as error:
                    self._skipped.add(path)
                    log.notice(f"checkpoint skipped: {error}")
        return None

    @property
    def ended(self) -> bool:
        """Whether the training is over; its last checkpoint came before, so ask this before `next_model`."""
        return self._run.result() is not None

    def record(self, trained: TrainedModel, facts: dict[str, Any] | None) -> None:
        """Remember that a checkpoint was evaluated, and its scores if it has any; mark it if it is the best."""
        self._evaluated.add(trained.fingerprint)
        if facts is None:
            return
        position = {"seed": trained.seed, "epoch": trained.epoch, "step": trained.step}
        losses = {f"{name}_loss": loss for name, loss in facts["loss"].items()}  # named as in metrics.jsonl
        plain = {name: value for name, value in facts.items() if name not in ("loss", "accuracy", "per_class")}
        line = {"kind": "evaluation", **position, **plain, **losses, "checkpoint": trained.fingerprint}
        with disk_errors_as(CheckpointError, self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        ranked = ("train", "valid", "test", "larger_is_better")
        self._mark(trained, {**position, **{name: value for name, value in facts.items() if name in ranked}})

    def _mark(self, trained: TrainedModel, scores: dict[str, Any]) -> None:
        try:
            if better(scores, self._run.best_of(trained.seed)):
                self._run.mark_best(trained.seed, trained.step, scores)
        except CheckpointError as error:
            log.notice(f"the best checkpoint so far is gone: {error}, or raise train.keep")


def follow(
    world: World,
    run: FollowedRun | None,
    evaluate: Callable[[TrainedModel], dict[str, Any]],
    stopped: Callable[[], bool],
    *,
    until_done: bool,
    poll_seconds: float,
) -> int:
    """Evaluate checkpoints as they come, until told to stop or the training is over; how many there were.

    Every rank must call this; only rank 0 has the run.
    """
    count = 0
    while not largest(world, torch.tensor([int(stopped())]), "stop?").item():
        ended, mine = together(world, lambda: (run.ended, run.next_model()) if run is not None else (False, None))
        decision = "evaluate" if mine is not None else "end" if until_done and ended else "wait"
        decision = broadcast_text(world, decision, 0, "next checkpoint")
        if decision == "end":
            break
        if decision == "wait":
            _wait(poll_seconds, stopped)
            continue
        trained = broadcast_model(world, mine)
        facts = _evaluated(trained, evaluate, world)
        count += facts is not None
        together(world, partial(run.record, trained, facts) if run is not None else lambda: None)
    return count


def read_evaluations(run: Run) -> list[dict[str, Any]]:
    """The evaluations that are recorded in a run; the last line may be torn."""
    path = run.path / EVALUATIONS_FILE
    content = path.read_bytes() if path.exists() else b""
    try:
        return [dict(json.loads(line)) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path} holds a line that is no JSON object ({error}): remove that line") from None


def _evaluated(
    trained: TrainedModel, evaluate: Callable[[TrainedModel], dict[str, Any]], world: World
) -> dict[str, Any] | None:
    """The scores of a model; None for one that has diverged, which ends no watch."""
    try:
        return evaluate(trained)
    except ConfigError as error:
        if not error.everywhere:
            raise
        if world.rank == 0:
            log.notice(f"checkpoint of seed {trained.seed}, step {trained.step} skipped: {error}")
        return None


def _wait(seconds: float, stopped: Callable[[], bool]) -> None:
    ends = time.monotonic() + seconds
    while not stopped() and (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, _SECONDS_BETWEEN_LOOKS_AT_SIGNALS))
