"""One training step of the paper's Amazon2M model: nfdist against a plain transcription and against its own products.

    python benchmarks/attention.py [--pairs 10] [--nodes 100000]

Three sides, taken in turns within one process so that drift hits all of them: nfdist's step, the transcription's step
(benchmarks/transcription.py, the same weights and the same function) and the dense matrix products of the formulation
alone (forward and needed backward, each once, on whole tensors). Memory is the growth of the peak resident set over
three steps, each side in a process of its own. Times are medians.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import torch.nn.functional as F
from transcription import Transcription

from nfdist import seeds
from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.graph.relation import Relation
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency

FEATURES, CHANNELS, CLASSES, LAYERS, RANDOM_FEATURES, DRAWS = 100, 64, 47, 3, 50, 5
EDGE_LOSS = 0.01


@dataclass(frozen=True)
class Setting:
    """A batch of random nodes with 2.1 edges each, and the paper's model for it."""

    nodes: int

    @cached_property
    def relation(self) -> Relation:
        edges = torch.randint(self.nodes, (2, int(2.1 * self.nodes)), generator=seeds.generator(0, "edges"))
        return Relation.build(Adjacency.from_edges(edges[0], edges[1], self.nodes))

    @cached_property
    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = seeds.generator(0, "batch")
        features = torch.randn(self.nodes, FEATURES, generator=generator)
        return features, torch.randint(CLASSES, (self.nodes,), generator=generator)

    @cached_property
    def model(self) -> NodeFormer:
        model = ModelConfig(
            layers=LAYERS,
            channels=CHANNELS,
            heads=1,
            random_features=RANDOM_FEATURES,
            activation="elu",
            jumping_knowledge=True,
        )
        return NodeFormer(
            FEATURES, CLASSES, model, AttentionConfig(noise_draws=DRAWS), RelationConfig(order=1, gate="identity")
        )

    @cached_property
    def node_ids(self) -> torch.Tensor:
        return torch.arange(self.nodes)

    def loss(self, step: int) -> torch.Tensor:
        features, labels = self.batch
        scale = self.model.auxiliary_scale(EDGE_LOSS, self.relation.adjacency.num_edges)
        output = self.model(features, [self.relation], Draw(0, step, self.node_ids), auxiliary_scale=scale)
        loss: torch.Tensor = F.cross_entropy(output.logits, labels) + output.auxiliary_loss
        return loss

    def step(self) -> None:
        self.loss(step=0).backward()
        self.model.zero_grad()

    @cached_property
    def transcription(self) -> Transcription:
        return Transcription(self.model, self.relation)

    def transcribed_step(self) -> None:
        self.transcription.loss(*self.batch, EDGE_LOSS).backward()
        self.model.zero_grad()

    @cached_property
    def operands(self) -> dict[str, torch.Tensor]:
        """Tensors of the right sizes: n nodes, d channels, f input and m random features, w = k x m, o = k x d."""
        sizes = {"n": self.nodes, "d": CHANNELS, "f": FEATURES, "m": RANDOM_FEATURES, "c": CLASSES, "k": DRAWS}
        sizes |= {"w": DRAWS * RANDOM_FEATURES, "o": DRAWS * CHANNELS}
        names = ("nf", "fd", "nd", "dd", "nm", "dm", "nw", "wd", "no", "mo", "nc", "dc", "nk", "mk")
        return {name: torch.rand(sizes[name[0]], sizes[name[1]]) for name in names}

    def products(self) -> None:
        """Every dense product of the formulation's step, once: forward, by the inputs and by the weights."""
        t = self.operands
        t["nf"] @ t["fd"], t["nf"].t() @ t["nd"]  # the input linear; its input needs no gradient
        for _ in range(LAYERS):
            for _ in range(4):  # queries, keys, values, output
                t["nd"] @ t["dd"], t["nd"] @ t["dd"].t(), t["nd"].t() @ t["nd"]
            for _ in range(2):  # features of queries and keys; directions need no gradient
                t["nd"] @ t["dm"], t["nm"] @ t["dm"].t()
            t["nw"].t() @ t["nd"], t["nw"] @ t["wd"], t["nd"] @ t["wd"].t()  # summary: noisy keys and values
            t["nm"] @ t["mo"], t["no"] @ t["mo"].t(), t["nm"].t() @ t["no"]  # numerators of all draws
            t["nm"] @ t["mk"], t["nk"] @ t["mk"].t(), t["nm"].t() @ t["nk"]  # denominator
        for _ in range(LAYERS + 1):  # the output linear over all states
            t["nd"] @ t["dc"], t["nc"] @ t["dc"].t(), t["nd"].t() @ t["nc"]


