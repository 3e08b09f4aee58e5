"""A baseline is trained, evaluated and loaded as NodeFormer is; what needs NodeFormer refuses it in one line."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import nfdist
from nfdist import settings
from nfdist.cli.main import main
from nfdist.model.baselines.gcn import JKNet
from nfdist.runs.run import Run
from tests.cli.runs import mistake, outcome
from tests.training.building import build_partition, config_of

NEEDED = ("model.name=jknet", "relation.order=1", "relation.scope=rank", "train.edge_loss=0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baseline")
    config, graph = folder / "small.toml", build_partition(folder / "graph")
    config.write_text(settings.dump(config_of(graph, folder / "run", *NEEDED, "train.evaluate_every=1")))
    assert main(["train", str(config), "train.precision=float32"]) == 0
    return folder / "run"


def test_evaluate_gives_the_scores_of_the_training(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = outcome(capsys, "evaluate", run)
    result = Run.open(run).result()
    assert result is not None
    assert {name: facts[name] for name in ("metric", "train", "valid", "test")} == {
        "metric": result["metric"],
        **{name: result["best"][name] for name in ("train", "valid", "test")},
    }
    table = pq.read_table(run / "predictions.parquet").to_pydict()
    tested = [row for row, split in enumerate(table["split"]) if split == "test"]
    right = sum(table["label"][row] == table["true_label"][row] for row in tested)
    assert right / len(tested) == pytest.approx(facts["smoothed"]["test"])
    assert set(table["smoothed"]) == {True}
    assert not (run / "embeddings.parquet").exists()
    assert not (run / "states").exists()


def test_the_model_is_loaded_with_its_weights(run: Path) -> None:
    trained = nfdist.load_model(run)
    assert isinstance(trained.model, JKNet)
    assert not trained.model.training
    best = Run.open(run).best_checkpoint()
    assert best is not None
    weights = best.tensors("weights")
    assert all(torch.equal(tensor, weights[name]) for name, tensor in trained.model.state_dict().items())
    assert (trained.model.num_features, trained.model.num_outputs) == (100, 47)


def test_what_needs_nodeformer_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = "needs a NodeFormer, and the run has model.name = jknet"
    assert f"--edges {why}" in mistake(capsys, "evaluate", run, "--edges")
    assert f"--top-neighbors {why}" in mistake(capsys, "evaluate", run, "--top-neighbors", "3")
    assert "leave --memory away" in mistake(capsys, "evaluate", run, "--memory", "4GiB")
    words = ("predict", run, tmp_path / "new.parquet", "--out", tmp_path / "out.parquet")
    assert f"nfdist predict {why}" in mistake(capsys, *words)
