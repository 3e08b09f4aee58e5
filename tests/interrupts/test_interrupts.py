"""Ctrl-C at any moment of any command: one line, exit code 130, nothing half-written, nobody left behind.

`make test` has the first moments of commands that are quick; the rest is slow, or `python -m tests.interrupts`.
"""

from pathlib import Path

import pytest

from nfdist.cli.main import COMMANDS
from tests.interrupts.__main__ import sweep
from tests.interrupts.commands import INTERRUPTED, Material
from tests.interrupts.sweep import interrupt


def test_every_command_is_in_the_sweep() -> None:
    assert set(INTERRUPTED) == set(COMMANDS), "add the command to tests/interrupts/commands.py"


@pytest.mark.parametrize("after", [0.05, 0.12, 0.2, 0.3])
@pytest.mark.parametrize("name", ["runs", "completion"])
def test_the_first_moments(name: str, after: float, tmp_path: Path) -> None:
    (tmp_path / "material").mkdir()
    outcome = interrupt(name, Material(tmp_path / "material"), tmp_path / name, after, group=after > 0.1)
    assert outcome.problems == ()


def test_the_sweep_sees_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that leaves a child and half a file, and ends in a traceback."""
    (tmp_path / "sitecustomize.py").write_text(
        "import subprocess, sys\n"
        "subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "open('.out.tmp-1', 'w').close()\n"
        "print('Traceback (most recent call last)', file=sys.stderr)\n"
        "sys.stderr.flush()\n"
    )
    from tests.interrupts import sweep as module

    monkeypatch.setattr(module, "ROOT", f"{tmp_path}:{module.ROOT}")
    (tmp_path / "material").mkdir()
    outcome = interrupt("runs", Material(tmp_path / "material"), tmp_path / "runs", None)
    told = " ".join(outcome.problems)
    assert "process left: sleep 60" in told
    assert ".out.tmp-1 was left aside" in told
    assert "a traceback" in told


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(INTERRUPTED))
def test_any_moment(name: str, tmp_path: Path) -> None:
    told = [f"{where}: {problems}" for _, where, problems in sweep([name], 6, 0, tmp_path) if problems]
    assert told == []
