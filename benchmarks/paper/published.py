"""The recipe of the published code, as a plain training loop on whole tensors: what nfdist is paired with.

    python benchmarks/paper/published.py CONFIG.toml [section.key=value ...] [--resume] [--json]

It reads the same partition, splits and settings as `nfdist train CONFIG.toml`, and computes what the published code
does: 1e-6 added to every random feature after its shift, directions and noise drawn anew in every pass, an evaluation
without noise after every epoch, and the test score of the best validation epoch. Finished seeds are kept in run.dir, if
one is set, and with --resume they are not trained again.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1]))
from transcription import Transcription

from nfdist import settings
from nfdist.config import Config
from nfdist.errors import ConfigError, NfdistError
from nfdist.evaluation.scores import resolve_metric, score
from nfdist.files import replace_file
from nfdist.graph.relation import Relation
from nfdist.graph.split import split_of
from nfdist.memory import peak_resident_bytes
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.task import Task
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.result import summarize_seeds
from nfdist.world import World

PUBLISHED_EPSILON = 1e-6


@dataclass(frozen=True)
class Graph:
    """A whole partition in memory."""

    store: Store
    task: Task
    features: Tensor
    labels: Tensor
    relations: list[Relation]

    @staticmethod
    def open(config: Config) -> "Graph":
        store = Store.open(config.data.partition)
        everyone = torch.arange(store.num_nodes)
        hops = Hops.open(store, config.relation.order)
        relations = [Relation.build(hops.induced(hop, everyone)) for hop in range(1, config.relation.order + 1)]
        task = Task(store.task, store.num_classes)
        return Graph(store, task, store.take(everyone).float(), store.labels(everyone), relations)


def build_model(config: Config, graph: Graph, seed: int) -> NodeFormer:
    """The weights of the published model, in torch's usual ranges."""
    # The published code adds its epsilon before the factor 1/√m, nfdist after it.
    epsilon = PUBLISHED_EPSILON * config.model.random_features**-0.5
    attention = replace(config.attention, epsilon=epsilon)
    num_outputs = graph.task.num_classes
    return NodeFormer(graph.store.num_features, num_outputs, config.model, attention, config.relation, seed=seed)


class Published:
    """The training of one seed."""

    def __init__(self, config: Config, graph: Graph, seed: int) -> None:
        self._graph, train = graph, config.train
        self._model = build_model(config, graph, seed)
        self._transcription = Transcription(self._model, *graph.relations, seed=seed)
        rate, decay = train.learning_rate, train.weight_decay
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=rate, weight_decay=decay)
        self._edge_loss = train.edge_loss
        self._split = split_of(graph.store, config.data, seed)
        self._trained_on = torch.where(self._split == TRAIN, graph.labels, -1)
        self._metric = resolve_metric(config.evaluate.metric, graph.task)

    def step(self) -> None:
        graph = self._graph
        self._model.train()
        self._optimizer.zero_grad()
        self._transcription.loss(graph.features, self._trained_on, self._edge_loss, kind=graph.task.kind).backward()
        self._optimizer.step()

    def evaluate(self) -> dict[str, float | None]:
        """The score of every split."""
        graph = self._graph
        self._model.eval()
        with torch.no_grad():
            logits, _ = self._transcription.forward(graph.features, self._transcription.fresh, with_edges=False)
        scores = score(World(), graph.task, self._metric, logits, graph.labels, self._split)
        return {name: getattr(scores, name).value for name in ("train", "valid", "test")}


def train_seed(config: Config, graph: Graph, seed: int) -> dict[str, Any]:
    """Train once; the best and the last epoch, as `nfdist train` reports them."""
    published = Published(config, graph, seed)
    best: dict[str, Any] | None = None
    final: dict[str, Any] = {}
    seconds = {"train": 0.0, "evaluate": 0.0}
    for epoch in range(1, config.train.epochs + 1):
        times = [time.perf_counter()]
        published.step()
        times.append(time.perf_counter())
        final = {"epoch": epoch, **published.evaluate()}
        times.append(time.perf_counter())
        best = final if best is None or final["valid"] > best["valid"] else best
        seconds["train"] += times[1] - times[0]
        seconds["evaluate"] += times[2] - times[1]
        if epoch - best["epoch"] >= (config.train.early_stop or config.train.epochs):
            break
    return {"seed": seed, "best": best, "final": final, "seconds": seconds}


def run(config: Config, resume: bool) -> dict[str, Any]:
    """Train every seed that is not kept, and sum up."""
    if config.train.batch_nodes or config.train.schedule != "constant":
        raise ConfigError("the published recipe is here for whole graphs and a constant rate: set train.batch_nodes=0")
    graph = Graph.open(config)
    per_seed = []
    for seed in config.train.seeds:
        kept = Path(config.run.dir) / f"seed-{seed}.json" if config.run.dir else None
        if resume and kept is not None and kept.exists():
            per_seed.append(json.loads(kept.read_text()))
            continue
        per_seed.append(train_seed(config, graph, seed))
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            replace_file(kept, json.dumps(per_seed[-1]))
    metric = resolve_metric(config.evaluate.metric, graph.task)
    return {"metric": metric, **summarize_seeds(per_seed), "peak_memory_bytes": peak_resident_bytes()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG.toml", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    parser.add_argument("--resume", action="store_true", help="keep the finished seeds in run.dir")
    parser.add_argument("--json", action="store_true", help="print the result as one line")
    options = parser.parse_args()
    try:
        result = run(settings.load(options.config, options.overrides), options.resume)
    except NfdistError as error:
        print(f"published: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(result))
    else:
        print(f"test {result['metric']} {result['test_mean']:.4f} over {len(result['per_seed'])} seeds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
