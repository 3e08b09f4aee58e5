"""nfdist partition within limits of memory against the same in all of it, on a graph of Amazon2M's shape.

    python benchmarks/partition_memory.py [--scale 0.1] [--parts 8] [--memory 4GiB 2GiB] [--method metis]

Every run is a process of its own, and all make the same graph. The first has the machine's memory and divides by
`--method`; the others have limits and whatever method these allow. Seconds are those after the graph was made, and of
that the stages that every method shares, ordering and writing. CPU seconds are of the
whole command, and less moved by what else the machine does. Memory is private: anonymous and shared, sampled.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nfdist.memory import parse_bytes
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one run, in this process."""
    given = {"scale": options.scale, "parts": options.parts, "method": options.method, "memory": options.side}
    with tempfile.TemporaryDirectory(dir=options.folder) as out:
        given |= {"out": str(Path(out) / "graph")}
        begun = time.process_time()
        outcome = partition(Recipe.build(options.source, {key: value for key, value in given.items() if value}))
        manifest = outcome.manifest
        return {
            "seconds": sum(value for name, value in outcome.seconds.items() if name != "read"),
            "shared": outcome.seconds["order edges"] + outcome.seconds["write"],
            "cpu": time.process_time() - begun,
            "private": outcome.peak_private_bytes,
            "cut": manifest.edge_cut / max(manifest.num_edges, 1),
            "edges": manifest.num_edges,
            "method": manifest.recipe["method"],
        }


def measure(options: argparse.Namespace, memory: str) -> dict[str, Any]:
    """The same in a process of its own."""
    words = ["--side", memory, "--scale", str(options.scale), "--parts", str(options.parts), "--source", options.source]
    words += ["--folder", options.folder] if options.folder else []
    words += ["--method", options.method] if not memory else []
    done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="amazon2m-like")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--memory", nargs="+", default=["4GiB", "2GiB"])
    parser.add_argument("--method", default="", help="of the run in all memory (default: as nfdist chooses)")
    parser.add_argument("--folder", help="where partitions and files lie for a while (default: TMPDIR)")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        print(json.dumps(run(options)))
        return
    whole = measure(options, "")
    print(f"{options.source} at {options.scale:g}, {whole['edges']:,} stored edges, {options.parts} parts")
    print("memory      method  seconds  ratio  order+write  ratio  CPU s  ratio  private GiB     cut")
    for memory in ("", *options.memory):
        found = measure(options, memory) if memory else whole
        kept = not memory or found["private"] <= parse_bytes("memory", memory)
        print(
            f"{memory or 'all':10}{found['method']:>8}"
            f"{found['seconds']:9.1f}{found['seconds'] / whole['seconds']:7.2f}"
            f"{found['shared']:13.1f}{found['shared'] / whole['shared']:7.2f}"
            f"{found['cpu']:7.1f}{found['cpu'] / whole['cpu']:7.2f}"
            f"{found['private'] / 2**30:13.2f}{found['cut']:8.1%}  {'kept' if kept else 'NOT KEPT'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
