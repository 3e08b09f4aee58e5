"""The exact evaluation of the paper's Amazon2M model on a whole graph of Amazon2M's shape, against four yardsticks.

    python benchmarks/evaluate.py [--partition DIR] [--small DIR] [--pairs 3] [--threads 2] [--only written]

Without --partition and --small it makes partitions first: 8 METIS parts at full scale (minutes) and at an eighth of it.

products        the same matrix and sparse products alone, on whole tensors and in an evaluation's own chunks and
                threads, into buffers that stay
transcription   the published formulation on whole tensors, edge weights included, at an eighth of the scale
order           the sparse products alone, with the nodes in the order of METIS' parts and in random order
ranks           two processes of one thread each against one process of two
written         scoring with predictions, embeddings and states written, against scoring alone, in turns

Every side runs in a process of its own; evaluations and products take turns in one. Times are medians after a first
run for warmth; memory is what an evaluation adds to the resident set, its input read before. Private memory is sampled.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transcription import OwnDraws, Transcription

from nfdist import seeds
from nfdist.config import AttentionConfig, Config, DataConfig, ModelConfig, RelationConfig
from nfdist.evaluation.evaluator import Evaluator, Wanted
from nfdist.evaluation.full import FullGraph
from nfdist.graph.hop import EdgeSegment, Hop
from nfdist.graph.relation import Relation
from nfdist.graph.workers import Workers
from nfdist.memory import MemoryWatch, peak_resident_bytes
from nfdist.model.loading import TrainedModel
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.rendezvous import Place, join
from nfdist.store.hops import Hops
from nfdist.store.ranges import joined, offsets
from nfdist.store.store import Store
from nfdist.world import World

CHANNELS, CLASSES, LAYERS, RANDOM_FEATURES = 64, 47, 3, 50
RELATION = RelationConfig(order=1, gate="identity")
MODEL = ModelConfig(
    layers=LAYERS,
    channels=CHANNELS,
    heads=1,
    random_features=RANDOM_FEATURES,
    activation="elu",
    jumping_knowledge=True,
)
GIB = 2**30


def build_model(num_features: int) -> NodeFormer:
    return NodeFormer(num_features, CLASSES, MODEL, AttentionConfig(), RELATION).eval()


def build_graph(store: Store, world: World, memory_bytes: int | None = None) -> FullGraph:
    return FullGraph(store, Hops.open(store, 1), RELATION, world, memory_bytes=memory_bytes)


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class Products:
    """Every matrix and sparse product of an evaluation, once, and nothing else; into buffers that stay."""

    def __init__(self, model: NodeFormer, graph: FullGraph, whole: bool) -> None:
        self._hop = Hop(graph._shard.hops[0].segments)
        self._states, self._whole = graph._kept[0], whole
        self._chunks = graph._chunks(model, torch.get_num_threads())
        if whole:
            self._chunks = [slice(0, len(graph.nodes))]
        self._rows = max(rows.stop - rows.start for rows in self._chunks)
        self._buffers = threading.local()
        self._features = torch.rand(self._rows, model.input.in_features)
        widths = (model.input.in_features, CHANNELS, RANDOM_FEATURES, CLASSES)
        self._weights = {(left, right): torch.rand(left, right) for left in widths for right in widths}

    def run(self) -> None:
        if self._whole:
            for state in range(LAYERS + 1):
                self._make(state, self._chunks[0])
            return
        with Workers() as workers:
            for state in range(LAYERS + 1):
                list(workers.map(partial(self._make, state), self._chunks))

    @torch.no_grad()
    def _make(self, state: int, rows: slice) -> None:
        hidden = self._states[rows]
        if state == 0:
            self._product(self._features[: len(hidden)], CHANNELS)
        else:
            self._product(hidden, RANDOM_FEATURES)  # queries
            self._product(self._buffer(RANDOM_FEATURES, len(hidden)), CHANNELS)  # what they get
            self._hop.sums(rows, self._states, hidden)
            self._product(hidden, CHANNELS)  # the map of the sums
        self._product(hidden, CLASSES)
        if state < LAYERS:
            self._product(hidden, CHANNELS)  # keys
            features = self._product(hidden, RANDOM_FEATURES)
            torch.mm(features.t(), hidden, out=self._buffer(CHANNELS, RANDOM_FEATURES))  # their summary

    def _product(self, rows: torch.Tensor, width: int) -> torch.Tensor:
        return torch.mm(rows, self._weights[rows.shape[1], width], out=self._buffer(width, len(rows)))

    def _buffer(self, width: int, rows: int) -> torch.Tensor:
        kept: dict[str, torch.Tensor] = self._buffers.__dict__
        if str(width) not in kept:
            kept[str(width)] = torch.rand(self._rows, width)
        return kept[str(width)][:rows]


class TranscribedEvaluation(Transcription):
    """The published evaluation: whole tensors, no noise, and the weight of every edge, as its forward pass has it."""

    @torch.no_grad()
    def logits(self, features: torch.Tensor, seed: int) -> torch.Tensor:
        draw = Draw(seed, 0, torch.arange(len(features)))
        return self.forward(features, OwnDraws(self.model, draw))[0]


def against_products(store: Store, pairs: int) -> dict[str, float]:
    """Evaluations and their products in turns, and the peak of the evaluations."""
    model, graph = build_model(store.num_features), build_graph(store, World())
    graph.evaluate(model, 0)
    resident = peak_resident_bytes()
    sides: dict[str, Callable[[], object]] = {
        "evaluate": lambda: graph.evaluate(model, 0),
        "products": Products(model, graph, whole=False).run,
        "whole": Products(model, graph, whole=True).run,
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(pairs + 1):
        for name, side in sides.items():
            times[name].append(seconds(side))
    return {**{name: statistics.median(values[1:]) for name, values in times.items()}, "resident": resident}


def in_memory(store: Store, memory_bytes: int) -> dict[str, float]:
    """An evaluation under a limit, with all it needs."""
    with MemoryWatch() as watch:
        graph = build_graph(store, World(), memory_bytes)
        model = build_model(store.num_features)
        graph.evaluate(model, 0)
        took = seconds(lambda: graph.evaluate(model, 0))
    return {"seconds": took, "private": watch.peak_private_bytes, "resident": peak_resident_bytes()}


def alone(store: Store, pairs: int) -> dict[str, float]:
    """An evaluation, and the memory it adds."""
    for _, rows in store.scan(1 << 16):
        rows.sum()
    for number in range(len(store.parts)):
        store.in_edges(number)[1].sum()
    before = peak_resident_bytes()
    model, graph = build_model(store.num_features), build_graph(store, World())
    graph.evaluate(model, 0)
    took = [seconds(lambda: graph.evaluate(model, 0)) for _ in range(pairs)]
    return {"seconds": statistics.median(took), "added": peak_resident_bytes() - before}


def transcribed(store: Store, pairs: int) -> dict[str, float]:
    """The transcription, the memory it adds, and how far its logits are from nfdist's, relative to the largest."""
    everyone = torch.arange(store.num_nodes)
    model = build_model(store.num_features)
    other = TranscribedEvaluation(model, Relation.build(store.induced(everyone, loops=True)))
    features = store.take(everyone)
    before = peak_resident_bytes()
    logits = other.logits(features, 0)
    added = peak_resident_bytes() - before
    took = [seconds(lambda: other.logits(features, 0)) for _ in range(pairs)]
    ours = build_graph(store, World()).evaluate(model, 0).logits
    apart = float((ours - logits).abs().max() / logits.abs().max())
    assert apart < 1e-3, apart
    return {"seconds": statistics.median(took), "added": added, "apart": apart}


