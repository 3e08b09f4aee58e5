"""State: what a checkpoint remembers of a training beside the tensors, and what follows from it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nfdist.config import TrainConfig
from nfdist.runs.ranking import better
from nfdist.training.sampling import Position

REMEMBERED = ("best", "final", "evaluations_since_best", "least_loss", "first_loss", "last_loss")
UNMOVED = 0.99  # of the first loss: a training that ends above has not learned


@dataclass
class State:
    """Randomness is a function of seed and batch, so it needs none.

    `position` is that after the last of `step` moves of the optimizer, each of one batch or more.
    `evaluations_since_best` counts those without progress, of which `least_loss` is the lowest validation loss; first
    and last loss are supervised ones, of steps. `rank_seconds` is what each rank worked on the steps but the last,
    without waiting for others.
    """

    position: Position = field(default_factory=Position)
    step: int = 0
    best: dict[str, Any] | None = None
    final: dict[str, Any] | None = None
    evaluations_since_best: int = 0
    least_loss: float | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    rank_seconds: list[float] = field(default_factory=list)

    @staticmethod
    def restored(saved: dict[str, Any]) -> "State":
        # In earlier versions every batch was a step.
        position = Position(saved.get("batch", saved["step"]), saved["epoch"], tuple(saved["consumed"]))
        known = {name: saved[name] for name in REMEMBERED if name in saved}  # earlier versions had no losses
        worked = list(saved.get("rank_seconds", ()))
        return State(
            position, saved["step"], **known, seconds=defaultdict(float, saved["seconds"]), rank_seconds=worked
        )

    def as_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in REMEMBERED}
        costs = {"seconds": dict(self.seconds), "rank_seconds": self.rank_seconds}
        return {"step": self.step, **asdict(self.position), **own, **costs}

    def take_step(self, after: Position, supervised_loss: float) -> None:
        """Remember that a step was made."""
        self.position, self.step, self.last_loss = after, self.step + 1, supervised_loss
        self.first_loss = supervised_loss if self.first_loss is None else self.first_loss

    def take_rank_seconds(self, seconds: Sequence[float]) -> None:
        """Add what each rank worked on a step; a training that goes on with more or fewer ranks counts anew."""
        before = self.rank_seconds if len(self.rank_seconds) == len(seconds) else [0.0] * len(seconds)
        self.rank_seconds = [one + more for one, more in zip(before, seconds, strict=True)]

    def take_scores(self, scores: dict[str, Any], valid_loss: float | None, config: TrainConfig) -> bool:
        """Remember an evaluation; whether its validation score is the best so far."""
        self.final, improved = scores, better(scores, self.best)
        self.best = scores if improved else self.best
        fell = valid_loss is not None and (self.least_loss is None or valid_loss < self.least_loss)
        self.least_loss = valid_loss if fell else self.least_loss
        progress = improved or (fell and config.early_stop_on == "both")
        self.evaluations_since_best = 0 if progress else self.evaluations_since_best + 1
        return improved

    def ended(self, config: TrainConfig) -> bool:
        """Whether the last epoch is over, or evaluations have been no better for so long."""
        epoch, patience = self.position.epoch, config.early_stop
        stale = 0 < patience <= self.evaluations_since_best and epoch >= config.least_epochs
        return epoch >= config.epochs or stale

    def trouble(self) -> str | None:
        """What is wrong with a training that has come to nothing, and what to try."""
        cures = "try another train.learning_rate, more train.epochs, or what nfdist train PARTITION sets by itself"
        if self.best is not None and self.best.get("predicted_classes") == 1:
            return f"all nodes, or nearly all, are predicted as one class: {cures}, or train.class_weights=balanced"
        if None not in (self.first_loss, self.last_loss) and self.last_loss > UNMOVED * self.first_loss:  # type: ignore[operator]
            return f"the loss is {self.last_loss:.4g} after {self.first_loss:.4g} at the first step: {cures}"
        return None
