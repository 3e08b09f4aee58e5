"""The building of hops beside a partition, against the product of sparse matrices in memory that defines them.

    python benchmarks/hops.py [--source amazon2m-like] [--scale 0.005] [--order 2] [--parts 4] [--folder DIR]
    python benchmarks/hops.py --partition DIR --without product      # of a graph whose product would not fit

Each side is a process of its own and reads the same partition; both have the same edges, or the script fails. CPU
seconds are less moved by what else the machine does than seconds. Memory is private, sampled, beyond what the process
held before. The estimate is what a refusal would tell: its CPU seconds, and the edges it expects by those there are.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from nfdist.errors import ConfigError
from nfdist.files import remove
from nfdist.layout import HOPS_SUFFIX
from nfdist.memory import MemoryWatch, private_bytes
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.store.hop_building import Limits
from nfdist.store.hops import Hops
from nfdist.store.store import Store

SIDES = ("nfdist", "product", "estimate")


def build(store: Store, order: int) -> list[int]:
    """By nfdist, anew."""
    kept = store.directory.resolve().with_name(f"{store.directory.name}{HOPS_SUFFIX}")
    for old in kept.glob("order-*"):
        remove(old)
    hops = Hops.open(store, order)
    return [sum(part.num_edges for part in pattern) for pattern in hops.patterns]


def multiply(store: Store, order: int) -> list[int]:
    """By the definition, part by part."""
    step = store.induced(torch.arange(store.num_nodes), loops=True)
    shorter, found = [step.to_targets(slice(part.start, part.stop)) for part in store.parts], []
    for _ in range(2, order + 1):
        shorter = [part.after(step) for part in shorter]
        found.append(sum(part.num_edges for part in shorter))
    return found


def estimate(store: Store, order: int) -> list[int]:
    """What a disk without room makes nfdist tell."""
    try:
        Hops.open(store, order, limits=Limits(disk_bytes=1))
    except ConfigError as error:
        told = re.search(r"about ([\d,]+) edges at hop (\d+)", str(error))
        assert told
        return [int(told[1].replace(",", ""))]
    raise AssertionError("nothing was refused")


WORKS: dict[str, Callable[[Store, int], list[int]]] = {"nfdist": build, "product": multiply, "estimate": estimate}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one side, in this process."""
    store, held = Store.open(options.partition), private_bytes()
    begun, cpu = time.perf_counter(), time.process_time()
    with MemoryWatch() as watch:
        edges = WORKS[options.side](store, options.order)
    return {
        "edges": edges,
        "cpu": time.process_time() - cpu,
        "seconds": time.perf_counter() - begun,
        "private": watch.peak_private_bytes - held,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="amazon2m-like")
    parser.add_argument("--scale", type=float, default=0.005)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--order", type=int, default=2)
    parser.add_argument("--partition", help="one that is there already, instead of a source")
    parser.add_argument("--folder", help="where the partition is made")
    parser.add_argument("--without", nargs="*", default=[], choices=SIDES)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run(options)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) if not options.partition else nullcontext() as folder:
        if folder is not None:
            options.partition = str(Path(folder) / "graph")
            given = {"scale": options.scale, "parts": options.parts, "method": "random", "out": options.partition}
            partition(Recipe.build(options.source, given))
        compare(options)


def compare(options: argparse.Namespace) -> None:
    sides = [side for side in reversed(SIDES) if side not in options.without]  # an estimate needs hops not to be there
    found: dict[str, dict[str, Any]] = {}
    for side in sides:
        words = ["--side", side, "--partition", options.partition, "--order", str(options.order)]
        done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
        found[side] = json.loads(done.stdout.splitlines()[-1])
    store = Store.open(options.partition)
    threads = torch.get_num_threads()
    print(f"{store.num_nodes:,} nodes, {store.num_edges:,} edges, {len(store.parts)} parts, {threads} threads")
    print(f"{'side':10} {'CPU s':>8} {'seconds':>8} {'private MiB':>12} {'edges':>16}")
    for side, row in found.items():
        print(
            f"{side:10} {row['cpu']:8.2f} {row['seconds']:8.1f} {row['private'] / 2**20:12.0f} {row['edges'][-1]:16,}"
        )
    if "nfdist" in found and "product" in found:
        assert found["nfdist"]["edges"] == found["product"]["edges"]
        print(f"CPU seconds: {found['nfdist']['cpu'] / found['product']['cpu']:.2f} of the product's")
    if "nfdist" in found and "estimate" in found:
        print(
            f"edges: {found['estimate']['edges'][-1] / found['nfdist']['edges'][0]:.3f} of them were expected at hop 2"
        )


if __name__ == "__main__":
    main()
