"""What it costs that no byte of a partition is used unchecked: the core seconds inside the gates to its files.

    python benchmarks/verify.py [--partition DIR] [--scale 1.0] [--threads 2] [--pairs 3]

evaluate   the paper's Amazon2M model on the whole graph, from the opening of the partition on
train      an epoch of launch/amazon2m-like.toml, in batches of 100,000 nodes

Every run is a process of its own, since a block is checked once a process; files are read once before, so that no disk
is measured. Core seconds are those that the system counts for the threads inside the gates, and for the whole process.
Evaluations take turns with others whose gates are open, by the clock.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from evaluate import build_graph, build_model, made

from nfdist import settings
from nfdist.rendezvous import Place
from nfdist.store.gate import Gate
from nfdist.store.store import Store
from nfdist.training.job import train
from nfdist.world import World

CONFIG = Path(__file__).parents[1] / "launch" / "amazon2m-like.toml"
WANTED = 0.02
CHECKS = ("check", "check_spans", "check_all")


class Timed:
    """Counts the core seconds that all threads spend inside the gates."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = Lock()
        for name in CHECKS:
            setattr(Gate, name, self._counted(getattr(Gate, name)))

    def _counted(self, check: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: Any) -> None:
            started = time.thread_time()
            check(*arguments)
            with self._lock:
                self.seconds += time.thread_time() - started

        return counted


def leave_open() -> None:
    for name in CHECKS:
        setattr(Gate, name, lambda *_: None)


def evaluated(directory: Path) -> None:
    store = Store.open(directory)
    build_graph(store, World()).evaluate(build_model(store.num_features), 0)


def trained(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f'data.partition="{directory}"', f'run.dir="{folder}/run"', "train.epochs=1", "observe.port=0"]
        overrides += ["train.evaluate_every=0", "train.checkpoint_every=0", "run.device=cpu"]
        train(settings.load(CONFIG, overrides), Place(), World(), torch.device("cpu"), resume=False)


SIDES: dict[str, Callable[[Path], None]] = {"evaluate": evaluated, "train": trained}


def measure(side: str, directory: Path, threads: int, unchecked: bool) -> dict[str, float]:
    words = [__file__, "--side", side, "--partition", str(directory), "--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, *words, *(["--unchecked"] if unchecked else [])],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {side}{' unchecked' if unchecked else ''}: {figures}", flush=True)
    return figures


def compare(directory: Path, threads: int, pairs: int) -> None:
    for path in sorted(directory.rglob("*.arrow")):
        path.read_bytes()
    size = sum(path.stat().st_size for path in directory.rglob("*.arrow"))
    both = [[measure("evaluate", directory, threads, unchecked) for unchecked in (False, True)] for _ in range(pairs)]
    epoch = measure("train", directory, threads, False)
    checked, unchecked = (statistics.median(turn[side]["seconds"] for turn in both) for side in (0, 1))
    inside, whole = (statistics.median(turn[0][name] for turn in both) for name in ("inside", "core_seconds"))
    print(f"\n{size / 2**30:.2f} GiB of files{'':11}{'gates, core s':>13}{'in all, core s':>16}{'share':>9}   wanted")
    for name, part, total in (
        ("evaluation", inside, whole),
        ("training epoch", epoch["inside"], epoch["core_seconds"]),
    ):
        print(f"{name:26}{part:13.3f}{total:16.2f}{part / total:9.2%}   at most {WANTED:.0%}")
    print(
        f"evaluation by the clock: {checked:.2f} s, with open gates {unchecked:.2f} s: {checked / unchecked - 1:+.2%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", type=Path, help="a partition of amazon2m-like")
    parser.add_argument("--scale", type=float, default=1.0, help="of the partition that is made without --partition")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--unchecked", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.side:
        timed = Timed()
        if options.unchecked:
            leave_open()
        started, used = time.perf_counter(), time.process_time()
        SIDES[options.side](options.partition)
        seconds, cores = time.perf_counter() - started, time.process_time() - used
        print(json.dumps({"seconds": seconds, "core_seconds": cores, "inside": timed.seconds}))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(options.partition or made(Path(folder), options.scale), options.threads, options.pairs)


if __name__ == "__main__":
    main()
