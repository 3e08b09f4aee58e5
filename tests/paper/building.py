"""Results as a row of the paper's tables leaves them, processes that make none, and a graph for its learners."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from children import Children, RowError
from experiments import ROOT
from pairwise import Nodes
from results import Result, SeedScore

from nfdist import seeds
from nfdist.model.task import Task
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.source_graph import TEST, TRAIN, VALID

OUTCOME = {
    "per_seed": [{"seed": 0, "best": {"epoch": 2, "train": 1.0, "valid": 0.5, "test": 0.4}}],
    "seconds": {"train": 1.0, "wait": 0.5, "evaluate": 2.0},
    "peak_memory_bytes": 1 << 20,
}


def made_result(row_id: str, tests: list[float], failed: str = "", digest: str = "d", first_seed: int = 0) -> Result:
    scores = tuple(SeedScore(seed, 7, 0.5, test) for seed, test in enumerate(tests, first_seed))
    return Result(row_id, digest, "accuracy", 1000, "abc1234", "nfdist train x.toml", scores, 12.3, 2**28, failed)


def two_communities(count: int = 40, dtype: torch.dtype = torch.float32) -> Nodes:
    """Features that tell little, a graph that tells nothing, and labels of two kinds."""
    labels = torch.arange(count) % 2
    noise = torch.randn(count, 6, generator=seeds.generator(0, "noise"))
    split = torch.tensor([TRAIN, TRAIN, VALID, VALID, TEST], dtype=torch.int8).repeat(count // 5)
    ends = torch.randint(count, (2, 3 * count // 2), generator=seeds.generator(0, "ends"))
    graph = Adjacency.from_edges(ends[0], ends[1], count)
    return Nodes((noise + labels[:, None]).to(dtype), labels, split, graph, Task("single", 2), "accuracy")


class RecordedChildren(Children):
    """Runs nothing, remembers what was asked, and fails where a word says so."""

    def __init__(self, broken: str = "never") -> None:
        super().__init__()
        self.asked: list[Sequence[str]] = []
        self.broken = broken

    def run(self, command: Sequence[str], environment: dict[str, str], log: Path) -> str:
        self.asked.append(command)
        if self.broken in command:
            raise RowError(f"exit code 1: {ROOT}/launch is broken")
        return f"words first\n{json.dumps(OUTCOME)}\n"
