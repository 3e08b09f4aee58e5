"""nfdist train from the command line: its result, its exit codes, and one line for every mistake."""

import json
from pathlib import Path

import pytest

from nfdist import settings
from nfdist.cli.main import main
from tests.training.building import build_partition, config_of


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


@pytest.fixture
def config(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(settings.dump(config_of(graph, Path(), 'run.dir=""', "train.evaluate_every=1", "train.epochs=1")))
    return path


def test_the_result_is_the_last_line_and_the_run_is_named_after_its_configuration(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(config), "--json", "train.precision=float32"]) == 0
    output = capsys.readouterr().out.splitlines()
    result = json.loads(output[-1])
    written = json.loads((tmp_path / "runs" / "small" / "result.json").read_text())
    assert (written.pop("format_version"), len(written.pop("checksum")), len(written.pop("run"))) == (3, 32, 16)
    assert result == written
    assert output[-3].startswith("runs/small: trained in")
    assert f"test {result['best']['test']:.4f}" in output[-3]
    assert output[-2].startswith("  smoothed: train ")
    assert f"test {result['per_seed'][0]['smoothed']['test']:.4f}" in output[-2]
    assert result["smoothed_test_mean"] == result["per_seed"][0]["smoothed"]["test"]
    assert "train.precision" not in (tmp_path / "runs" / "small" / "config.toml").read_text()
    assert 'precision = "float32"' in (tmp_path / "runs" / "small" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.toml"], "'nothing.toml' cannot be read"),
        (["small.toml", "train.batchnodes=3"], "did you mean train.batch_nodes?"),
        (["small.toml", "train.epochs=0"], "train.epochs must be at least 1, got 0"),
        (["small.toml", "train.seeds=[1,1]"], "train.seeds must be distinct numbers"),
        (["small.toml", "relation.order=0"], "needs a graph, and relation.order is 0"),
        (["small.toml", "data.partition=elsewhere"], "elsewhere is not a directory"),
        (["small.toml", "data.split=random:1/1/1"], "must sum to at most 1"),
        (["small.toml", "run.device=cuda"], "run.device=cpu"),
        (["small.toml", "train.init_from=elsewhere"], "elsewhere is not a directory"),
        (["small.toml", "observe.host=no.such.host.invalid", "observe.port=9400"], "observe.host"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_run(
    words: list[str], said: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "paths of 2 steps" not in line]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (tmp_path / "runs").exists()
