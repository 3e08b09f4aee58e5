"""How time and memory of every stage grow with nodes, edges, channels, random features, noise draws and ranks.

    python benchmarks/growth.py [--steps 5] [--nodes 16000] [--write] [--work DIR] [--only AXIS,...]
    python benchmarks/growth.py --paper [--write] [--link 1.25e9] [--disk 1e9]

Each size is twice the one before, 16 times over all. Graphs are random ones, of 16 edges a node along the axis of nodes
(of 3 for hops), and of --nodes along that of edges. Every measurement is a process of its own with one thread;
its CPU seconds are what exponents are fitted to, by least squares through logarithms. Beside them stands what the
performance model says, with this host's speeds measured at the start.

--paper is the same model for 10^9 nodes on many hosts. --write puts what was found into docs/scaling.md.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from billion import billion_lines
from growth_page import Curve, picture, placed, table
from growth_stages import Problem, measure, planned, ranks_facts

from nfdist.files import replace_file
from nfdist.plan.bench import measure_host
from nfdist.plan.rates import HostRates

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # libraries read them once
ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "scaling.md", ROOT / "docs" / "pictures" / "growth.svg"
DEGREE, SPARSE_DEGREE = 16, 3  # edges a node, each counted once
RANKS, RANK_NODES = (1, 2, 4), 1000
PATHS = "the paths that are stored grow with the square of the degree"
PLANNED = (("seconds", "seconds"), ("bytes", "private_bytes"))
TRAINED = ("step, whole graph", "evaluation")


def axes(nodes: int, steps: int) -> dict[str, Callable[[int], tuple[float, Problem]]]:
    """The size and the problem of every step along each axis."""
    base = Problem(nodes, nodes * DEGREE)

    def setting(name: str, first: int) -> Callable[[int], tuple[float, Problem]]:
        def point(step: int) -> tuple[float, Problem]:
            return first << step, replace(base, overrides=(f"{name}={first << step}",))

        return point

    return {
        "nodes": lambda step: (nodes << step, Problem(nodes << step, DEGREE * (nodes << step))),
        "edges": lambda step: (DEGREE * nodes << step, Problem(nodes, DEGREE * nodes << step)),
        "channels": setting("model.channels", 16),
        "random features": setting("model.random_features", 8),
        "noise draws": setting("attention.noise_draws", 1),
    }


STAGES_OF: Mapping[str, tuple[str, ...]] = {
    "nodes": ("partition, METIS", "partition, stream", "step, whole graph", "epoch, batches", "evaluation",
              "hops, order 2", "prediction"),
    "edges": ("partition, METIS", "partition, stream", "step, whole graph", "evaluation", "hops, order 2"),
    "channels": TRAINED,
    "random features": TRAINED,
    "noise draws": ("step, whole graph",),
}  # fmt: skip


def follow(axis: str, stage: str, options: argparse.Namespace, rates: HostRates, work: Path) -> Curve:
    """The curve of a stage along an axis."""
    point = axes(options.nodes, options.steps)[axis]
    sizes, measured, foretold = [], [], []
    for step in range(options.steps):
        size, problem = point(step)
        if stage.startswith("hops"):  # whose paths are many
            problem = replace(problem, edges=problem.edges * SPARSE_DEGREE // DEGREE)
            size = problem.edges if axis == "edges" else size
        found = measure(stage, problem, work)
        sizes.append(float(size))
        measured.append(found)
        foretold.append(planned(stage, problem, work, rates))
        print(f"  {axis} {size:>10,}  {stage:20} {found['cpu_seconds']:8.3f} CPU s", file=sys.stderr, flush=True)
    columns = {name: tuple(one[name] for one in measured) for name in ("seconds", "cpu_seconds", "private_bytes")}
    told = {f"planned_{short}": tuple(one[name] for one in foretold) for short, name in PLANNED}
    note = PATHS if (axis, stage) == ("edges", "hops, order 2") else ""
    return Curve(axis, stage, tuple(sizes), **columns, **told, note=note)


def rank_lines(nodes: int, work: Path) -> list[str]:
    """What ranks send each other, which must not grow with them."""
    lines = ["| ranks, attention over all | bytes sent a step and rank | largest resident set |", "|---|---|---|"]
    for ranks in RANKS:
        found = ranks_facts(Problem(nodes, nodes * DEGREE), work, ranks, RANK_NODES)
        lines.append(f"| {ranks} | {found['sent_bytes']:,.0f} | {found['resident_bytes'] / 2**20:.0f} MiB |")
    return lines


def rate_line(rates: HostRates) -> str:
    return (
        f"Speeds of one thread, measured in the same run: products {rates.product_flops / 1e9:.1f} GFLOP/s, passes "
        f"over memory {rates.passed_bytes / 1e9:.1f} GB/s, rows gathered {rates.gathered_bytes / 1e9:.1f} GB/s, disk "
        f"{rates.disk_read_bytes / 1e9:.2f} GB/s read and {rates.disk_written_bytes / 1e9:.2f} GB/s written. "
        f"Load of the machine: {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores."
    )


def measured_lines(options: argparse.Namespace, rates: HostRates, work: Path) -> tuple[list[str], list[Curve]]:
    curves, started = [], time.perf_counter()
    for axis in options.only:
        if axis != "ranks":
            curves += [follow(axis, stage, options, rates, work) for stage in STAGES_OF[axis]]
    lines = table(curves)
    if "ranks" in options.only:
        lines += ["", *rank_lines(options.nodes, work)]
    command = " ".join(["python benchmarks/growth.py", f"--nodes {options.nodes}", f"--steps {options.steps}"])
    return [*lines, "", rate_line(rates), f"`{command}`, {time.perf_counter() - started:.0f} s."], curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="sizes of an axis, each twice the one before")
    parser.add_argument("--nodes", type=int, default=16000, help="the smallest graph")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*STAGES_OF, "ranks"])
    parser.add_argument("--paper", action="store_true", help="10^9 nodes, by the model")
    parser.add_argument("--link", type=float, default=1.25e9, help="bytes a second between hosts, for --paper")
    parser.add_argument("--disk", type=float, default=1e9, help="bytes a second of a host's disk, likewise")
    parser.add_argument("--write", action="store_true", help="into docs/scaling.md")
    parser.add_argument("--work", type=Path, help="for graphs and runs (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        rates = measure_host(work)
        curves: list[Curve] = []
        if options.paper:
            name, lines = "billion", billion_lines(rates, options.link, options.disk)
        else:
            lines, curves = measured_lines(options, rates, work)
            name = "growth"
    print("\n".join(lines))
    if options.write:
        replace_file(PAGE, placed(PAGE.read_text(), name, lines))
    if options.write and curves:
        PICTURE.parent.mkdir(exist_ok=True)
        replace_file(PICTURE, picture(curves))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    main()
