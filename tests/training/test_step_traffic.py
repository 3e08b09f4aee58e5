"""What a step sends is what was said before."""

from pathlib import Path

import pytest

from nfdist import settings
from nfdist.graph.counts import read_counts
from nfdist.runs.run import Run
from nfdist.training.batch_counts import count_batch
from nfdist.training.step_traffic import step_traffic
from tests.training.building import build_partition, config_of, several
from tests.worlds import run_world

KINDS = {
    "one batch each": ("attention.scope=rank", "relation.scope=rank"),
    "attention over the world": ("attention.scope=world", "relation.scope=rank"),
    "edges over the world": ("attention.scope=world", "relation.scope=world", "train.batch_nodes=100"),
    "the whole graph": ("attention.scope=world", "relation.scope=world", "train.batch_nodes=0", "train.epochs=6"),
}


def test_two_ranks_send_what_was_said(tmp_path: Path) -> None:
    graph = build_partition(tmp_path / "graph", 2)
    common = ("relation.order=1", "train.precision=float32", "model.channels=32", "train.epochs=3")
    configs = {name: config_of(graph, tmp_path / name, *common, *overrides) for name, overrides in KINDS.items()}
    run_world(2, several, [settings.dump(config) for config in configs.values()])
    for name, config in configs.items():
        counts = read_counts(graph, 1)
        planned = step_traffic(config, counts, count_batch(config, counts, 2), 2)
        steps = [line["sent_bytes"] for line in Run.open(Path(config.run.dir)).metrics() if line["kind"] == "step"]
        measured = sorted(steps)[len(steps) // 2]
        assert planned == pytest.approx(measured, rel=0.25), name
    assert step_traffic(config, counts, count_batch(config, counts, 1), 1) == 0
