"""kill -9 at any moment of a training of several seeds, with every step saved and every epoch scored: --resume goes on.

Alone the process is killed; of two workers one is, which torchrun starts again, or torchrun and all of them are.
"""

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from nfdist.runs.run import Run
from tests.training.building import build_partition
from tests.training.launching import SCORES, STEP_FACTS, Job, alone, finish, started, torchrun, write_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEEDS = (0, 3, 5)
SETTINGS = (
    "train.epochs=3",
    f"train.seeds={list(SEEDS)}",
    "train.evaluate_every=1",
    "train.checkpoint_every=1",
    "train.batch_nodes=50",
    "train.accumulate=2",
)
MOMENTS = 20
KILLS = 2  # of each training, unless it is done before


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    return write_config(folder / "small.toml", build_partition(folder / "partition"), *SETTINGS)


@pytest.fixture(scope="module")
def undisturbed(config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What comes out, alone and of two workers, when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(alone("train", config, f"run.dir={folder}/alone"), folder / "log of one")
    finish(torchrun("train", config, f"run.dir={folder}/two"), folder / "log of two")
    return {1: everything(folder / "alone"), 2: everything(folder / "two")}


def everything(path: Path) -> dict[str, Any]:
    """All that must come out the same, of all seeds: weights, lines, bests and scores, and nothing left aside."""
    run = Run.open(path)
    lines, result = run.metrics(), run.result()
    assert result is not None
    facts = {"step": ("seed", *STEP_FACTS), "evaluation": ("seed", *SCORES)}
    last = {seed: list(run.checkpoint_paths(seed).values())[-1] for seed in SEEDS}
    return {
        "lines": [[line[fact] for fact in facts[line["kind"]]] for line in lines if line["kind"] in facts],
        "last": {seed: folder.name for seed, folder in last.items()},
        "tensors": {
            f"{seed} {file.name}": file.read_bytes()
            for seed, folder in last.items()
            for file in sorted(folder.glob("*.safetensors"))
        },
        "best": {seed: run.best_of(seed) for seed in SEEDS},
        "result": [result[key] for key in ("best", "final", "world_size", "test_mean", "test_std")],
        "per seed": [{key: seed[key] for key in ("best", "final")} for seed in result["per_seed"]],
        "left aside": [str(entry) for entry in path.rglob(".*.tmp-*")],
    }


def lines_of(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def wait_for_moment(job: Job, run: Path, draw: random.Random, total: int) -> None:
    """A random moment of the work, of its first seconds, or of writing something aside; or the end."""
    kind, lines, seconds = draw.choice(("line", "start", "writing")), draw.randrange(total), draw.uniform(0, 5)
    ends = time.monotonic() + seconds

    def come() -> bool:
        if kind == "start":
            return time.monotonic() >= ends
        return lines_of(run) >= lines and (kind == "line" or any(run.rglob(".*.tmp-*")))

    while job.process.poll() is None and not come():
        time.sleep(0.001)


@contextmanager
def stopped(family: list[psutil.Process]) -> Iterator[None]:
    """All of them stand still, so that none can do anything about the death of another."""
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.suspend()
    yield
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()


def kill_all(job: Job) -> None:
    """kill -9 of a command and of all that it started, at one moment."""
    with suppress(psutil.NoSuchProcess):
        command = psutil.Process(job.process.pid)
        with stopped([command, *command.children(recursive=True)]):
            pass
    job.wait()


@pytest.mark.parametrize("number", range(MOMENTS))
def test_a_training_killed_at_any_moment_comes_out_as_if_nothing_had_happened(
    number: int, config: Path, undisturbed: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    workers, draw, run = 1 + number % 2, random.Random(number), tmp_path / "run"
    total = len(undisturbed[workers]["lines"])
    words = ("train", config, f"run.dir={run}", "--resume")
    command = alone(*words) if workers == 1 else torchrun(*words)
    kills = 0
    while kills < KILLS:
        with started(command, tmp_path / f"log {kills}") as job:
            wait_for_moment(job, run, draw, total)
            if job.process.poll() is not None:
                assert job.wait() == 0
                break
            kill_all(job)
        kills += 1
    finish(command, tmp_path / "log of the rest")
    assert everything(run) == undisturbed[workers]


@pytest.mark.parametrize("number", range(5))
def test_a_worker_killed_at_any_moment_is_started_again_and_nothing_is_lost(
    number: int, config: Path, undisturbed: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    draw, run = random.Random(100 + number), tmp_path / "run"
    rank = draw.randrange(2)
    with started(torchrun("train", config, f"run.dir={run}", restarts=2), tmp_path / "log") as job:
        job.wait_until(lambda: rank in job.workers())
        wait_for_moment(job, run, draw, len(undisturbed[2]["lines"]) // 2)
        worker = job.workers().get(rank)
        if worker is not None:
            worker.kill()
        assert job.wait() == 0
    assert everything(run) == undisturbed[2]
    assert json.loads((run / "result.json").read_text())["restarts"] == 1
