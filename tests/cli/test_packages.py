"""A package that cannot be used is a finding that says what is lost and what to do, never the end of the doctor."""

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from nfdist.cli import doctor, packages
from nfdist.cli.check import Check
from nfdist.cli.main import main
from nfdist.errors import ConfigError
from nfdist.observe.trackers.tracker import DOORS
from nfdist.sparse import dgl_door, metis
from tests.cli.findings import only


def test_broken_dgl_is_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> NoReturn:
        try:
            raise OSError("libgraphbolt.so:\ncannot open")
        except OSError as error:
            raise ConfigError("DGL cannot be imported") from error

    monkeypatch.setattr(dgl_door, "dgl", broken)
    monkeypatch.setattr(packages, "PACKAGES", {name: packages.PACKAGES[name] for name in (*packages.REQUIRED, "dgl")})
    monkeypatch.setattr(doctor, "started_trials", lambda *_: nullcontext([]))
    assert main(["doctor"]) == 0
    captured = capsys.readouterr()
    assert "dgl cannot be used (OSError: libgraphbolt.so: cannot open)" in captured.out
    assert f"which rules out model.name = gat\n    {dgl_door.REMEDY}\n" in captured.out
    assert captured.err == ""


def test_optional_package_that_raises_anything_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nfdist_test_broken.py").write_text("print('hello'); raise ValueError('numpy.dtype size changed')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(packages, "PACKAGES", {"safetensors": ("nfdist_test_broken", "checkpoints")})
    check, missing = packages.check_packages()
    finding = only(check, "broken")
    assert (
        finding.problem
        == "safetensors cannot be used (ValueError: numpy.dtype size changed), which rules out checkpoints"
    )
    assert missing == []


def test_ogb_is_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setattr(packages, "PACKAGES", {"ogb": packages.PACKAGES["ogb"]})
    monkeypatch.setattr(packages, "_version", lambda package: "1.3.6")
    assert packages.check_packages()[0].findings == []
    monkeypatch.setattr(packages, "_version", lambda package: None)
    assert "ogb cannot be used" in only(packages.check_packages()[0], "broken").problem


def test_extras_are_listed_with_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"tensorboard": "2.20.0", "wandb": "0.21.0"}
    monkeypatch.setattr(packages, "_version", there.get)

    def not_logged_in() -> NoReturn:
        raise ConfigError("nobody is logged in")

    doors = {name: SimpleNamespace(check=lambda: None) for name in DOORS}
    monkeypatch.setattr(packages, "DOORS", {**doors, "wandb": SimpleNamespace(check=not_logged_in)})
    check = packages.check_extras()
    assert check.facts == {
        "optuna": 'not installed, for nfdist tune: pip install "nfdist[tune]"',
        "tensorboard": "2.20.0",
        "mlflow": 'not installed, for observe.trackers: pip install "nfdist[mlflow]"',
        "wandb": "0.21.0, cannot be used: nobody is logged in",
    }
    assert check.findings == []


def test_every_tracker_is_an_extra_that_is_listed() -> None:
    assert set(DOORS) < set(packages.EXTRAS)
    assert {packages.EXTRAS[name][0] for name in DOORS} == set(DOORS)


@pytest.mark.parametrize("version", ["1.1.2", "0.9.1.post1", "3.0.0"])
def test_a_release_of_dgl_that_is_not_known_is_a_finding(version: str) -> None:
    check = Check("packages")
    packages.judge_dgl(check, version)
    assert only(check, "broken").problem == f"dgl is {version}, and nfdist knows 1.1.3 to 2"


@pytest.mark.parametrize("version", ["1.1.3", "1.1.3.post1", "2.1.0", "2.4.0+cu121"])
def test_a_release_of_dgl_that_is_known_is_no_finding(version: str) -> None:
    check = Check("packages")
    packages.judge_dgl(check, version)
    assert check.findings == []


@pytest.mark.parametrize(
    ("library", "kind", "problem"),
    [("dgl", None, ""), ("pymetis", "slow", "balances the nodes of parts only"), (None, "broken", "neither DGL nor")],
)
def test_the_library_behind_metis_is_told(
    monkeypatch: pytest.MonkeyPatch, library: str | None, kind: str | None, problem: str
) -> None:
    monkeypatch.setattr(metis, "metis_library", lambda: library)
    check = packages.check_partitioning()
    assert check.facts == {"metis": library}
    if kind is None:
        assert check.findings == []
    else:
        assert problem in only(check, kind).problem
