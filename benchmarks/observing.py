"""What it costs a step to be observed: metrics that are scraped every second, and an experiment tracker.

    python benchmarks/observing.py [--trackers tensorboard] [--scale 0.01] [--epochs 20] [--pairs 5]

Trainings that are observed take turns with trainings that are not, each a process of one thread. Steps are those of
metrics.jsonl but for the first epoch; core seconds are those of the whole process, its imports included.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceOptions

PORT = 19400
SECONDS_BETWEEN_SCRAPES = 1.0


@contextmanager
def scraping() -> Iterator[list[int]]:
    """Scrape beside the block; the list is as long as the scrapes were many."""
    scrapes, ended = list[int](), threading.Event()

    def work() -> None:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not ended.wait(SECONDS_BETWEEN_SCRAPES):
            try:
                with direct.open(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as answer:
                    scrapes.append(len(answer.read()))
            except OSError:
                continue

    thread = threading.Thread(target=work)
    thread.start()
    yield scrapes
    ended.set()
    thread.join()


def trained(run: Path, *words: str) -> tuple[float, float]:
    """Median seconds of a step, and core seconds in all."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "nfdist", "train", *words, f"run.dir={run}"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line["seconds"] for line in lines if line["kind"] == "step" and line["epoch"] > 0]
    return statistics.median(steps), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trackers", default="tensorboard", help="names with commas between them")
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--batch-nodes", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    names = json.dumps([name for name in options.trackers.split(",") if name])
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph"
        partition(Recipe("amazon2m-like", 1, str(graph), "random", options=SourceOptions(scale=options.scale)))
        words = [str(graph), f"train.epochs={options.epochs}", f"train.batch_nodes={options.batch_nodes}"]
        words += ["train.evaluate_every=5", "evaluate.smoothing=none", "train.early_stop=0"]
        plain, observed, scrapes = list[tuple[float, float]](), list[tuple[float, float]](), 0
        for pair in range(options.pairs):
            plain.append(trained(Path(folder) / f"plain-{pair}", *words, "observe.port=0"))
            watched = ("observe.last_scrape_seconds=0", f"observe.port={PORT}", f"observe.trackers={names}")
            with scraping() as seen:
                observed.append(trained(Path(folder) / f"observed-{pair}", *words, *watched))
            scrapes += len(seen)
    for name, runs in (("plain", plain), (f"observed by metrics and {names}", observed)):
        step, cores = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{name}: {1000 * step:.2f} ms a step, {cores:.2f} core seconds a training")
    ratios = [second[0] / first[0] for first, second in zip(plain, observed, strict=True)]
    print(f"observed / plain, pair by pair: {', '.join(f'{ratio:.3f}' for ratio in ratios)}; {scrapes} scrapes")
    print(f"median: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
