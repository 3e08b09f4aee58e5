"""How lines and results become what trackers show, and which trackers are refused."""

import sys

import pytest

from nfdist.config import TRACKERS, ObserveConfig
from nfdist.errors import ConfigError
from nfdist.observe.trackers.tracker import DOORS, Line, check_trackers, flattened
from tests.observe.trackers.remembering import lines_of


def test_numbers_are_named_by_kind_and_scores_by_their_metric() -> None:
    step, *_, evaluation = lines_of(4, range(3, 4))
    assert Line.of(step) == Line("step", 4, 3, {"step/loss": 1 / 3, "step/seconds": 0.5})
    scores = {"accuracy/train": 0.5, "accuracy/valid": 0.03, "evaluation/valid_loss": 0.25}
    assert Line.of(evaluation) == Line("evaluation", 4, 3, scores)  # what is null is left out


@pytest.mark.parametrize("line", [{}, {"kind": 1, "seed": 0, "step": 1}, {"kind": "step", "seed": 0, "step": "1"}])
def test_lines_that_lack_what_all_have_are_known(line: dict[str, object]) -> None:
    assert not Line.told_by(line)
    assert Line.told_by({"kind": "step", "seed": 0, "step": 1})


def test_a_result_is_flat_and_has_numbers_only() -> None:
    result = {"best": {"valid": 0.5, "larger_is_better": True, "test": None}, "final": None, "seconds": {"train": 2}}
    assert flattened(result) == {"best/valid": 0.5, "seconds/train": 2.0}


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_one_line_with_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.startswith("nfdist.observe.trackers.")]:
        if module.endswith(("_events", "_runs")):
            monkeypatch.delitem(sys.modules, module)
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError) as caught:
        check_trackers([name])
    assert str(caught.value).startswith(f"observe.trackers has {name}, whose package cannot be imported (")
    assert str(caught.value).endswith(f': pip install "nfdist[{name}]"')


def test_every_tracker_has_its_door() -> None:
    assert tuple(DOORS) == TRACKERS
    assert ObserveConfig(trackers=TRACKERS).trackers == TRACKERS


@pytest.mark.parametrize("names", [("tensorbord",), ("wandb", "wandb")])
def test_unknown_and_repeated_trackers_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"^observe\.trackers must be different ones of tensorboard, mlflow, wandb"):
        ObserveConfig(trackers=names)
