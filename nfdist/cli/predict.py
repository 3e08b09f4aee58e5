"""nfdist predict: labels of nodes that training never saw, from what nfdist evaluate has left in the run."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from nfdist.errors import ConfigError
from nfdist.evaluate.delivery import write_table
from nfdist.evaluate.loading import load_model
from nfdist.evaluate.newcomers import Newcomers
from nfdist.evaluate.outputs import answers
from nfdist.evaluate.predict import Predictor
from nfdist.evaluate.states import States
from nfdist.model.task import Task
from nfdist.store.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a run that nfdist evaluate has evaluated")
    parser.add_argument(
        "nodes",
        metavar="NEW.parquet",
        help="the new nodes: id, features (a list, or a column each), and neighbors (a list of ids of the graph)",
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="the Parquet file to write")
    parser.add_argument("--top-k", type=int, default=3, metavar="K", help="how many likely classes to list (default 3)")
    parser.add_argument("--partition", metavar="DIR", help="where the run's graph is, if no longer in data.partition")
    parser.add_argument("--checkpoint", metavar="DIR", help="the one that was evaluated (default: the best, else last)")
    parser.add_argument("--json", action="store_true", help="print the outcome as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    if options.top_k < 1:
        raise ConfigError(f"--top-k must be at least 1, got {options.top_k}")
    started = time.perf_counter()
    trained = load_model(options.run_dir, options.checkpoint)
    trained.nodeformer("nfdist predict")
    store = Store.open(options.partition or trained.config.data.partition)
    trained.check_graph(store)
    predictor = Predictor(trained, States.open(Path(options.run_dir), trained), store)
    newcomers = Newcomers.read(Path(options.nodes), store)
    loaded = time.perf_counter()
    logits = predictor.logits(newcomers)
    predicted = time.perf_counter()
    columns = answers(Task(store.task, store.num_classes), logits, options.top_k)
    write_table(Path(options.out), {"id": newcomers.ids, **columns})
    outcome: dict[str, Any] = {
        "nodes": len(newcomers),
        "known_nodes": int((newcomers.node_ids >= 0).sum()),
        "neighbors": len(newcomers.neighbors),
        "load_seconds": loaded - started,
        "predict_seconds": predicted - loaded,
        "write_seconds": time.perf_counter() - predicted,
    }
    print(
        f"{options.out}: {outcome['nodes']:,} nodes with {outcome['neighbors']:,} neighbors; loaded in "
        f"{outcome['load_seconds']:.3f} s, predicted in {outcome['predict_seconds']:.3f} s"
    )
    if options.json:
        print(json.dumps(outcome))
    return 0
