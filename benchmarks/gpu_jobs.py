"""Whole jobs on a device, as users start them: what benchmarks/gpu.py shows besides a single step."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from device_step import SEED, Problem
from evaluate import TranscribedEvaluation, build_model
from train import CONFIG, OVERRIDES, Launch, median

from nfdist.graph.relation import Relation
from nfdist.store.store import Store

THREADS = 2  # of a rank, beside its GPU


@dataclass(frozen=True)
class Row:
    """A line of the table: nfdist's figure, the transcription's and SGFormer's, NaN or left out where there is none."""

    what: str
    unit: str
    figures: Sequence[float]

    def __str__(self) -> str:
        figures = [*self.figures, math.nan, math.nan, math.nan][:3]
        ratios = [f"{other / figures[0]:.2f}" if other == other else "" for other in figures[1:]]
        shown = " | ".join("" if figure != figure else f"{figure:,.3g} {self.unit}" for figure in figures)
        return f"| {self.what} | {shown} | {' '.join(ratios)} |"


def loading(partition: str, device: torch.device, batch_nodes: int, overrides: tuple[str, ...]) -> list[Row]:
    """Steps with the making of their batches, and how long the device waits for these."""
    steps = Launch(1, THREADS, batch_nodes, (f"run.device={device.type}", *overrides)).train(partition)
    waits, whole = (1e3 * median(steps, key) for key in ("wait_seconds", "wall_seconds"))
    return [
        Row("a step of `nfdist train`, batch included", "ms", [whole]),
        Row(
            "of it waiting for the batch; masking all edges instead",
            "ms",
            [waits, masking(partition, device, batch_nodes)],
        ),
    ]


def masking(partition: str, device: torch.device, batch_nodes: int) -> float:
    """Milliseconds to find a batch's edges as the published code does, by a mask of all edges, on the device."""
    store = Store.open(partition)
    everyone = torch.arange(store.num_nodes)
    graph = store.induced(everyone, loops=True)
    edge_index = torch.stack([graph.sources, graph.targets]).long().to(device)
    took = []
    for step in range(7):
        started = time.perf_counter()
        node_ids = torch.randperm(store.num_nodes, generator=torch.Generator().manual_seed(step))[:batch_nodes].to(
            device
        )
        inside = torch.zeros(store.num_nodes, dtype=torch.bool, device=device)
        inside[node_ids] = True
        rows = torch.empty(store.num_nodes, dtype=torch.long, device=device)
        rows[node_ids] = torch.arange(len(node_ids), device=device)
        kept = inside[edge_index[0]] & inside[edge_index[1]]
        float(rows[edge_index[:, kept]].sum())  # until it is there
        took.append(time.perf_counter() - started)
    return 1e3 * sorted(took)[3]


def evaluations(partition: str, device: torch.device, run: Path, overrides: tuple[str, ...]) -> list[Row]:
    """The whole graph: by `nfdist evaluate` on the device and on the CPU, and as whole tensors on the device."""
    given = ["train.epochs=1", *OVERRIDES, f"run.device={device.type}", f"data.partition={partition}", f"run.dir={run}"]
    _nfdist("train", str(CONFIG), *given, *overrides)
    rows = []
    for place in dict.fromkeys((device.type, "cpu")):
        answer = json.loads(_nfdist("evaluate", str(run), "--device", place, "--json").splitlines()[-1])
        others = _whole_tensors(partition, device) if place == device.type else []
        rows.append(Row(f"`nfdist evaluate` on {place}; the others a pass alone", "s", [answer["seconds"], *others]))
    return rows


def _whole_tensors(partition: str, device: torch.device) -> list[float]:
    """Seconds of the transcription's and of SGFormer's pass over the whole graph, NaN where it does not fit."""
    store = Store.open(partition)
    everyone = torch.arange(store.num_nodes)
    relation = Relation.build(store.induced(everyone, loops=True)).to(device)
    model, features = build_model(store.num_features).to(device), store.take(everyone).to(device)
    seconds = []
    try:
        transcribed = TranscribedEvaluation(model, relation)
        for _ in range(2):
            started = time.perf_counter()
            float(transcribed.logits(features, SEED).sum())
        seconds.append(time.perf_counter() - started)
    except torch.OutOfMemoryError:
        seconds.append(math.nan)
    return [*seconds, _sgformer(features, relation, device)]


def _sgformer(features: torch.Tensor, relation: Relation, device: torch.device) -> float:
    model = Problem(2, device).sgformer_model()
    if model is None:
        return math.nan
    graph = relation.adjacency
    edge_index = torch.stack([graph.sources, graph.targets]).long()
    try:
        with torch.no_grad():
            for _ in range(2):
                started = time.perf_counter()
                float(model.eval()(features, edge_index, edge_index.new_zeros(len(features))).sum())
    except torch.OutOfMemoryError:
        return math.nan
    return time.perf_counter() - started


def scaling(partition: str, device: torch.device, batch_nodes: int, overrides: tuple[str, ...]) -> list[Row]:
    """Nodes a second on 1, 2, 4, ... devices, attending to a rank's own batch and to all."""
    most = torch.cuda.device_count() if device.type == "cuda" else 2
    rows, alone = [], math.nan
    for ranks in (count for count in (1, 2, 4, 8, 16) if count <= most):
        for scope in ("rank", "world")[: 1 if ranks == 1 else 2]:
            given = (f"run.device={device.type}", f"attention.scope={scope}", *overrides)
            steps = Launch(ranks, THREADS, batch_nodes, given).train(partition)
            rate = ranks * median(steps, "nodes") / median(steps, "wall_seconds")
            alone = rate if ranks == 1 else alone
            rows.append(Row(f"{ranks} ranks, scope {scope}: {rate / alone:.2f} times one", "nodes/s", [rate]))
    return rows


def _nfdist(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "nfdist", *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout
