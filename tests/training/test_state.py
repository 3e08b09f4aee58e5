"""When a training ends, and what is said of one that has come to nothing."""

from dataclasses import replace
from typing import Any

import pytest

from nfdist.config import TrainConfig
from nfdist.training.sampling import Position
from nfdist.training.state import State

PATIENT = TrainConfig(epochs=100, early_stop=3, least_epochs=0)


def trained(config: TrainConfig, valid: list[float], losses: list[float]) -> int:
    """How many epochs a training of such scores makes."""
    state = State()
    for epoch, (score, loss) in enumerate(zip(valid, losses, strict=True), start=1):
        state.take_step(Position(epoch, epoch), loss)
        state.take_scores({"epoch": epoch, "valid": score}, loss, config)
        if state.ended(config):
            return epoch
    return len(valid)


PLATEAU = [0.3] * 8 + [0.9, 0.9, 0.9, 0.9, 0.9]


def test_a_plateau_of_scores_under_a_falling_loss_is_progress() -> None:
    falling = [1 / epoch for epoch in range(1, 9)] + [0.1] * 5
    assert trained(PATIENT, PLATEAU, falling) == 12  # three evaluations after the score of epoch 9
    assert trained(replace(PATIENT, early_stop_on="score"), PLATEAU, falling) == 4


def test_no_early_stop_comes_before_the_least_epochs() -> None:
    flat = [1.0] * 13
    assert trained(PATIENT, PLATEAU, flat) == 4
    assert trained(replace(PATIENT, least_epochs=9), PLATEAU, flat) == 12
    assert trained(replace(PATIENT, least_epochs=50, epochs=6), PLATEAU, flat) == 6


def test_a_missing_validation_loss_is_no_progress() -> None:
    state = State()
    assert state.take_scores({"valid": None}, None, PATIENT)
    assert state.take_scores({"valid": None}, None, PATIENT)  # where nothing can be compared the later one counts
    assert state.least_loss is None


@pytest.mark.parametrize(
    ("first", "last", "classes", "said"),
    [
        (2.0, 0.5, 4, None),
        (2.0, 0.5, None, None),
        (2.0, 0.5, 1, "all nodes, or nearly all, are predicted as one class: try another train.learning_rate"),
        (2.0, 1.99, 4, "the loss is 1.99 after 2 at the first step: try another train.learning_rate"),
        (None, None, 4, None),
    ],
)
def test_a_training_that_came_to_nothing_says_so(first: Any, last: Any, classes: Any, said: str | None) -> None:
    state = State(best={"predicted_classes": classes}, first_loss=first, last_loss=last)
    found = state.trouble()
    assert found == said if said is None or found is None else found.startswith(said)
    assert (found is None) == (said is None)


def test_it_is_restored_as_it_was_and_from_earlier_versions() -> None:
    state = State(Position(7, 2, (3, 4)), 5, {"valid": 0.5}, {"valid": 0.4}, 2, 0.3, 1.5, 0.7)
    state.seconds["train"] += 1.25
    saved = state.as_dict()
    assert State.restored(saved) == state
    for name in ("least_loss", "first_loss", "last_loss"):
        saved.pop(name)
    saved.pop("batch")  # when each batch was a step
    earlier = replace(state, position=Position(5, 2, (3, 4)), least_loss=None, first_loss=None, last_loss=None)
    assert State.restored(saved) == earlier


def test_the_work_of_each_rank_adds_up_until_there_are_others() -> None:
    state = State()
    for seconds in ((0.0, 0.0), (1.0, 2.0), (0.5, 0.25)):
        state.take_rank_seconds(seconds)
    assert State.restored(state.as_dict()).rank_seconds == [1.5, 2.25]
    state.take_rank_seconds((1.0, 1.0, 1.0))
    assert state.rank_seconds == [1.0, 1.0, 1.0]
