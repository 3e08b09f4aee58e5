"""The scoreboard goes on where it was stopped, and from a stage that failed to the next one."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import make_scoreboard
import pytest
from jobs import CONTENDERS, Job, jobs, stages
from make_scoreboard import run_job, to_run
from stage import ROOT, Stage

from nfdist import settings
from tests.scoreboard.building import counted, runs, workshop

JOB = Job("job", "a job", "nowhere", 1, 1.0, "1GiB", 1)


def planned(folder: Path, broken: str = "") -> list[Stage]:
    made = folder / "made"
    return [
        counted("partition", folder, f"import os; os.mkdir({str(made)!r})", out=(made,)),
        counted("train", folder, "raise SystemExit('broken')" if broken else "", needs=("partition",)),
        counted("evaluate", folder, needs=("train",)),
        counted("GCN", folder, needs=("partition",)),
    ]


def test_stages_that_are_known_are_not_run_again(tmp_path: Path) -> None:
    shop, stages = workshop(tmp_path / "work"), planned(tmp_path)
    first = run_job(JOB, stages[:2], shop, retry=False)
    second = run_job(JOB, stages, shop, retry=False)
    assert {name: second[name] for name in first} == first
    assert all(one.done for one in second.values())
    assert [runs(stage.name, tmp_path) for stage in stages] == [1, 1, 1, 1]


def test_a_failed_stage_is_kept_its_followers_are_not_run_and_the_others_are(tmp_path: Path) -> None:
    shop = workshop(tmp_path / "work")
    found = run_job(JOB, planned(tmp_path, broken="train"), shop, retry=False)
    assert [found[name].state for name in ("partition", "train", "evaluate", "GCN")] == [
        "done",
        "failed",
        "not run",
        "done",
    ]
    assert found["train"].why == "broken"
    assert run_job(JOB, planned(tmp_path, broken="train"), shop, retry=False) == found
    assert runs("train", tmp_path) == 1
    run_job(JOB, planned(tmp_path, broken="train"), shop, retry=True)
    assert runs("train", tmp_path) == 2
    assert runs("partition", tmp_path) == 1


def test_what_a_pending_stage_needs_is_made_again_where_it_is_gone(tmp_path: Path) -> None:
    shop, stages = workshop(tmp_path / "work"), planned(tmp_path)
    found = run_job(JOB, stages, shop, retry=False)
    assert to_run(stages, found) == set()
    known = {name: one for name, one in found.items() if name != "GCN"}
    assert to_run(stages, known) == {"GCN"}
    (tmp_path / "made").rmdir()
    assert to_run(stages, known) == {"GCN", "partition"}


@pytest.mark.parametrize("quick", [True, False])
def test_every_stage_has_a_configuration_that_nfdist_accepts(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NFDIST_DATA", raising=False)
    every = jobs(quick, tmp_path)
    assert [job.name for job in every] == ["amazon2m", "taxonomy", "papers100m"]
    assert [bool(job.absent) for job in every] == [False, True, False]
    for job in every:
        made = stages(job, tmp_path)
        assert [stage.name for stage in made[:4]] == ["partition", "train", "evaluate", "predict"]
        assert {stage.name for stage in made} >= set(CONTENDERS)
        assert len({stage.name for stage in made}) == len(made)
        for stage in made:
            words = stage.command[stage.command.index("--") + 1 :] if "--" in stage.command else ()
            if words:
                settings.load(Path(words[0]), words[1:])
            assert all(not word.endswith(".py") or Path(word).is_file() for word in stage.command)


def test_the_taxonomy_is_absent_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NFDIST_DATA", str(tmp_path))
    job = jobs(True, tmp_path)[1]
    found = run_job(job, stages(job, tmp_path), workshop(tmp_path), retry=False)
    assert {one.state for one in found.values()} == {"absent"}
    (tmp_path / "ncbi-taxonomy.npz").touch()
    assert not jobs(True, tmp_path)[1].absent


def test_an_unknown_job_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["make_scoreboard.py", "--only", "nothing"])
    assert make_scoreboard.main() == 2
    assert capsys.readouterr().err == (
        "scoreboard: there is no job nothing: choose among amazon2m, taxonomy, papers100m\n"
    )


@pytest.mark.slow
def test_a_quick_scoreboard_goes_the_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "RESULTS.md"
    words = ["--quick", "--only", "amazon2m", "papers100m", "--work", str(tmp_path / "work"), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["make_scoreboard.py", *words, "--memory", "4GiB"])
    monkeypatch.setattr(
        make_scoreboard, "jobs", lambda quick, work: [replace(j, seconds=1.0) for j in jobs(quick, work)]
    )
    assert make_scoreboard.main() == 0
    page = out.read_text()
    assert "not run yet" not in page
    assert str(tmp_path) not in page
    assert str(ROOT) not in page
    states = {path.stem: json.loads(path.read_text())["state"] for path in (tmp_path / "work" / "facts").iterdir()}
    assert {name for name, state in states.items() if state != "done"} <= {"amazon2m-SGFormer", "papers100m-SGFormer"}
