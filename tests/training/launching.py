"""Trainings as users start them: commands in processes of their own, killed and signaled, with a time limit on all."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from nfdist import settings
from nfdist.runs.run import Run
from tests.training.building import config_of

SECONDS = 150
NFDIST = ("-m", "nfdist")
STEP_FACTS = ("epoch", "step", "nodes", "edges", "loss", "supervised_loss", "edge_loss", "gradient_norm")
SCORES = ("epoch", "step", "train", "valid", "test", "train_loss", "valid_loss", "test_loss")


@dataclass(frozen=True)
class Job:
    """A command in the background. Its output goes to a file, since nobody empties a pipe meanwhile."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self) -> int:
        """The exit code."""
        try:
            return self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {SECONDS} s") from None

    def wait_until(self, happens: Callable[[], Any], pause: float = 0.01) -> None:
        ends = time.monotonic() + SECONDS
        while not happens():
            assert self.process.poll() is None, "ended before it happened"
            assert time.monotonic() < ends, f"did not happen within {SECONDS} s"
            time.sleep(pause)

    def workers(self) -> dict[int, psutil.Process]:
        """The workers that torchrun has at the moment, by their ranks."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.Error):  # one that just ended
                found[int(child.environ().get("RANK", -1))] = child
        return {rank: worker for rank, worker in found.items() if rank >= 0}


@contextmanager
def started(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Job]:
    """A command that ends with the block, together with all it started; its output is shown if the block fails."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
    job = Job(process, log)
    try:
        yield job
    except BaseException:
        print(f"$ {' '.join(command)}\n{job.output}")
        raise
    finally:
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait(SECONDS)


def finish(command: list[str], log: Path) -> str:
    """The output of a command that must succeed."""
    with started(command, log) as job:
        assert job.wait() == 0
    return job.output


def alone(*words: str | Path) -> list[str]:
    """nfdist without torchrun."""
    return [sys.executable, *NFDIST, *map(str, words)]


def torchrun(
    *words: str | Path | int,
    workers: int = 2,
    restarts: int = 0,
    program: tuple[str, ...] = NFDIST,
    host: tuple[str, ...] = (),
) -> list[str]:
    """nfdist, or another program, under torchrun: of its own, or as one of several hosts."""
    launcher = [sys.executable, "-m", "torch.distributed.run", *(host or ("--standalone",))]
    counts = [f"--nproc-per-node={workers}", f"--max-restarts={restarts}"]
    return [*launcher, *counts, *program, *map(str, words)]


def write_config(path: Path, partition: Path, *overrides: str) -> Path:
    """The configuration of a small training in steps of some 10 ms, as a file; run.dir is up to the command."""
    small = ["train.precision=float32", "train.batch_nodes=20", "train.checkpoint_every=10", "run.timeout_seconds=60"]
    path.write_text(settings.dump(config_of(partition, Path(), *small, *overrides)))
    return path


def steps_made(run: Path) -> int:
    """The last step that the metrics of a run tell of."""
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes().split(b"\n")[:-1] if metrics.exists() else []
    return max((json.loads(line)["step"] for line in lines), default=0)


def training_of(path: Path) -> dict[str, Any]:
    """All that must come out the same however often a training was interrupted: to the bit, and nothing twice."""
    run = Run.open(path)
    lines, result = run.metrics(), run.result()
    assert result is not None
    last = list(run.checkpoint_paths(0).values())[-1]
    return {
        "steps": [[line[fact] for fact in STEP_FACTS] for line in lines if line["kind"] == "step"],
        "evaluations": [[line[fact] for fact in SCORES] for line in lines if line["kind"] == "evaluation"],
        "tensors": {file.name: file.read_bytes() for file in sorted(last.glob("*.safetensors"))},
        "last step": last.name,
        "best": run.best_of(0),
        "result": [result[key] for key in ("best", "final", "world_size")],
        "left aside": [str(entry) for entry in path.rglob(".*")],
    }


@dataclass(frozen=True)
class Moment:
    """When a rank is killed: some seconds after its start, or when a step is made, or in writing a checkpoint then."""

    kind: str
    rank: int
    seconds: float = 0.0
    step: int = 0

    @staticmethod
    def draw(kind: str, generator: random.Random, steps: range) -> "Moment":
        rank = 0 if kind == "writing" else generator.randrange(2)  # rank 0 writes
        return Moment(kind, rank, generator.uniform(0, 4), generator.choice(steps))

    def strike(self, job: Job, run: Path) -> None:
        """Wait for the moment and kill the rank with a signal that nobody can catch."""
        job.wait_until(lambda: self.rank in job.workers())
        if self.kind == "start":
            time.sleep(self.seconds)
        else:
            job.wait_until(lambda: steps_made(run) >= self.step)
        worker = job.workers()[self.rank]
        if self.kind == "writing":
            # With the number of the process, since another one may have been killed in writing, too.
            job.wait_until(lambda: list(run.glob(f"checkpoints/seed-0/.step-*.tmp-{worker.pid}-*")), pause=0.001)
        worker.kill()
