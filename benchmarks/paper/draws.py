"""How much the draw of directions in evaluation decides: each seed's best checkpoint, scored with other draws.

    python benchmarks/paper/draws.py [--work DIR] [--results DIR] [--draws 30]

nfdist draws the directions of evaluation once for a seed. The published recipe draws them anew in every evaluation, so
that the epoch with its best validation score is a choice among draws too. Of every row that is paired with the recipe
and has its run in the work folder, this keeps what other draws come to in draws.json, which table.py shows.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from experiments import ROOT, experiments
from results import DRAWS_FILE, read_result, run_folder
from table import results_folder

from nfdist.evaluate.full import FullGraph
from nfdist.evaluate.loading import read_model
from nfdist.evaluate.scores import resolve_metric, score
from nfdist.evaluate.split import split_of
from nfdist.files import replace_file
from nfdist.model.task import Task
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World

FIRST_OTHER = 1000  # no row has such a seed


def score_draws(run: Run, seed: int, others: int) -> list[tuple[float, float]]:
    """Validation and test score of a seed's best checkpoint with its own draw, and then with so many others."""
    best, config, world = run.best_of(seed), run.config, World()
    assert best is not None
    trained = read_model(config, Checkpoint.open(run.checkpoint_paths(seed)[best["step"]]))
    model = trained.nodeformer("draws.py")
    store = Store.open(config.data.partition)
    task, split = Task(store.task, store.num_classes), split_of(store, config.data, seed)
    metric, labels = resolve_metric(config.evaluate.metric, task), store.labels(torch.arange(store.num_nodes))
    graph = FullGraph(store, Hops.open(store, config.relation.order), config.relation, world, dtype=trained.dtype)
    found = []
    for draw in (seed, *range(FIRST_OTHER, FIRST_OTHER + others)):
        scores = score(world, task, metric, graph.evaluate(model, draw).logits, labels, split)
        assert scores.valid.value is not None
        assert scores.test.value is not None
        found.append((scores.valid.value, scores.test.value))
    return found


def sum_up(by_seed: Sequence[Sequence[tuple[float, float]]]) -> dict[str, float]:
    """Test scores in percent, as means over the seeds; `deviation` is that between the draws of a seed."""
    tests = [[test for _, test in draws] for draws in by_seed]
    over_seeds = {
        "own": [seed[0] for seed in tests],
        "others": [statistics.fmean(seed[1:]) for seed in tests],
        "deviation": [statistics.stdev(seed) for seed in tests],
        "chosen": [max(draws)[1] for draws in by_seed],
    }
    return {name: 100 * statistics.fmean(values) for name, values in over_seeds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "paper", help="where run.py left its runs")
    parser.add_argument("--results", type=Path, default=results_folder(quick=False))
    parser.add_argument("--draws", type=int, default=30, help="besides a seed's own (default 30)")
    options = parser.parse_args()
    if options.draws < 1:
        parser.error(f"--draws must be at least 1, got {options.draws}")
    kept = options.results / DRAWS_FILE
    known = json.loads(kept.read_text()) if kept.exists() else {}
    rows = experiments()
    paired = {row.dataset for row in rows if row.group == "published"}
    for row in (row for row in rows if row.group == "nodeformer" and row.dataset in paired):
        result = read_result(options.results, row.id)
        folder = None if result is None else run_folder(options.work.absolute(), row.id, result.digest)
        if folder is None or not (folder / "result.json").exists():
            print(f"{row.id}: left out, its run is not in {options.work}", file=sys.stderr)
            continue
        run = Run.open(folder)
        by_seed = [score_draws(run, seed, options.draws) for seed in run.config.train.seeds]
        known[row.id] = {"draws": 1 + options.draws, **sum_up(by_seed)}
        print(row.id, json.dumps(known[row.id]))
        replace_file(kept, json.dumps(known, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
