"""Training steps that take the whole graph: memory and time with all of its layers kept, and with them made again.

    python benchmarks/whole_graph.py [--scale 0.25] [--steps 3] [--partition DIR] [section.key=value ...]
    python benchmarks/whole_graph.py --against-batches SECONDS [--batch 100000]

Each side is an `nfdist train` of launch/amazon2m-like.toml with train.batch_nodes=0 in a process of its own. Memory is
what is private to it (anonymous and shared, sampled) and its peak resident set, with mapped files; the seconds of a
step are the median without the first one. With --against-batches each trains for about so long on the CPU, evaluations
not counted, and shows its best validation score and the test score at that epoch: steps of the whole graph beside
steps of batches.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.runs.run import METRICS_FILE
from nfdist.store.store import Store

CONFIG = Path(__file__).parents[1] / "launch" / "amazon2m-like.toml"
OVERRIDES = ("run.device=cpu", "observe.port=0", "train.checkpoint_every=0", "evaluate.smoothing=none")
GIB = 2**30
MANY = 1_000_000  # epochs: more than there is time for
Line = dict[str, Any]  # of a run's metrics


@dataclass(frozen=True)
class Trained:
    """What a training showed: its steps and evaluations, and the most memory it had."""

    lines: list[Line]
    private: int
    resident: int

    def of(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["kind"] == kind]


def train(directory: Path, seconds: float | None, *overrides: str) -> Trained:
    """A training in a process of its own, ended after some seconds of its steps."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "nfdist", "train", str(CONFIG), *OVERRIDES, *overrides]
        command += [f"data.partition={directory}", f"run.dir={run}"]
        private = resident = 0
        with (Path(folder) / "stderr").open("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            while process.poll() is None:
                time.sleep(0.02)
                status = read(Path(f"/proc/{process.pid}/status"))
                private = max(private, field_bytes(status, "RssAnon") + field_bytes(status, "RssShmem"))
                resident = max(resident, field_bytes(status, "VmHWM"))
                if seconds is not None and trained_seconds(run) > seconds:
                    process.terminate()
                    process.wait()
            if process.returncode and seconds is None:
                errors.seek(0)
                sys.exit(errors.read())
        return Trained(metrics(run), private, resident)


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # not there yet, or no longer
        return ""


def field_bytes(status: str, field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def metrics(run: Path) -> list[Line]:
    return [json.loads(line) for line in read(run / METRICS_FILE).splitlines(keepends=True) if line.endswith("\n")]


def trained_seconds(run: Path) -> float:
    return float(sum(line["seconds"] for line in metrics(run) if line["kind"] == "step"))


def show_memory(directory: Path, options: argparse.Namespace) -> None:
    print(f"{'train.recompute':18}{'GiB private':>14}{'GiB resident':>14}{'s a step':>12}{'last loss':>14}")
    for side in options.only:
        whole = ("train.batch_nodes=0", "train.evaluate_every=0", f"train.epochs={options.steps}")
        trained = train(directory, None, *whole, f"train.recompute={side}", *options.overrides)
        steps = trained.of("step")
        seconds = statistics.median(step["seconds"] for step in steps[1:] or steps)
        memory = f"{trained.private / GIB:14.2f}{trained.resident / GIB:14.2f}"
        print(f"{side:18}{memory}{seconds:12.1f}{steps[-1]['loss']:14.6f}", flush=True)


def show_scores(directory: Path, options: argparse.Namespace) -> None:
    print(
        f"{'train.batch_nodes':18}{'steps':>8}{'s of steps':>12}{'best valid':>12}{'its test':>12}{'GiB private':>14}"
    )
    for batch_nodes in (0, options.batch):
        given = (f"train.batch_nodes={batch_nodes}", f"train.epochs={MANY}", f"train.evaluate_every={options.every}")
        trained = train(directory, options.against_batches, *given, *options.overrides)
        steps, evaluations = trained.of("step"), trained.of("evaluation")
        if not evaluations:
            sys.exit(f"{options.against_batches} s are too few for an evaluation: give more, or a smaller --every")
        best = max(evaluations, key=lambda line: line["valid"])
        facts = f"{len(steps):8}{sum(step['seconds'] for step in steps):12.0f}{best['valid']:12.4f}{best['test']:12.4f}"
        print(f"{batch_nodes:<18,}{facts}{trained.private / GIB:14.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--partition", type=Path, help="a partition to train on, instead of making one")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["never", "always"])
    parser.add_argument("--against-batches", type=float, metavar="SECONDS", help="compare scores instead")
    parser.add_argument("--batch", type=int, default=100_000, help="nodes of a batch")
    parser.add_argument("--every", type=int, default=1, help="epochs between evaluations")
    parser.add_argument("overrides", nargs="*", help="settings of all sides")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = options.partition or Path(folder) / "partition"
        if not options.partition:
            partition(Recipe.build("amazon2m-like", {"scale": options.scale, "parts": 8, "out": str(directory)}))
        manifest = Store.open(directory).manifest
        threads = os.environ.get("OMP_NUM_THREADS", "all")
        print(f"{manifest.num_nodes:,} nodes, {manifest.num_edges:,} edges, {threads} threads", flush=True)
        (show_memory if options.against_batches is None else show_scores)(directory, options)


if __name__ == "__main__":
    main()
