"""The GPU path: what a step asks of a device, counted without one, and how long it takes on a real one.

    python benchmarks/gpu.py --fake [--roofline] [--nodes 2000] [section.key=value ...]
    python benchmarks/gpu.py [--nodes 100000] [--scale 1.0 | --partition DIR] [--only step,loader,evaluation,scaling]
                             [--compile] [--cuda-graphs] [section.key=value ...]

--fake       launches, waits of the host, bytes and arithmetic of one training step, on the fake accelerator of the
             tests; with --roofline also how fast an A100 and an H100 could make it at best (roofline.py)

Without it a GPU is needed, and all figures are of one run, in one table that can be pasted:

step         of the paper's Amazon2M model, on a batch that is on the device: nfdist, the plain transcription and PyG's
             SGFormer, in turns, after the first two have shown that they compute the same loss
loader       how long an epoch of `nfdist train` waits for batches, against masking all edges on the device
evaluation   of the whole graph by `nfdist evaluate` on the device and on the CPU, and by whole tensors on the device
scaling      nodes a second of `nfdist train` on 1, 2, 4, ... GPUs under torchrun

--compile and --cuda-graphs try torch.compile of the model and CUDA graphs of both passes. --device cpu rehearses the
script where there is no GPU.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import roofline
import torch
from device_step import Problem, Step, apart
from gpu_jobs import Row, evaluations, loading, scaling
from roofline import DEVICES, estimate

from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe

ROOT = Path(__file__).parents[1]
SECTIONS = ("step", "loader", "evaluation", "scaling")
SIDES = ("nfdist", "transcription", "SGFormer")
MOST = 25  # operations that are shown


def show_counts(options: argparse.Namespace) -> int:
    """Count steps that come after others; nfdist's also part by part and operation by operation."""
    sys.path.append(str(ROOT))  # the fake accelerator belongs to the tests
    from tests.accelerator import fake
    from tests.accelerator.counts import counted

    if not fake.available():
        print(f"benchmarks/gpu.py: torch {torch.__version__} lets no device be defined in Python", file=sys.stderr)
        return 2

    problem = Problem(options.nodes or 2000, fake.device(), tuple(options.overrides))
    sides = {}
    for name, step in {"nfdist": problem.nfdist(), "transcription": problem.transcription(problem.draw)}.items():
        step()
        with counted() as sides[name]:
            step()
    ours = sides["nfdist"]
    print(f"one training step, {problem.nodes:,} nodes, {problem.batch.num_edges:,} edges, torch {torch.__version__}\n")
    print(_table("step of", {name: _parts(counts, lambda _: "")[""] for name, counts in sides.items()}), "\n")
    print(_table("nfdist's, by part", _parts(ours, lambda asked: asked.line.partition(":")[0])), "\n")
    print(_table("nfdist's, by operation", _parts(ours, lambda asked: asked.operation)))
    for kind in ("syncs", "copies"):
        print(f"\n{ours.table(kind)}")
    if options.roofline:
        gradients = sum(parameter.nbytes for parameter in problem.model().parameters())
        estimates = {}
        for (name, counts), device in product(sides.items(), DEVICES):
            facts = (counts.launches.total(), counts.bytes, counts.flops, problem.batch_bytes, gradients)
            estimates[f"{name}, {device.name}"] = estimate(device, *facts)
        print(f"\n{roofline.table(estimates)}\n")
        print("\n".join(f"{device.name}: {device.source}" for device in DEVICES))
    return 0


def _parts(counts: Any, part_of: Callable[[Any], str]) -> dict[str, list[int]]:
    """Launches, waits, bytes and arithmetic by part, the most bytes first."""
    sums: dict[str, list[int]] = {}
    for place, kind in enumerate((counts.launches, counts.syncs, counts.bytes, counts.flops)):
        for asked, count in kind.items():
            sums.setdefault(part_of(asked), [0, 0, 0, 0])[place] += count
    return dict(sorted(sums.items(), key=lambda item: -item[1][2])[:MOST])


