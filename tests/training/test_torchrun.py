"""Trainings under torchrun, killed, stopped, continued and refused: they come out as if nothing had happened."""

import random
import shutil
import signal
import socket
from hashlib import blake2b
from pathlib import Path

import psutil
import pytest
import torch

from nfdist.cli.main import main
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run
from nfdist.store.store import Store
from nfdist.training.sampling import Pools, Position
from tests.training.building import build_partition
from tests.training.launching import (
    Moment,
    alone,
    finish,
    started,
    steps_made,
    torchrun,
    training_of,
    write_config,
)

STEPS = 84  # of the undisturbed run: 12 epochs of 7 steps, two ranks with at most 20 of 245 nodes each
LATE_PROGRAM = """
import os, time
from nfdist.cli.main import entry
if os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    time.sleep(2)
entry()
"""
DISAGREEING_PROGRAM = """
import os, sys, time
from nfdist.cli.main import main
from nfdist.training import job

def agree(world, facts, agree=job.agree):
    try:
        agree(world, facts)
    finally:
        time.sleep(0 if world.rank else 1.5)

job.agree = agree
sys.exit(main([*sys.argv[1:], f"model.channels={8 + int(os.environ['RANK'])}"]))
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torchrun")
    partition = build_partition(folder / "partition")
    # With an average of the weights there are two sets of them to lose.
    return write_config(folder / "small.toml", partition, "train.epochs=12", "train.evaluate_every=6", "train.ema=0.9")


@pytest.fixture(scope="module")
def undisturbed(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks in which nothing happens; it keeps all its checkpoints."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(torchrun("train", config, f"run.dir={run}", "train.keep=1000"), run.with_name("log"))
    assert steps_made(run) == STEPS
    return run


def program(path: Path, text: str) -> tuple[str]:
    path.write_text(text)
    return (str(path),)


def own_lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("nfdist: ")]


def restarts_of(run: Path) -> int:
    result = Run.open(run).result()
    assert result is not None
    return int(result["restarts"])


def checksums(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): blake2b(path.read_bytes()).hexdigest() for path in files}


def test_a_job_whose_workers_are_killed_finishes_as_if_nothing_had_happened(
    config: Path, undisturbed: Path, tmp_path: Path
) -> None:
    generator, run = random.Random(0), tmp_path / "run"
    moments = [
        Moment.draw("step", generator, range(1, 6)),  # before the first checkpoint
        Moment.draw("writing", generator, range(25, 40)),
    ]
    # Rank 0 comes late, so that nobody may trust what the last start left in torchrun's store.
    late = program(tmp_path / "late.py", LATE_PROGRAM)
    with started(torchrun("train", config, f"run.dir={run}", restarts=2, program=late), tmp_path / "log") as job:
        for moment in moments:
            moment.strike(job, run)
        assert job.wait() == 0
        assert restarts_of(run) == 2
        assert training_of(run) == training_of(undisturbed)
        for moment in moments:
            assert f"rank {moment.rank} on {socket.gethostname()} is lost, its last sign of life was " in job.output


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_a_job_killed_at_any_moment_finishes_as_if_nothing_had_happened(
    number: int, config: Path, undisturbed: Path, tmp_path: Path
) -> None:
    kind = ("start", "step", "writing")[number % 3]
    steps = range(1, 10) if number == 1 else range(1, STEPS - 30)
    moment, run = Moment.draw(kind, random.Random(number), steps), tmp_path / "run"
    with started(torchrun("train", config, f"run.dir={run}", restarts=3), tmp_path / "log") as job:
        moment.strike(job, run)
        assert job.wait() == 0
        assert restarts_of(run) == 1
        assert training_of(run) == training_of(undisturbed)


def test_a_job_that_torchrun_stops_goes_on_later(config: Path, undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = torchrun("train", config, f"run.dir={run}")
    with started(command, tmp_path / "log") as job:
        job.wait_until(lambda: steps_made(run) >= 25)
        job.process.send_signal(signal.SIGTERM)
        job.wait()
        saved = max(Run.open(run).checkpoint_paths(0))
        assert f"nfdist: SIGTERM: stopped at step {saved}; continue with --resume" in own_lines(job.output)
        assert 25 <= saved == steps_made(run) < STEPS
    output = finish([*command, "--resume"], tmp_path / "log of the rest")
    assert f"nfdist: continuing seed 0 after step {saved}" in own_lines(output)
    assert training_of(run) == training_of(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_a_job_whose_torchrun_was_killed_is_resumed_at_once(
    number: int, config: Path, undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = torchrun("train", config, f"run.dir={run}")
    wanted = random.Random(number).randrange(5, STEPS - 30)
    with started(command, tmp_path / "log") as job:
        job.wait_until(lambda: steps_made(run) >= wanted)
        workers = list(job.workers().values())
        job.process.kill()
        finish([*command, "--resume"], tmp_path / "log of the rest")
        assert psutil.wait_procs(workers, 60)[1] == []
    assert training_of(run) == training_of(undisturbed)
    assert {entry.name for entry in run.glob("*.lock")} == set()


@pytest.mark.slow
def test_workers_end_with_their_torchrun_even_in_a_collective(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with started(torchrun("train", config, f"run.dir={run}", "train.epochs=100000"), tmp_path / "log") as job:
        job.wait_until(lambda: steps_made(run) >= 5)
        workers = job.workers()
        workers[1].suspend()  # so that rank 0 waits for it
        job.process.kill()
        assert psutil.wait_procs([workers[0]], 60)[1] == []
        workers[1].resume()
        assert psutil.wait_procs([workers[1]], 60)[1] == []
        assert job.output.count("is gone: its workers end; continue with --resume") == 1
    assert list(run.rglob(".*")) == []


@pytest.mark.slow
def test_a_run_that_is_being_trained_is_left_alone(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = torchrun("train", config, f"run.dir={run}", "train.epochs=100000")
    with started(command, tmp_path / "log") as job:
        job.wait_until(lambda: steps_made(run) >= 5)
        for words in (command, alone("train", config, f"run.dir={run}", "train.epochs=100000")):
            with started([*words, "--resume"], tmp_path / "other log") as other:
                assert other.wait() == (1 if words is command else 2)
            (line,) = [line for line in own_lines(other.output) if "warning" not in line]
            assert f"{run} is being trained by process {job.workers()[0].pid} on {socket.gethostname()} since" in line
        finish(alone("evaluate", run, "--no-states"), tmp_path / "log of evaluation")
        before = steps_made(run)
        job.wait_until(lambda: steps_made(run) > before)


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_not_started_again(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = torchrun("train", config, f"run.dir={run}", "train.epochs=100000", restarts=3)
    with started(command, tmp_path / "log") as job:
        job.wait_until(lambda: steps_made(run) >= 5)
        job.workers()[1].terminate()
        assert job.wait() == 1
    assert "exitcode  : 143" in job.output
    saved = max(Run.open(run).checkpoint_paths(0))
    assert [line for line in own_lines(job.output) if "SIGTERM" in line or "continuing" in line] == [
        f"nfdist: SIGTERM: stopped at step {saved}; continue with --resume"
    ]


def test_one_rank_takes_over_from_two(config: Path, undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    at = rewind(run)
    finish(alone("train", config, f"run.dir={run}", "--resume"), tmp_path / "log")
    assert_every_node_once(run, at, config, before=2, after=1)


@pytest.mark.slow
def test_three_ranks_take_over_from_one_that_was_stopped(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with started(alone("train", config, f"run.dir={run}", "train.keep=1000"), tmp_path / "log") as job:
        job.wait_until(lambda: steps_made(run) >= 25)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait() == 143
        assert "nfdist: SIGTERM: stopped at step " in job.output
    at = rewind(run)
    finish(torchrun("train", config, f"run.dir={run}", "--resume", workers=3), tmp_path / "log of the rest")
    assert_every_node_once(run, at, config, before=1, after=3)


def rewind(path: Path) -> int:
    """Take back checkpoints until the last is one of step 20 to 50 in the midst of an epoch; its step."""
    for step, folder in reversed(Run.open(path).checkpoint_paths(0).items()):
        if step <= 50 and Checkpoint.open(folder).state["consumed"]:
            assert step >= 20
            return step
        shutil.rmtree(folder)
    raise AssertionError("no checkpoint is in the midst of an epoch")


def assert_every_node_once(path: Path, at: int, config: Path, before: int, after: int) -> None:
    """The epochs of a run that changed its number of ranks at a step visit each node once, as its metrics tell."""
    run = Run.open(path)
    lines = [line for line in run.metrics() if line["kind"] == "step"]
    everyone = torch.arange(Store.open(Path(run.config.data.partition)).num_nodes)
    worlds = {ranks: Pools([everyone], None, ranks, run.config.train.batch_nodes, 0) for ranks in (before, after)}
    position = Position()
    visited: dict[int, list[torch.Tensor]] = {}
    for line in lines:
        node_ids, next_position = worlds[before if position.batch < at else after].take(position)
        assert (line["epoch"], line["step"]) == (position.epoch, position.batch + 1)
        assert line["nodes"] == sum(map(len, node_ids))
        visited.setdefault(position.epoch, []).extend(node_ids)
        position = next_position
    assert position.epoch == len(visited) == run.config.train.epochs
    for batches in visited.values():
        assert torch.cat(batches).sort().values.equal(everyone)


def test_ranks_with_different_settings_refuse(config: Path, tmp_path: Path) -> None:
    # Rank 0, which tells, is the slower one, and torchrun ends it when the other has ended.
    differing = program(tmp_path / "differing.py", DISAGREEING_PROGRAM)
    with started(torchrun("train", config, f"run.dir={tmp_path / 'run'}", program=differing), tmp_path / "log") as job:
        assert job.wait() != 0
        assert own_lines(job.output) == ["nfdist: rank 1 has model.channels 9, rank 0 has 8: give every rank the same"]
    assert not (tmp_path / "run").exists()


def test_a_wrong_setting_is_told_once(config: Path, tmp_path: Path) -> None:
    with started(torchrun("train", config, "train.epoch=3", restarts=1), tmp_path / "log") as job:
        assert job.wait() != 0
        (line,) = own_lines(job.output)
        assert "train.epoch: did you mean train.epochs?" in line


def test_a_run_is_not_overwritten(config: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = checksums(undisturbed)
    assert main(["train", str(config), f"run.dir={undisturbed}"]) == 2
    refusal = f"nfdist: {undisturbed} already holds a run: continue it with --resume, or choose another run.dir"
    assert capsys.readouterr().err.splitlines() == [refusal]
    assert checksums(undisturbed) == before


def test_a_restart_does_not_continue_what_another_launch_began(config: Path, undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    rewind(run)
    before = checksums(run)
    with started(torchrun("train", config, f"run.dir={run}", restarts=1), tmp_path / "log") as job:
        Moment("start", rank=1).strike(job, run)  # before it could refuse
        assert job.wait() != 0
        refusal = f"nfdist: {run} already holds a run: continue it with --resume, or choose another run.dir"
        stopped = "nfdist: SIGTERM: stopped; continue with --resume"  # rank 0 by torchrun, which starts both again
        assert [line for line in own_lines(job.output) if line != stopped] == [refusal]
    assert checksums(run) == before
