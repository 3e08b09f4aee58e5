"""What a user gets without settings of their own, beside baselines with usual ones: scores and time, graph by graph.

    NFDIST_DATA=FOLDER python benchmarks/defaults.py [--graphs cora,actor] [--seeds 3] [--models mlp,gcn,gat,mixhop]
        [--rates 0.001,0.003,0.01] [--jobs 1] [--work DIR]

For every graph: `nfdist train PARTITION`, then `nfdist compare` of the baselines, on the same redrawn splits and with
one thread. A row is the mean over the splits of test scores at the best validation epoch, raw and, where training
labels nearby were used, smoothed, and the seconds that a core was at work for the whole command, for one split. With
--rates NodeFormer is trained with each of these learning rates, too, but for the one that the defaults have, and lines
below say how much of the best baseline's gain over the majority class each reaches. A graph that is not in the list
below is taken from the folder as it is. The same command goes on where it was stopped.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nfdist.config import DataConfig
from nfdist.graph.split import split_of
from nfdist.store.source_graph import TEST
from nfdist.store.store import Store
from nfdist.training.defaults import LEARNING_RATE

SPLIT = "random:0.5/0.25/0.25"
# A name in $NFDIST_DATA, and what its partition needs besides.
GRAPHS: dict[str, tuple[str, ...]] = {
    "cora": ("--normalize-features", "row"),
    "citeseer": ("--normalize-features", "row"),
    "pubmed": (),
    "actor": (),
    "deezer-europe": ("--task", "binary"),
    "20news": ("--knn", "5"),
    "wordnet3": (),
    "acl-anthology": (),
}


@dataclass(frozen=True)
class Row:
    """Scores of a model on a graph as fractions, and a core's seconds of its command a split."""

    graph: str
    model: str
    test: float
    deviation: float
    smoothed: float | None
    seconds: float


