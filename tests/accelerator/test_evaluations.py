"""A training on an accelerator evaluates there, and scores as on the CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist.evaluation.evaluation_graph import EvaluationGraph, open_evaluation_graph
from nfdist.rendezvous import Place
from nfdist.runs.run import Run
from nfdist.training import job
from nfdist.world import World
from tests.accelerator.device import accelerator
from tests.training.building import build_partition, config_of

pytestmark = pytest.mark.accelerator

MODELS = {
    "nodeformer": ("relation.order=1", "train.batch_nodes=80", "train.ema=0.5"),
    "gcn": ("model.name=gcn", "relation.order=1", "train.edge_loss=0"),
}


@pytest.mark.parametrize("name", MODELS)
def test_evaluations_of_a_training_are_those_of_the_cpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of every epoch, and the smoothed one of the best."""
    opened: list[EvaluationGraph] = []

    def opening(*given: Any, **options: Any) -> EvaluationGraph:
        opened.append(open_evaluation_graph(*given, **options))
        return opened[-1]

    monkeypatch.setattr(job, "open_evaluation_graph", opening)
    graph, devices = build_partition(tmp_path / "graph"), (torch.device("cpu"), accelerator())
    evaluations, results = [], []
    for device in devices:
        path = tmp_path / device.type
        options = ("attention.scope=rank", "train.evaluate_every=1", "evaluate.smoothing=auto", *MODELS[name])
        result, _ = job.train(config_of(graph, path, *options), Place(), World(), device, resume=False)
        assert result is not None
        lines = [line for line in Run.open(path).metrics() if line["kind"] == "evaluation"]
        evaluations.append([line[name] for line in lines for name in ("valid", "test", "train_loss", "valid_loss")])
        results.append(result)
    assert tuple(one.device for one in opened) == devices
    assert len(evaluations[0]) == 2 * 4
    assert evaluations[1] == pytest.approx(evaluations[0], abs=1e-3)
    here, there = (result["per_seed"][0]["smoothed"] for result in results)
    assert there["strengths"] == here["strengths"]
    assert there["loss"]["test"] == pytest.approx(here["loss"]["test"], abs=1e-3)
