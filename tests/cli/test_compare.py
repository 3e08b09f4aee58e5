"""nfdist compare from the words of the command line to its exit code."""

from pathlib import Path

import pytest

from nfdist.cli.compare import describe
from tests.cli.runs import mistake, outcome
from tests.tune.building import build_graph

SMALL = "model.channels = 4\nmodel.heads = 1\nrelation.order = 1\ntrain.edge_loss = 0\nobserve.port = 0\n"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    path = folder / "small.toml"
    path.write_text(f'data.partition = "{build_graph(folder)}"\n{SMALL}')
    return path


def test_models_side_by_side(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", config, "--models", "nodeformer,mlp,idgl", "train.epochs=2", "--out", tmp_path / "out")
    found = outcome(capsys, *words, "model.layers=3")
    assert [row["model"] for row in found["rows"]][-1] == "idgl"
    assert found["rows"][-1]["reason"].startswith("model.layers must be 2 for idgl")
    assert all(row["valid"] is not None and not row["reason"] for row in found["rows"][:-1])
    assert {"compare.csv", "compare.svg", "mlp", "nodeformer"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert outcome(capsys, *words, "model.layers=3") == found


def test_a_partition_needs_no_file(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", config.parent / "graph", "--models", "nodeformer", "train.epochs=1", "--out", tmp_path / "out")
    assert outcome(capsys, *words)["rows"][0]["valid"] is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models", "mlp,gnc"], "model.name must be one of nodeformer"),
        (["model.name=gcn"], "choose models with --models"),
        (["train.evaluate_every=0"], "train.evaluate_every is 0"),
        (["train.epoch=3"], "did you mean train.epochs?"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], said: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in mistake(capsys, "compare", config, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_a_comparison_that_was_stopped_in_its_first_model_has_no_table() -> None:
    assert describe(Path("out"), []) == "out: no model was trained to its end yet"