@dataclass(frozen=True)
class Bench:
    """Where it works, on how many splits."""

    work: Path
    seeds: int

    def partition(self, graph: str) -> Path:
        folder = self.work / "partitions" / graph
        if not folder.exists():
            source = Path(os.environ["NFDIST_DATA"]) / f"{graph}.npz"
            self._nfdist("partition", source, "--parts", 1, "--out", folder, "--split", SPLIT, *GRAPHS.get(graph, ()))
        return folder

    def train(self, graph: str, name: str, *overrides: str) -> Row:
        """NodeFormer with the defaults of the graph, and overrides."""
        run = self.work / "runs" / f"{graph}-{name}"
        seconds = self._timed(run, "train", self.partition(graph), f"run.dir={run}", *self._shared(), *overrides)
        return self._row(graph, name, run, seconds)

    def compare(self, graph: str, model: str) -> Row:
        """A baseline with usual settings."""
        out = self.work / "runs" / f"{graph}-compare-{model}"
        words = ("compare", self.partition(graph), "--models", model, "--out", out)
        return self._row(graph, model, out / model, self._timed(out / model, *words, *self._shared()))

    def majority(self, graph: str) -> float:
        """What the largest class has of the test nodes, or one half where ROC-AUC is measured; over the splits."""
        store = Store.open(self.partition(graph))
        if store.num_classes == 2:
            return 0.5
        shares, labels = [], store.labels(torch.arange(store.num_nodes))
        for seed in range(self.seeds):
            tested = labels[(split_of(store, DataConfig(split=SPLIT), seed) == TEST) & (labels >= 0)].long()
            shares.append(float(torch.bincount(tested).max()) / len(tested))
        return statistics.fmean(shares)

    def _shared(self) -> list[str]:
        """What all trainings have, and the plumbing."""
        seeds = list(range(self.seeds))
        return [f"data.split={SPLIT}", f"train.seeds={seeds}", "observe.port=0", "train.checkpoint_every=0"]

    def _timed(self, run: Path, *words: object) -> float:
        """A core's seconds of a command a split, remembered for the next time."""
        record = run.parent / f"{run.name}.seconds.json"
        if not record.exists():
            record.write_text(json.dumps(self._nfdist(*words) / self.seeds))
        return float(json.loads(record.read_text()))

    def _nfdist(self, *words: object) -> float:
        """Run a command; the seconds that a core was at work, which other work beside it does not change."""
        command = [sys.executable, "-m", "nfdist", *map(str, words)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with tempfile.TemporaryFile("w+") as printed:
            child = subprocess.Popen(command, stdout=printed, stderr=printed, env=environment)
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if status:
                printed.seek(0)
                raise SystemExit(f"{' '.join(command)} failed: {printed.read().strip()[-500:]}")
        return used.ru_utime + used.ru_stime

    def _row(self, graph: str, name: str, run: Path, seconds: float) -> Row:
        seeds: list[dict[str, Any]] = json.loads((run / "result.json").read_text())["per_seed"]
        tests = [seed["best"]["test"] for seed in seeds]
        smoothed = [seed["smoothed"]["test"] for seed in seeds if seed.get("smoothed")]
        deviation = statistics.stdev(tests) if len(tests) > 1 else 0.0
        mean = statistics.fmean(smoothed) if len(smoothed) == len(seeds) else None
        return Row(graph, name, statistics.fmean(tests), deviation, mean, seconds)


def line(row: Row) -> str:
    smoothed = "" if row.smoothed is None else f"{row.smoothed:.4f}"
    return f"  {row.model:14}{row.test:8.4f} ± {row.deviation:.4f}{smoothed:>10}{row.seconds:10.1f}"


def report(bench: Bench, graph: str, models: list[str], rates: list[str], jobs: int) -> str:
    """All rows of a graph, and what they come to."""
    bench.partition(graph)
    with ThreadPoolExecutor(jobs) as pool:
        own = pool.submit(bench.train, graph, "defaults")
        others = [rate for rate in rates if float(rate) != LEARNING_RATE]
        with_rates = [pool.submit(bench.train, graph, f"rate-{rate}", f"train.learning_rate={rate}") for rate in others]
        baselines = [pool.submit(bench.compare, graph, model) for model in models]
    rows = [one.result() for one in (own, *with_rates, *baselines)]
    best = max((one.result() for one in baselines), key=lambda row: max(row.test, row.smoothed or 0.0))
    best_test, majority = max(best.test, best.smoothed or 0.0), bench.majority(graph)
    mine = rows[0]
    gcn = next((one.result().seconds for one in baselines if one.result().model == "gcn"), None)
    lines = [
        f"{graph}, {bench.seeds} splits",
        f"  {'':14}{'test':>17}{'smoothed':>10}{'core s':>10}",
        *map(line, rows),
    ]
    answer = mine.smoothed or mine.test
    lines.append(
        f"  defaults {answer:.4f} against the best baseline's {best_test:.4f}: {100 * (answer - best_test):+.2f}"
    )
    if gcn is not None:
        lines.append(f"  {mine.seconds:.1f} seconds of a core against GCN's {gcn:.1f}: {mine.seconds / gcn:.1f} times")
    for row in [mine, *(one.result() for one in with_rates)] if rates else []:
        gain = (row.test - majority) / max(best_test - majority, 1e-9)
        lines.append(f"  {row.model}: {gain:.0%} of the gain over the majority's {majority:.4f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--models", default="mlp,gcn,gat,mixhop")
    parser.add_argument("--rates", default="")
    parser.add_argument("--seeds", type=int, default=3, help="splits, each with a training (default 3)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--work", type=Path, default=Path("runs/defaults"), help="for partitions and runs")
    options = parser.parse_args()
    if not os.environ.get("NFDIST_DATA"):
        print("NFDIST_DATA is not set: name the folder that has cora.npz and the other graphs", file=sys.stderr)
        return 2
    bench = Bench(options.work.absolute(), options.seeds)
    rates = [rate for rate in options.rates.split(",") if rate]
    for graph in options.graphs.split(","):
        print(report(bench, graph, options.models.split(","), rates, options.jobs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
