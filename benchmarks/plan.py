"""What `nfdist plan` says beside what is measured: private memory, and seconds of a step or a pass.

    python benchmarks/plan.py [CASE ...] [--scale 0.02] [--cpu] [--json]

Every case is a process of its own, and its peak private memory is sampled while it works. Seconds are those of the
fastest step, or of a whole evaluation, prediction or building of hops, without the start of its process. Run it after
`nfdist doctor --bench`, whose rates the plans take, and where nothing else runs; or else give --cpu, which counts
seconds of the processor with one thread instead of those of a clock, and measures the rates alike at its begin. The
graphs are one of Amazon2M's shape, a sparse one of words, and one of few nodes with wide rows.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from nfdist import settings
from nfdist.api import Predictor
from nfdist.config import Config
from nfdist.evaluation.evaluator import Wanted, evaluate_run
from nfdist.layout import HOPS_SUFFIX
from nfdist.memory import MemoryWatch, parse_bytes
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.plan.bench import measure_host
from nfdist.plan.planned_job import PlannedJob
from nfdist.plan.rates import keep_rates
from nfdist.plan.stages import plan_evaluation, plan_hops, plan_prediction, plan_training
from nfdist.rendezvous import Place
from nfdist.runs.run import Run
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.training.job import train
from nfdist.world import World

PAPER = {
    "model": {"channels": 64, "heads": 1, "random_features": 50, "layers": 2},
    "attention": {"noise_draws": 5},
    "relation": {"order": 1},
    "train": {"epochs": 3, "batch_nodes": 0, "evaluate_every": 0, "checkpoint_every": 0},
    "observe": {"port": 0},
}
BASELINE = ["train.edge_loss=0"]
# What is done, on which graph, and by which settings on top of PAPER's.
CASES: dict[str, tuple[str, str, list[str]]] = {
    "whole": ("train", "large", ["model.layers=3"]),
    "one-layer": ("train", "large", ["model.layers=1"]),
    "large-batch": ("train", "large", ["train.batch_nodes=25000", "train.epochs=1"]),
    "small-batch": ("train", "large", ["train.batch_nodes=2000", "train.epochs=1"]),
    "heads": ("train", "large", ["model.heads=4", "train.batch_nodes=25000", "train.epochs=1"]),
    "softmax": ("train", "large", ["attention.kind=softmax", "train.batch_nodes=25000", "train.epochs=1"]),
    "dropout": ("train", "large", ["model.dropout=0.5", "model.input_dropout=0.5", "train.edge_loss=0"]),
    "double": ("train", "large", ["train.precision=float64", "train.batch_nodes=25000", "train.epochs=1"]),
    "evaluated": ("train", "large", ["train.evaluate_every=1", "train.batch_nodes=10000", "train.epochs=1"]),
    "words": ("train", "sparse", []),
    "words-order-2": ("train", "sparse", ["relation.order=2"]),
    "wide": ("train", "wide", []),
    "branch": ("train", "sparse", ["model.feed_forward=4", "model.graph_layers=2", "train.label_inputs=0.5"]),
    "recomputed": ("train", "large", ["model.layers=3", "train.recompute=always"]),
    "recomputed-words": ("train", "sparse", ["train.recompute=always", "model.heads=2"]),
    "gcn": ("train", "large", ["model.name=gcn", *BASELINE]),
    "gcn-4": ("train", "large", ["model.name=gcn", "model.layers=4", "model.dropout=0.5", *BASELINE]),
    "mlp": ("train", "wide", ["model.name=mlp", "relation.order=0", *BASELINE]),
    "evaluate": ("evaluate", "large", ["model.layers=3"]),
    "evaluate-words": ("evaluate", "sparse", []),
    "evaluate-limit": ("evaluate", "large", ["model.layers=3"]),
    "evaluate-gcn": ("evaluate", "large", ["model.name=gcn", *BASELINE]),
    "evaluate-mlp": ("evaluate", "wide", ["model.name=mlp", "relation.order=0", *BASELINE]),
    "evaluate-branch": (
        "evaluate",
        "sparse",
        ["model.feed_forward=4", "model.graph_layers=2", "train.label_inputs=0.5", "evaluate.smoothing=none"],
    ),
    "evaluate-heads": ("evaluate", "large", ["model.heads=4", "model.layers=1"]),
    "predict": ("predict", "large", []),
    "hops": ("hops", "large", ["relation.order=2"]),
}
LIMITS = {"evaluate-limit": "290MiB"}
NEW_NODES = 1024


def config_of(name: str, folder: Path) -> Config:
    kind, graph, overrides = CASES[name]
    trained = [] if kind == "train" else ["train.epochs=1", "train.batch_nodes=2000"]
    where = [f'data.partition="{folder / graph}"', f'run.dir="{folder / "runs" / name}"']
    return settings.parse(PAPER, [*overrides, *trained, *where])


def make_graph(name: str, folder: Path, scale: float) -> None:
    """Partition the graph of a case, unless it was done."""
    graph = CASES[name][1]
    if (folder / graph).exists():
        return
    source, options = "amazon2m-like", {"scale": scale}
    if graph != "large":
        source, options = str(folder / f"{graph}.npz"), {}
        (write_sparse if graph == "sparse" else write_wide)(Path(source), round(1e6 * scale))
    given = {"parts": 2, "method": "random", "out": str(folder / graph), **options}
    partition(Recipe.build(source, given))


def write_sparse(path: Path, num_nodes: int) -> None:
    stream = np.random.default_rng(0)
    counts = stream.integers(30, 70, num_nodes)
    words = np.concatenate([np.sort(stream.choice(5000, count, replace=False)) for count in counts])
    ends, values = np.concatenate([[0], np.cumsum(counts)]), np.ones(len(words), np.float32)
    shape = np.array([num_nodes, 5000])
    _write(path, num_nodes, feat_indptr=ends, feat_indices=words, feat_data=values, feat_shape=shape)


def write_wide(path: Path, num_nodes: int) -> None:
    rows = np.random.default_rng(0).standard_normal((num_nodes // 2, 1500)).astype(np.float32)
    _write(path, len(rows), feat=rows)


def _write(path: Path, num_nodes: int, **features: Any) -> None:
    stream, nodes = np.random.default_rng(1), np.arange(num_nodes)
    splits: dict[str, Any] = {"train_idx": nodes[::2], "valid_idx": nodes[1::4], "test_idx": nodes[3::4]}
    edges, labels = stream.integers(0, num_nodes, (2, 5 * num_nodes)), stream.integers(0, 7, num_nodes)
    np.savez(path, edge_index=edges, label=labels, **features, **splits)


def planned(name: str, folder: Path) -> dict[str, float]:
    """What a plan says of a case."""
    limit = parse_bytes("limit", LIMITS[name]) if name in LIMITS else None
    job = PlannedJob.of(config_of(name, folder), limit_bytes=limit)
    kind = CASES[name][0]
    stages = {"train": plan_training, "evaluate": plan_evaluation, "predict": plan_prediction, "hops": plan_hops}
    stage = stages[kind](job)
    assert stage is not None
    start = 0.0 if kind == "hops" else job.speed.start_seconds
    return {"bytes": stage.memory_bytes, "seconds": stage.step_seconds or stage.seconds - start}


def measured(name: str, folder: Path) -> dict[str, float]:
    """What the work of a case takes of this process."""
    config, kind = config_of(name, folder), CASES[name][0]
    if kind == "train":
        with MemoryWatch() as watch:
            train(config, Place(), World(), torch.device("cpu"), resume=False)
        lines = list(Run.open(Path(config.run.dir)).metrics())
        seconds = min(line["seconds"] for line in lines if line["kind"] == "step")
        return {"bytes": watch.peak_private_bytes, "seconds": seconds}
    if kind == "evaluate":
        limit = parse_bytes("limit", LIMITS[name]) if name in LIMITS else None
        wanted = Wanted(outputs=True, states=True, smoothing=True)
        found = evaluate_run(Path(config.run.dir), wanted, Place(), World(), memory_bytes=limit)
        return {"bytes": found["peak_private_bytes"], "seconds": found["seconds"]}
    started = time.perf_counter()
    if kind == "hops":
        with MemoryWatch() as watch:
            Hops.open(Store.open(config.data.partition), config.relation.order)
        return {"bytes": watch.peak_private_bytes, "seconds": time.perf_counter() - started}
    with MemoryWatch() as watch:
        predictor = Predictor(Path(config.run.dir))
        rows = predictor.store.take(torch.arange(NEW_NODES)).numpy()
        column = predictor.store.manifest.schema.id_column
        ids = [f"new-{row}" for row in range(NEW_NODES)]
        predictor.predict(pa.table({column: ids, "features": pa.array(rows.tolist(), pa.list_(pa.float32()))}))
    return {"bytes": watch.peak_private_bytes, "seconds": time.perf_counter() - started}


def prepare(name: str, folder: Path) -> None:
    """What must be there before a case is measured: the run that it evaluates."""
    config, kind = config_of(name, folder), CASES[name][0]
    if kind == "train":
        return
    if kind == "hops":  # another case may have built them
        shutil.rmtree(config.data.partition + HOPS_SUFFIX, ignore_errors=True)
        return
    train(config, Place(), World(), torch.device("cpu"), resume=False)
    if kind == "predict":
        evaluate_run(Path(config.run.dir), Wanted(outputs=False, states=True), Place(), World())


def _child(step: str, name: str, folder: Path, cpu: bool) -> dict[str, Any]:
    words = [sys.executable, __file__, name, "--folder", str(folder), "--step", step, *(["--cpu"] if cpu else [])]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if step == "measure" else {}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--scale", type=float, default=0.02, help="of Amazon2M's nodes")
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor, with one thread")
    parser.add_argument("--json", action="store_true", help="a line of JSON a case")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=("prepare", "measure"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cpu:  # of this process, and of those it begins
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)
    if options.step:
        (name,) = options.cases
        if options.step == "prepare":
            prepare(name, options.folder)
        else:
            told = planned(name, options.folder)
            if options.cpu:
                time.perf_counter = time.process_time
            print(json.dumps({"case": name, "planned": told, "measured": measured(name, options.folder)}))
        return
    with tempfile.TemporaryDirectory() as scratch:
        if options.cpu:
            os.environ["NFDIST_CACHE"] = scratch
            print(f"rates: {keep_rates(measure_host(Path(scratch))).read_text()}", file=sys.stderr)
        for name in options.cases or CASES:
            compare(name, Path(scratch), options)


def compare(name: str, folder: Path, options: argparse.Namespace) -> None:
    make_graph(name, folder, options.scale)
    if CASES[name][0] != "train":
        _child(
            "prepare", name, folder, options.cpu
        )  # a process of its own: it must not hold what the measured one does not
    both = _child("measure", name, folder, options.cpu)
    if options.json:
        print(json.dumps(both), flush=True)
        return
    told, found = both["planned"], both["measured"]
    print(
        f"{name:<16} memory {told['bytes'] / 2**20:8.0f} of {found['bytes'] / 2**20:8.0f} MiB "
        f"({told['bytes'] / found['bytes']:.2f})   time {told['seconds']:8.3f} of {found['seconds']:8.3f} s "
        f"({told['seconds'] / found['seconds']:.2f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
