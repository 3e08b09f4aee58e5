"""The demo trains for real: it repeats from its seed, learns more in more epochs, and refuses what it cannot do."""

import json

import pytest

from nfdist.cli.main import main


def results(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, float]]:
    assert main(["demo", "--json", *words]) == 0
    last: dict[str, dict[str, float]] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return last


def test_the_demo_learns_with_and_without_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    few, many = (results(capsys, "--epochs", epochs) for epochs in ("1", "25"))
    assert set(many) == {"no graph", "k-NN graph"}
    for name, found in many.items():
        assert found["test"] > 0.8  # a guess is right for one image in ten
        assert found["valid"] > few[name]["valid"] + 0.2


def test_the_demo_repeats_from_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    one, again, other = (results(capsys, "--epochs", "2", "--seed", seed) for seed in ("3", "3", "4"))
    scores = [[(found["valid"], found["test"]) for found in run.values()] for run in (one, again, other)]
    assert scores[0] == scores[1]
    assert scores[0] != scores[2]


@pytest.mark.parametrize(
    ("words", "message"), [(["--epochs", "0"], "--epochs must be at least 1, got 0"), (["--neighbors", "0"], "got 0")]
)
def test_mistakes_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
