"""What one attempt of torchrun's workers leaves to the next."""

from pathlib import Path

import pytest

from nfdist.attempts import Attempts
from nfdist.cli.main import main


def environment(folder: Path, attempt: int) -> dict[str, str]:
    file = folder / f"attempt_{attempt}" / "0" / "error.json"
    return {"TORCHELASTIC_ERROR_FILE": str(file), "TORCHELASTIC_RESTART_COUNT": str(attempt)}


def test_what_cannot_succeed_is_not_tried_again(tmp_path: Path) -> None:
    for attempt in (0, 1):
        assert Attempts(environment(tmp_path, attempt)).earlier_code() is None
    Attempts(environment(tmp_path, 1)).give_up(143, only_failures=True)
    assert Attempts(environment(tmp_path, 1)).earlier_code() is None  # torchrun takes in another host
    assert Attempts(environment(tmp_path, 2)).earlier_code() == 143
    Attempts(environment(tmp_path, 2)).give_up(2)
    assert Attempts(environment(tmp_path, 2)).earlier_code() == 2
    assert Attempts({}).earlier_code() is None


def test_a_later_attempt_ends_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Attempts(environment(tmp_path, 0)).give_up(2)
    for name, value in environment(tmp_path, 1).items():
        monkeypatch.setenv(name, value)
    assert main(["train", "nowhere.toml"]) == 2
    assert capsys.readouterr() == ("", "")
