"""What a process of the doctor tries, tried in this one."""

import json
from pathlib import Path

import pytest

from nfdist.cli import trial_process


def test_dgl_and_metis_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    trial_process.main(["dgl"])
    ready, facts = capsys.readouterr().out.splitlines()
    assert ready == "ready"
    assert json.loads(facts)["metis"] in ("dgl", "pymetis")


def test_a_collective_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial_process.main(["gloo", str(tmp_path), "0", "1"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["processes"] == 1
