"""nfdist partition by one process against the same by ranks of torchrun on this host.

    python benchmarks/partition_ranks.py [--source papers100m-like --scale 0.005] [--parts 8] [--ranks 2]

Every run is a command of its own, and what is written must be the same. Seconds are those of the stages, as nfdist
tells them; CPU seconds are of the whole command with all its workers, and less moved by what else the machine does.
Memory is private, of the rank that holds the most. What ranks send is counted without what they keep for themselves.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def measure(options: argparse.Namespace, ranks: int, out: Path) -> dict[str, Any]:
    """The figures of one command."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    words = ["partition", options.source, "--parts", str(options.parts), "--method", options.method, "--json"]
    words += ["--scale", str(options.scale)] if options.scale else []
    words += ["--memory", options.memory] if options.memory else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "nfdist", *words, "--out", str(out)],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
        check=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures | {"cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def contents(folder: Path) -> dict[str, Any]:
    """What all files hold, by the checksums in a manifest."""
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())["files"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="papers100m-like", help="a made graph, or a path with --scale 0")
    parser.add_argument("--scale", type=float, default=0.005)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--method", default="random")
    parser.add_argument("--memory", default="", help="of a process")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--folder", help="where partitions lie for a while (default: TMPDIR)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        places = {ranks: Path(folder) / str(ranks) for ranks in (1, *options.ranks)}
        found = {ranks: measure(options, ranks, place) for ranks, place in places.items()}
        alone = found[1]
        print(f"{options.source} {options.scale or ''}: {alone['nodes']:,} nodes, {alone['edges']:,} stored edges")
        print("ranks  seconds  ratio  CPU s  ratio  private GiB  sent MiB  written")
        for ranks, one in found.items():
            same = "the same" if contents(places[ranks]) == contents(places[1]) else "ANOTHER PARTITION"
            print(
                f"{ranks:5}{one['seconds']:9.1f}{one['seconds'] / alone['seconds']:7.2f}"
                f"{one['cpu']:7.1f}{one['cpu'] / alone['cpu']:7.2f}"
                f"{one['peak_private_bytes'] / 2**30:13.2f}{one['sent_bytes'] / 2**20:10.1f}  {same}",
                flush=True,
            )


if __name__ == "__main__":
    main()
