"""The paper's first table with measured columns: what every structure learner costs and how far it goes.

A learner is a line here, one of OVERRIDES in scaling.py, and rows in experiments.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments import NODES
from results import Result

NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Learner:
    """A method by its name in rows and in the scaling figure, what it grows with, and where its constants are from.

    `inductive` says whether it answers for nodes that training never saw: in the paper, and here.
    """

    method: str
    grows_with: str
    inductive: str
    constants: str


TRANSDUCTIVE_HERE = "in the paper; here it does not"
LEARNERS = (
    Learner("NodeFormer", "nodes", "yes", "the paper's appendix"),
    Learner(
        "LDS",
        "pairs",
        "no",
        "steps, samples, decay and outer rate are those of its authors' code; patience is 10, there 20",
    ),
    Learner(
        "ProGNN",
        "pairs",
        "no",
        "the weights of the terms, the graph's rate and the network's width, dropout and decay are those of its "
        "authors' scripts; 60 moves of the graph with 10 steps of the network each are ours, there 400 with 2, and so "
        "is the network's rate of 0.01, there 0.001 for Cora and 0.0005 for Citeseer; no momentum",
    ),
    Learner(
        "BGCN",
        "pairs",
        "no",
        "all are those of its authors' code, which climbs the posterior by samples of pairs, here by all of them",
    ),
    Learner(
        "IDGL",
        "pairs",
        TRANSDUCTIVE_HERE,
        "the shares of the graph and of the latest round, the tolerance, decay and dropout are its authors' for Cora; "
        "3 rounds, 2 heads, a rate of 0.03 and three terms of the graph's loss are ours, there 10, 4, 0.01 and one",
    ),
    Learner("IDGL-Anch", "nodes x anchors", TRANSDUCTIVE_HERE, "as IDGL; 500 anchors are ours"),
    Learner(
        "GLCN",
        "edges",
        TRANSDUCTIVE_HERE,
        "widths, dropout, rate and decay are those of its authors' code; its weight of the squares has the paper's "
        "sign, in the code the opposite one, and both losses train all weights, as the paper says, not the code",
    ),
    Learner("GLCN-Pairs", "pairs", TRANSDUCTIVE_HERE, "as GLCN, on all pairs of nodes in place of edges"),
    Learner(
        "VGCN",
        "pairs",
        "no",
        "prior, temperatures, draws, dropout and decay are those of its authors' code; 500 epochs at a rate of 0.01 "
        "are ours, there 5,000 at 0.001",
    ),
)
HEAD = ("method", "grows with", "seconds an epoch", "memory", "largest graph that ran here", "new nodes")


def learner_lines(scaling: Mapping[str, Any], rows: Sequence[tuple[str, str, Result]]) -> list[list[str]]:
    """The cells of every learner; `rows` are the datasets, methods and results of rows."""
    size = common_size(scaling["points"])
    return [learner_cells(learner, scaling, rows, size) for learner in LEARNERS]


def learner_cells(
    learner: Learner, scaling: Mapping[str, Any], rows: Sequence[tuple[str, str, Result]], size: int
) -> list[str]:
    own = {point["nodes"]: point for point in scaling["points"] if point["method"] == learner.method}
    costs = [NOT_RUN, NOT_RUN]
    if size in own:
        costs = [f"{own[size]['seconds']:.3f}", f"{own[size]['peak_bytes'] / 2**20:,.0f} MiB"]
    trained = {NODES[dataset] for dataset, method, _ in rows if method == learner.method and dataset in NODES}
    largest = max(trained | set(own), default=0)
    shown = f"{largest:,} nodes" if largest else NOT_RUN
    why = scaling["ended"].get(learner.method)
    if why and largest in own:
        shown += f"; it {why}"
    return [learner.method, learner.grows_with, *costs, shown, learner.inductive]


def common_size(points: Sequence[Mapping[str, Any]]) -> int:
    """The most nodes that were measured for every method that was measured at all."""
    sizes: dict[str, set[int]] = {}
    for point in points:
        sizes.setdefault(point["method"], set()).add(point["nodes"])
    return max(set.intersection(*sizes.values()), default=0) if sizes else 0


def notes_above(scaling: Mapping[str, Any]) -> list[str]:
    """What the columns are."""
    limits = scaling["limits"]
    return [
        f"One epoch of {common_size(scaling['points']):,} nodes of 20News, by `benchmarks/paper/scaling.py`: seconds "
        "of one core, and growth of the peak resident set. The largest graph is that of a row on this page or of "
        f"that script, which ends a method at {limits['memory']} or {limits['seconds']:.0f} s an epoch and has graphs "
        "of up to 9,607 nodes. GLCN and VGCN ran beside other work, by the processor's clock. "
        "The last column says whether `nfdist predict` answers for nodes that training never saw."
    ]


def notes_below() -> list[str]:
    """Where the constants are from."""
    return [f"- {learner.method}: {learner.constants}" for learner in LEARNERS]
