"""A baseline is trained, evaluated and loaded as NodeFormer is; what needs NodeFormer refuses it in one line."""

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import nfdist
from nfdist import settings
from nfdist.cli.main import main
from nfdist.model.baselines.gcn import JKNet
from nfdist.runs.run import Run
from nfdist.store.store import Store
from nfdist.world import World
from tests.cli.runs import copied, mistake, outcome
from tests.evaluation.new_rows import own_rows
from tests.runs.building import flip
from tests.training.building import build_partition, config_of, run_training

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


def test_the_model_is_loaded_with_its_weights(run: Path) -> None:
    trained = nfdist.load_model(run)
    assert isinstance(trained.model, JKNet)
    assert not trained.model.training
    best = Run.open(run).best_checkpoint()
    assert best is not None
    weights = best.tensors("weights")
    assert all(torch.equal(tensor, weights[name]) for name, tensor in trained.model.state_dict().items())
    assert (trained.model.num_features, trained.model.num_outputs) == (100, 47)


def test_nodes_of_the_graph_are_predicted_as_the_evaluation_answered(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome(capsys, "evaluate", run)
    store = Store.open(Run.open(run).config.data.partition)
    file, out = own_rows(store, tmp_path / "new.parquet", [*range(245)]), tmp_path / "out.parquet"
    facts = outcome(capsys, "predict", run, file, "--out", out)
    assert (facts["known_nodes"], facts["smoothed"]) == (245, True)
    mine, wanted = (pq.read_table(path).to_pydict() for path in (out, run / "predictions.parquet"))
    assert [mine[name] for name in ("id", "label")] == [wanted[name] for name in ("id", "label")]
    assert torch.allclose(torch.tensor(mine["top_probabilities"]), torch.tensor(wanted["top_probabilities"]), rtol=1e-4)


def test_altered_states_of_a_baseline_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(run, tmp_path)
    store = Store.open(Run.open(run).config.data.partition)
    words = ("predict", run, own_rows(store, tmp_path / "new.parquet", [3, 200]), "--out", tmp_path / "out.parquet")
    outcome(capsys, "evaluate", run, "--no-outputs", "--no-states")
    shutil.rmtree(run / "states", ignore_errors=True)
    assert "holds no states, which predictions need: nfdist evaluate" in mistake(capsys, *words)
    outcome(capsys, "evaluate", run, "--no-outputs")
    for name in ("hidden-0.npy", "hidden-1.npy", "roots.npy", "smoothing-roots.npy"):
        flip(run / "states" / name, -1)
        assert re.search(rf"states/{name} was altered .*nfdist evaluate .* makes them anew", mistake(capsys, *words))
        flip(run / "states" / name, -1)
    assert outcome(capsys, *words)["nodes"] == 2


def test_what_needs_nodeformer_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = "needs a NodeFormer, and the run has model.name = jknet"
    assert f"--edges {why}" in mistake(capsys, "evaluate", run, "--edges")
    assert f"--top-neighbors {why}" in mistake(capsys, "evaluate", run, "--top-neighbors", "3")
    assert "leave --memory away" in mistake(capsys, "evaluate", run, "--memory", "4GiB")


def test_a_model_that_cannot_answer_for_new_nodes_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = Run.open(run).config
    overrides = (*NEEDED[1:], "model.name=idgl", "model.layers=2", "model.idgl.anchors=20", "train.epochs=1")
    config = config_of(Path(base.data.partition), tmp_path / "run", *overrides, "train.precision=float32")
    run_training(World(), settings.dump(config))
    outcome(capsys, "evaluate", tmp_path / "run", "--no-outputs")
    assert not (tmp_path / "run" / "states").exists()
    words = ("predict", tmp_path / "run", tmp_path / "new.parquet", "--out", tmp_path / "out.parquet")
    wanted = "cannot answer by model.name = idgl: train one of nodeformer, mlp, gcn, sgc, mixhop, jknet, dropedge"
    assert wanted in mistake(capsys, *words)
