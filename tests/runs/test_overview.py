"""A folder of runs at a glance: what each is follows from its files and from who holds its locks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nfdist.runs import overview
from nfdist.runs.overview import RunFacts, runs_below
from nfdist.runs.ownership import Owner, _write, owning
from nfdist.runs.run import Run
from tests.runs.building import CONFIG, flip, save

SCORES = {"epoch": 3, "train": 0.9, "valid": 0.75, "test": 0.5}
HOLDING = """
import sys, time
from pathlib import Path
from nfdist.runs.ownership import owning
with owning(Path(sys.argv[1]), "trained"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder with runs two levels down, a partition, a link to itself, and things that are no runs."""
    (tmp_path / "study" / "gcn").mkdir(parents=True)
    (tmp_path / "graph" / "part-00000").mkdir(parents=True)
    (tmp_path / "graph" / "manifest.json").write_text("{}")
    (tmp_path / "graph" / "part-00000" / "run.json").write_text("{}")
    (tmp_path / "study" / "again").symlink_to(tmp_path)
    (tmp_path / "study" / "notes").mkdir()
    return tmp_path


def begun(path: Path) -> Run:
    """A run after the third epoch of its second seed, 1."""
    run = Run.create(path, CONFIG, "")
    for seed, step in ((2, 7), (1, 3)):
        save(run, seed, step)
        run.mark_best(seed, step, {**SCORES, "valid": 0.75 if seed == 1 else 0.25})
    run.append({"kind": "evaluation", "seed": 2, "epoch": 7, "metric": "roc_auc"})
    run.append({"kind": "step", "seed": 1, "epoch": 3, "step": 3})
    return run


def finished(path: Path) -> Run:
    run = begun(path)
    last = {"seed": 1, "best": SCORES, "final": {**SCORES, "epoch": 7}}
    run.write_result({"metric": "accuracy", "best": SCORES, "per_seed": [last, last]})
    return run


def the_one(top: Path) -> RunFacts:
    found = runs_below(top, watched_seconds=0.3)
    assert len(found) == 1
    return found[0]


@pytest.fixture
def holder(top: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that trains in study/gcn."""
    lock = top / "study" / "gcn" / "train.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(lock)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_run_that_was_stopped_and_one_that_is_over(top: Path) -> None:
    begun(top / "study" / "gcn")
    facts = the_one(top)
    assert (facts.state, facts.model, facts.epoch, facts.epochs) == ("stopped", "nodeformer", 3, 7)
    assert (facts.seeds_done, facts.seeds) == (1, 2)
    assert (facts.valid, facts.test, facts.metric, facts.problem) == (0.75, 0.5, "roc_auc", "")
    assert facts.size_bytes == sum(path.lstat().st_size for path in facts.path.rglob("*") if path.is_file())

    finished(top / "done")
    done = next(one for one in runs_below(top) if one.path == top / "done")
    assert (done.state, done.epoch, done.seeds_done, done.metric) == ("done", 7, 2, "accuracy")


def test_a_run_is_running_while_its_lock_is_held_and_lost_after_its_process_was_killed(
    top: Path, holder: subprocess.Popen[str]
) -> None:
    begun(top / "study" / "gcn")
    facts = the_one(top)
    assert facts.state == "running"
    assert f"process {holder.pid}" in facts.at_work[0]
    before = (top / "study" / "gcn" / "train.lock").read_bytes()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (the_one(top).state, the_one(top).at_work) == ("lost", ())
    lock = top / "study" / "gcn" / "train.lock"
    assert json.loads(lock.read_bytes())["process"] == json.loads(before)["process"]  # looking changes nothing


def test_a_run_that_is_over_is_running_again_while_it_is_trained_on_and_evaluated_meanwhile(top: Path) -> None:
    run = finished(top / "study" / "gcn")
    with owning(run.path / "evaluate.lock", "evaluated"):
        assert (the_one(top).state, the_one(top).at_work[0].split()[0]) == ("done", "evaluated")
        with owning(run.path / "train.lock", "trained"):
            assert the_one(top).state == "running"
    assert the_one(top).state == "done"


@pytest.mark.parametrize("counting", [True, False])
def test_an_owner_on_another_machine_is_believed_as_long_as_it_counts(
    top: Path, counting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begun(top / "study" / "gcn").path / "train.lock"
    far = replace(Owner.this_process(""), machine="another", host="far", process=77)
    path.touch()
    descriptor = os.open(path, os.O_RDWR)
    _write(descriptor, far)

    def tick(seconds: float) -> None:
        if counting:
            _write(descriptor, replace(far, beat=far.beat + 1))

    monkeypatch.setattr(overview.time, "sleep", tick)  # type: ignore[attr-defined]
    facts = the_one(top)
    os.close(descriptor)
    assert (facts.state, facts.at_work) == (
        ("running", ("trained by process 77 on far",)) if counting else ("lost", ())
    )


def test_a_restarting_torchrun_still_has_its_run(top: Path) -> None:
    """Its worker is gone, but the launcher will start another one."""
    path = begun(top / "study" / "gcn").path / "train.lock"
    owner = replace(Owner.this_process("launch-1"), process=2**22 + 1, start="0")
    path.write_text("")
    with path.open("r+b") as file:
        _write(file.fileno(), owner)
    assert the_one(top).state == "running"
    with path.open("r+b") as file:
        _write(file.fileno(), replace(owner, launcher=(2**22 + 1, "0")))
    assert the_one(top).state == "lost"


@pytest.mark.parametrize("name", ["run.json", "config.toml", "result.json", "checkpoints/seed-1/best.json"])
def test_a_damaged_run_is_shown_with_its_reason_beside_the_others(top: Path, name: str) -> None:
    broken = finished(top / "study" / "gcn")
    finished(top / "whole")
    flip(broken.path / name, 40)
    states = {one.path.name: one for one in runs_below(top)}
    assert {path: facts.state for path, facts in states.items()} == {"gcn": "damaged", "whole": "done"}
    assert name.rpartition("/")[2] in states["gcn"].problem


def test_what_was_written_last_comes_first(top: Path) -> None:
    for number, name in enumerate(("b", "a", "c")):
        run = begun(top / name)
        for path in run.path.rglob("*"):
            os.utime(path, (1000 * (number + 1),) * 2)
    found = runs_below(top)
    assert [(facts.path.name, facts.written) for facts in found] == [("c", 3000), ("a", 2000), ("b", 1000)]


def test_only_the_end_of_the_metrics_is_read(top: Path) -> None:
    run = begun(top / "study" / "gcn")
    run.append({"kind": "evaluation", "seed": 1, "epoch": 5, "metric": "accuracy", "long": "x" * 50})
    for _ in range(2000):
        run.append({"kind": "step", "seed": 1, "epoch": 6, "step": 9, "note": "x" * 50})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "seed": 1, "ep')  # torn
    assert the_one(top).epoch == 6
    assert len(run.metrics_file.tail(300)) < 4
    assert run.metrics_file.tail(10**9) == run.metrics_file.lines()


def test_runs_are_listed_and_cleaned_without_torch() -> None:
    program = (
        "import sys, nfdist.cli.runs, nfdist.cli.clean; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