def check(setting: Setting) -> None:
    """Both sides compute one function: the same loss and gradients from the same weights, directions and noise."""
    ours = setting.loss(step=7)
    ours_grads = torch.autograd.grad(ours, list(setting.model.parameters()))
    theirs = setting.transcription.loss(*setting.batch, EDGE_LOSS, Draw(0, 7, setting.node_ids))
    theirs_grads = torch.autograd.grad(theirs, list(setting.model.parameters()))
    largest = max(float(grad.abs().max()) for grad in theirs_grads)
    difference = max(float((a - b).abs().max()) for a, b in zip(ours_grads, theirs_grads, strict=True))
    print(
        f"same function: loss {ours.item():.6f} and {theirs.item():.6f}, gradients differ by {difference / largest:.1e}"
    )
    assert abs(ours.item() - theirs.item()) < 1e-4
    assert difference < 1e-3 * largest


def seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak_growth(nodes: int, side: str) -> float:
    """GB by which three steps of a side raise the peak resident set of a fresh process."""
    command = [sys.executable, __file__, "--nodes", str(nodes), "--memory-of", side]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report_memory(setting: Setting, side: str) -> None:
    step = setting.step if side == "nfdist" else setting.transcribed_step
    setting.batch, setting.relation, setting.transcription  # noqa: B018  (built before the baseline is taken)
    before = peak_resident_bytes()
    for _ in range(3):
        step()
    print((peak_resident_bytes() - before) / 1e9)


def peak_resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory-of", choices=("nfdist", "transcription"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    setting = Setting(options.nodes)
    if options.memory_of:
        report_memory(setting, options.memory_of)
        return
    print(f"{options.nodes:,} nodes, {setting.relation.adjacency.num_edges:,} edges, {options.threads} threads")
    check(setting)
    double = Setting(2 * options.nodes)
    sides = {
        "nfdist": setting.step,
        "transcription": setting.transcribed_step,
        "products": setting.products,
        "nfdist, twice the nodes": double.step,
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for function in sides.values():
        function()
    for pair in range(options.pairs):
        for name, function in sides.items():
            times[name].append(seconds(function))
        print(f"  pair {pair + 1}: " + ", ".join(f"{name} {values[-1]:.2f} s" for name, values in times.items()))
    medians = {name: statistics.median(values) for name, values in times.items()}
    lean, wide = (peak_growth(options.nodes, side) for side in ("nfdist", "transcription"))
    ours = medians["nfdist"]
    print(f"\n{'':24}{'nfdist':>10}{'other':>10}{'ratio':>10}   wanted")
    rows = (
        ("time / transcription", "s", ours, medians["transcription"], medians["transcription"] / ours, ">= 2.5"),
        ("time / own products", "s", ours, medians["products"], ours / medians["products"], "<= 1.6"),
        ("memory / transcription", "GB", lean, wide, lean / wide, "<= 0.25"),
        (
            "twice the nodes",
            "s",
            medians["nfdist, twice the nodes"],
            ours,
            medians["nfdist, twice the nodes"] / ours,
            "<= 2.2",
        ),
    )
    for name, unit, left, right, ratio, wanted in rows:
        print(f"{name:24}{left:8.2f} {unit:2}{right:7.2f} {unit:2}{ratio:8.2f}   {wanted}")


if __name__ == "__main__":
    main()