def in_random_order(hop: Hop, num_nodes: int) -> Hop:
    """The same sums with the nodes in another order."""
    order = seeds.numpy_generator(0, "order").permutation(num_nodes)
    place = np.empty_like(order)
    place[order] = np.arange(num_nodes)
    indptr = np.concatenate([edges.indptr[:-1].numpy() for edges in hop.segments])
    counts = np.concatenate([edges.indptr.diff().numpy() for edges in hop.segments])
    first = np.repeat(
        offsets(np.array([edges.num_edges for edges in hop.segments]))[:-1],
        [len(edges.indptr) - 1 for edges in hop.segments],
    )
    sources = np.concatenate([edges.sources.numpy() for edges in hop.segments])
    taken = sources[joined((indptr + first)[order], counts[order])]
    edges = EdgeSegment(0, torch.from_numpy(offsets(counts[order])), torch.from_numpy(place[taken].astype(np.int32)))
    return Hop([edges])


def by_order(store: Store, pairs: int) -> dict[str, float]:
    """The sparse product of one layer in both orders, in turns."""
    graph = build_graph(store, World())
    model = build_model(store.num_features)
    graph.evaluate(model, 0)
    hop = Hop(graph._shard.hops[0].segments)
    sides = {"metis": hop, "random": in_random_order(hop, store.num_nodes)}
    states, chunks = graph._kept[0], graph._chunks(model, torch.get_num_threads())

    def sum_all(side: Hop, workers: Workers) -> None:
        for _ in workers.map(lambda rows: side.sums(rows, states, states[rows]).shape, chunks):
            pass

    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(pairs + 1):
        for name, side in sides.items():
            with Workers() as workers:
                times[name].append(seconds(partial(sum_all, side, workers)))
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def of_ranks(store: Store, pairs: int) -> dict[str, float]:
    """An evaluation by the ranks that torchrun started."""
    with join(Place.read(os.environ), torch.device("cpu"), 600) as world:
        model, graph = build_model(store.num_features), build_graph(store, world)
        graph.evaluate(model, 0)
        took = [seconds(lambda: graph.evaluate(model, 0)) for _ in range(pairs)]
        return {"seconds": statistics.median(took), "sent": world.watch.sent_bytes / (pairs + 1)}


