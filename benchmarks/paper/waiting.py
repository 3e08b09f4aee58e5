"""How long threads should spin for each other: an epoch of Cora by their patience, alone and where cores are wanted.

    NFDIST_DATA=FOLDER python benchmarks/paper/waiting.py [--turns 8] [--threads 2]

Every patience (libgomp's GOMP_SPINCOUNT, or torch's own default) has processes of its own, and so has the published
recipe, with torch's default. They take turns of five epochs: alone, beside a process that only counts, and two of a
kind at once.
"""

import argparse
import multiprocessing
import statistics
import tempfile

from epoch import ROOT, start

from nfdist import settings
from nfdist.config import Config
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe

SPINS = ("0", "1000", "3000", "10000")


def count() -> None:
    while True:
        pass


def measure(config: Config, turns: int, threads: int, at_once: int, busy: bool) -> dict[str, float]:
    """The median seconds of each kind's epochs, after a turn that is not counted."""
    kinds = {f"spin {spin}": ("nfdist", {"GOMP_SPINCOUNT": spin}) for spin in SPINS}
    kinds |= {"torch's default": ("nfdist", {}), "published recipe": ("published", {})}
    sides = {
        name: [start(side, config, threads, environment) for _ in range(at_once)]
        for name, (side, environment) in kinds.items()
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    counter = multiprocessing.get_context("spawn").Process(target=count, daemon=True)
    if busy:
        counter.start()
    for turn in range(turns + 1):
        for name, copies in sides.items():
            for copy in copies:
                copy.send("epoch")
            seconds = [each for copy in copies for each in copy.recv()]
            times[name] += seconds if turn else []
    if busy:
        counter.kill()
    for copies in sides.values():
        for copy in copies:
            copy.send("")
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        partition(Recipe.build(str(ROOT / "partitions/cora.toml"), {"out": f"{folder}/cora"}))
        config = settings.load(ROOT / "launch/paper/cora.toml", [f"data.partition={folder}/cora"])
        situations = {"alone": (1, False), "beside a busy process": (1, True), "two at once": (2, False)}
        medians = {
            title: measure(config, options.turns, options.threads, at_once, busy)
            for title, (at_once, busy) in situations.items()
        }
    print(f"{'an epoch of Cora, ms':24}" + "".join(f"{title:>24}" for title in medians))
    for name in medians["alone"]:
        print(f"{name:24}" + "".join(f"{1e3 * column[name]:24.0f}" for column in medians.values()))


if __name__ == "__main__":
    main()
