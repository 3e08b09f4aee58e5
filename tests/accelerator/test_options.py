"""Every option of a training gives on an accelerator the weights that it gives on the CPU."""

from pathlib import Path

import pytest
import torch

from nfdist import settings
from nfdist.rendezvous import Place
from nfdist.training.job import train
from nfdist.world import World
from tests.accelerator.device import accelerator, assert_close
from tests.accelerator.graphs import build_graph
from tests.training.building import SETTINGS, flat_weights, step_losses

pytestmark = pytest.mark.accelerator

NODEFORMER = ("relation.order=1", "train.batch_nodes=80")
BASELINE = ("relation.order=1", "relation.scope=rank", "train.edge_loss=0", "train.batch_nodes=0", "model.dropout=0.2")
CASES: dict[str, tuple[str, ...]] = {
    "graph branch": ("plain", *NODEFORMER, "model.graph_layers=2", "model.branch_share=0"),
    "feed-forward": ("plain", *NODEFORMER, "model.feed_forward=2", "model.norm=none", "model.residual=false"),
    "all states": ("plain", *NODEFORMER, "model.jumping_knowledge=true", "model.activation=elu"),
    "labels as inputs": ("plain", *NODEFORMER, "train.label_inputs=0.5", "model.graph_layers=1", "train.accumulate=2"),
    "labels as inputs of the whole graph": ("plain", "train.batch_nodes=0", "train.label_inputs=0.5", "train.epochs=3"),
    "questions without answers": ("multi", *NODEFORMER, "train.label_smoothing=0.1", "train.label_inputs=0.4"),
    "two classes": ("binary", *NODEFORMER, "train.class_weights=balanced", "attention.kind=softmax"),
    "sparse features": ("words", *NODEFORMER, "train.batch_nodes=40", "model.input_dropout=0.3", "train.clip_norm=0.1"),
    "powers": ("directed", "relation.order=3", "relation.kind=power", "train.batch_nodes=80", "attention.epsilon=1e-3"),
    "patterns as they are": ("directed", "relation.normalize=false", "train.edge_loss_mean=nodes"),
    "average": ("plain", *NODEFORMER, "train.ema=0.9", "attention.temperature=0.02"),
    "bf16": ("plain", *NODEFORMER, "train.precision=bf16"),
    "walks": ("plain", *NODEFORMER, "train.sampling=walks", "train.schedule=cosine", "train.weight_decay=0.01"),
    "rows on the device": ("plain", *NODEFORMER, "data.cache=device", "data.cache_memory=2KiB"),
    "mlp": ("words", *BASELINE, "model.name=mlp", "relation.order=0"),
    "gcn": ("words", *BASELINE, "model.name=gcn", "model.input_dropout=0.2"),
    "sgc": ("plain", *BASELINE, "model.name=sgc"),
    "mixhop": ("plain", *BASELINE, "model.name=mixhop"),
    "jknet": ("multi", *BASELINE, "model.name=jknet"),
    "dropedge": ("plain", *BASELINE, "model.name=dropedge", "model.dropedge.edge_dropout=0.3"),
    "idgl": ("plain", *BASELINE, "model.name=idgl", "train.edge_loss=0.1"),
    "idgl by anchors": ("plain", *BASELINE, "model.name=idgl", "model.idgl.anchors=20", "train.edge_loss=0.1"),
    "glcn": ("words", *BASELINE, "model.name=glcn", "train.edge_loss=0.1"),
    "glcn of all pairs": ("plain", *BASELINE, "model.name=glcn", "train.edge_loss=0.1", "relation.order=0"),
    "vgcn": ("plain", *BASELINE, "model.name=vgcn", "train.edge_loss=0.1", "model.vgcn.samples=2"),
}
# Which factors are rounded, and where to, depends on the processor; Adam makes of a small gradient's sign a whole step.
TOLERANCES = {"bf16": 0.05}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.mark.parametrize("case", CASES)
def test_an_option_trains_as_on_the_cpu(
    case: str, graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, *options = CASES[case]
    monkeypatch.setattr("nfdist.training.job.check_precision", lambda *_, **__: None)  # bf16 on a CPU, to compare with
    where = [f'data.partition="{build_graph(graphs, graph)}"', "train.epochs=1", "attention.scope=rank"]
    runs = []
    for device in (torch.device("cpu"), accelerator()):
        path = tmp_path / device.type
        config = settings.parse(SETTINGS, [*where, f'run.dir="{path}"', *options])
        result, _ = train(config, Place(), World(), device, resume=False)
        assert result is not None
        runs.append((flat_weights(path), torch.tensor(step_losses(path))))
    for found, wanted in zip(runs[1], runs[0], strict=True):
        assert_close(found, wanted, TOLERANCES.get(case))