def written(store: Store, pairs: int) -> dict[str, float]:
    """Evaluations that write all there is by default, but unsmoothed, and such that only score, in turns."""
    config = Config(DataConfig(str(store.directory)), MODEL, AttentionConfig(), RELATION)
    trained = TrainedModel(build_model(store.num_features), config, 0, 0, 0, store.fingerprint(), "")
    evaluator = Evaluator(trained, Place(), World())
    with tempfile.TemporaryDirectory() as folder:
        evaluate = partial(evaluator.evaluate, trained, Path(folder))
        sides = {"alone": Wanted(), "written": Wanted(outputs=True, states=True)}
        times: dict[str, list[float]] = {name: [] for name in sides}
        private: dict[str, float] = {}
        for _ in range(pairs + 1):
            for name, wanted in sides.items():
                facts = evaluate(wanted)
                times[name].append(facts["seconds"])
                private[name] = facts["peak_private_bytes"]
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    return {**medians, **{f"private {name}": value for name, value in private.items()}, "bytes": size}


SIDES: dict[str, Callable[[Store, int], dict[str, float]]] = {
    "products": against_products,
    "limited": lambda store, pairs: in_memory(store, 2 * GIB),
    "alone": alone,
    "transcribed": transcribed,
    "order": by_order,
    "ranks": of_ranks,
    "written": written,
}


def measure(side: str, directory: Path, pairs: int, threads: int, ranks: int = 0) -> dict[str, Any]:
    """The figures of a side, from a process of its own or from several ranks."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    words = [__file__, "--side", side, "--partition", str(directory), "--pairs", str(pairs), "--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, *launcher, *words], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {side}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)
    return figures


def compare_written(full: Path, pairs: int, threads: int) -> None:
    found = measure("written", full, pairs, threads)
    ratio, more = found["written"] / found["alone"], found["private written"] - found["private alone"]
    print(f"\n{'':32}{'written':>12}{'alone':>12}{'ratio':>8}   wanted")
    print(f"{'s, with all that is written':32}{found['written']:12.2f}{found['alone']:12.2f}{ratio:8.2f}   <= 1.1")
    print(f"{'GiB private more, GiB written':32}{more / GIB:12.2f}{found['bytes'] / GIB:12.2f}", flush=True)


def compare(full: Path, small: Path, pairs: int, threads: int) -> None:
    products, limited, order = (measure(side, full, pairs, threads) for side in ("products", "limited", "order"))
    ranks = measure("ranks", full, pairs, threads // 2, ranks=2)
    ours, theirs = (measure(side, small, pairs, threads) for side in ("alone", "transcribed"))
    evaluate = products["evaluate"]
    print(f"\n{'':32}{'nfdist':>12}{'other':>12}{'ratio':>8}   wanted")
    rows = (
        ("s, against whole products", evaluate, products["whole"], evaluate / products["whole"], ""),
        ("s, against products in chunks", evaluate, products["products"], evaluate / products["products"], "<= 1.5"),
        ("GiB resident", products["resident"] / GIB, 5, products["resident"] / GIB / 5, "<= 1"),
        ("GiB private, limited to 2", limited["private"] / GIB, 2, limited["private"] / GIB / 2, "<= 1"),
        ("s, limited to 2 GiB", limited["seconds"], evaluate, limited["seconds"] / evaluate, ""),
        (
            "s, against the transcription",
            ours["seconds"],
            theirs["seconds"],
            theirs["seconds"] / ours["seconds"],
            ">= 15",
        ),
        (
            "GiB added, against it",
            ours["added"] / GIB,
            theirs["added"] / GIB,
            ours["added"] / theirs["added"],
            "<= 0.1",
        ),
        ("s, sparse product, random order", order["metis"], order["random"], order["random"] / order["metis"], ""),
        ("s, 2 ranks of half the threads", ranks["seconds"], evaluate, evaluate / ranks["seconds"], ">= 0.85"),
    )
    for name, left, right, ratio, wanted in rows:
        print(f"{name:32}{left:12.2f}{right:12.2f}{ratio:8.2f}   {wanted}")


def made(folder: Path, scale: float) -> Path:
    out = folder / f"scale-{scale}"
    partition(Recipe.build("amazon2m-like", {"scale": scale, "parts": 8, "out": str(out)}))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", type=Path, help="a partition of amazon2m-like into 8 parts")
    parser.add_argument("--small", type=Path, help="one of an eighth of the scale")
    parser.add_argument("--scale", type=float, default=1.0, help="of the partition that is made without --partition")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("written",), help="nothing else")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.side:
        figures = SIDES[options.side](Store.open(options.partition), options.pairs)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(figures))
        return
    with tempfile.TemporaryDirectory() as folder:
        full = options.partition or made(Path(folder), options.scale)
        compare_written(full, options.pairs, options.threads)
        if options.only:
            return
        small = options.small or made(Path(folder), options.scale / 8)
        compare(full, small, options.pairs, options.threads)


if __name__ == "__main__":
    main()