def _table(what: str, rows: Mapping[str, list[int]]) -> str:
    lines = [f"| {what} | launches | waits | MB | GFLOP |", "|---|---|---|---|---|"]
    for name, (launches, waits, moved, flops) in rows.items():
        lines.append(f"| {name} | {launches} | {waits} | {moved / 1e6:,.1f} | {flops / 1e9:,.3f} |")
    return "\n".join(lines)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def in_turns(sides: Mapping[str, Step], device: torch.device, steps: int) -> dict[str, float]:
    """Median seconds a step of every side, after two for warmth; they take turns, so that drift hits all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(steps + 2):
        for name, side in sides.items():
            synchronize(device)
            started = time.perf_counter()
            side()
            synchronize(device)
            if turn >= 2:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_bytes(side: Step, device: torch.device) -> float:
    """The most memory that tensors take while a side makes a step."""
    torch.cuda.reset_peak_memory_stats(device)
    side()
    synchronize(device)
    return float(torch.cuda.max_memory_allocated(device))


def step_rows(problem: Problem, options: argparse.Namespace) -> list[Row]:
    difference = apart(problem)
    assert difference < 1e-3, f"the losses of nfdist and of the transcription differ by {difference:.1e}"
    sides: dict[str, Step | None] = dict(
        zip(SIDES, (problem.nfdist(), problem.transcription(), problem.sgformer()), strict=True)
    )
    if sides["SGFormer"] is None:
        print("torch_geometric with SGFormer is not installed: its column stays empty", flush=True)
    tried: dict[str, Step] = {}
    if options.compile:
        tried["torch.compile"] = problem.nfdist(compiled=True)
    if options.cuda_graphs:
        try:
            tried["CUDA graph, both passes"] = problem.cuda_graph()
        except RuntimeError as error:
            print(f"CUDA graphs: {str(error).splitlines()[0]}", flush=True)
    there = {name: side for name, side in sides.items() if side is not None}
    seconds = in_turns({**there, **tried}, problem.device, options.steps)
    rows = [Row(f"a step, {problem.nodes:,} nodes", "ms", [1e3 * seconds.get(name, torch.nan) for name in SIDES])]
    rows += [Row(f"a step with {name}", "ms", [1e3 * seconds[name]]) for name in tried]
    if problem.device.type == "cuda":
        peaks = [peak_bytes(side, problem.device) if side else torch.nan for side in sides.values()]
        rows.append(Row("peak memory of a step", "GB", [peak / 1e9 for peak in peaks]))
    return rows


def measure(options: argparse.Namespace) -> list[Row]:
    device, overrides = torch.device(options.device), tuple(options.overrides)
    rows = step_rows(Problem(options.nodes or 100_000, device, overrides), options) if "step" in options.only else []
    if options.only == {"step"}:
        return rows
    with tempfile.TemporaryDirectory() as folder:
        directory = options.partition or str(Path(folder) / "partition")
        if not options.partition:
            partition(Recipe.build("amazon2m-like", {"scale": options.scale, "parts": 8, "out": directory}))
        if "loader" in options.only:
            rows += loading(directory, device, options.nodes or 100_000, overrides)
        if "evaluation" in options.only:
            rows += evaluations(directory, device, Path(folder) / "run", overrides)
        if "scaling" in options.only:
            rows += scaling(directory, device, options.nodes or 100_000, overrides)
    return rows


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--roofline", action="store_true")
    parser.add_argument("--nodes", type=int, help="of a batch: 2,000 with --fake, else 100,000")
    parser.add_argument("--steps", type=int, default=20, help="of each side")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--partition", help="a partition to train on, instead of making one")
    parser.add_argument("--only", type=lambda text: set(text.split(",")), default=set(SECTIONS))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--cuda-graphs", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    options = parser.parse_args(words)
    if not options.only <= set(SECTIONS):
        parser.error(f"--only must name some of {','.join(SECTIONS)}, got {','.join(sorted(options.only))}")
    if options.roofline and not options.fake:
        parser.error("--roofline is made of what --fake counts: give both")
    if options.fake:
        return show_counts(options)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks/gpu.py: torch finds no GPU here: --fake counts what a step asks of one", file=sys.stderr)
        return 2
    rows = measure(options)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU, a rehearsal"
    print(f"\n| {name}, torch {torch.__version__} | {' | '.join(SIDES)} | others / nfdist |\n|---|---|---|---|---|")
    print("\n".join(map(str, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
