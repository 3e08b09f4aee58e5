"""The public list loads lazily, is written once, and its functions do what the commands of their names do."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import nfdist
from nfdist import public
from nfdist.evaluation.new_nodes import as_arrow
from tests.golden.commands import run_command

EXTRAS = ("mlflow", "wandb")  # what trackers need, which is not installed with the tests


def test_every_public_name_is_importable_and_modules_hide_none() -> None:
    for found in pkgutil.walk_packages(nfdist.__path__, "nfdist."):
        if not found.name.endswith("__main__"):
            try:
                import_module(found.name)
            except ModuleNotFoundError as error:
                if error.name not in EXTRAS:
                    raise
    offered = {name for name in vars(public) if not name.startswith("_")}
    assert offered == set(nfdist.__all__) - {"__version__"}
    assert all(getattr(nfdist, name) is getattr(public, name) for name in offered)
    assert all(callable(getattr(nfdist, name)) for name in ("partition", "train", "evaluate", "Predictor"))
    with pytest.raises(AttributeError, match="no attribute 'Nodeformer'"):
        _ = nfdist.Nodeformer


def test_importing_the_package_loads_neither_torch_nor_dgl() -> None:
    code = "import nfdist, sys; sys.exit('torch' in sys.modules or 'dgl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_operator_works_without_the_rest() -> None:
    code = "import nfdist, sys; nfdist.attend; sys.exit('dgl' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    kernel = nfdist.Kernel.draw(30, 16, 0.25, torch.Generator().manual_seed(0))
    queries, keys, values = torch.randn(3, 100, 2, 16, generator=torch.Generator().manual_seed(1))
    assert nfdist.attend(queries, keys, values, kernel).shape == (100, 2, 16)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tables with text ids."""
    folder, stream = tmp_path_factory.mktemp("api"), np.random.default_rng(0)
    ids = [f"n{number}" for number in range(60)]
    labels = stream.integers(0, 3, 60)
    features = list(np.eye(3)[labels] + stream.normal(0, 0.3, (60, 3)))
    (folder / "tables").mkdir()
    pd.DataFrame({"id": ids, "features": features, "label": labels}).to_parquet(folder / "tables" / "nodes.parquet")
    ends = stream.choice(ids, (2, 150))
    pd.DataFrame({"source": ends[0], "target": ends[1]}).to_parquet(folder / "tables" / "edges.parquet")
    settings = "[model]\nchannels = 8\n[train]\nepochs = 2\nbatch_nodes = 30\n[observe]\nport = 0\n"
    (folder / "small.toml").write_text(settings + f'[data]\npartition = "{folder / "graph"}"\n')
    return folder


def test_functions_do_what_the_commands_do(tables: Path, tmp_path: Path) -> None:
    options = {"parts": 2, "method": "random", "split": "random:0.5/0.25/0.25"}
    store = nfdist.partition(tables / "tables", tables / "graph", **options)
    assert (store.num_nodes, len(store.parts)) == (60, 2)

    run = nfdist.train(tables / "small.toml", train={"epochs": 3}, run={"dir": str(tmp_path / "run")})
    assert run.config.train.epochs == 3
    run_command("train", tables / "small.toml", "train.epochs=3", f"run.dir={tmp_path / 'command'}")
    result = run.result()
    assert result is not None
    assert result["best"] == json.loads((tmp_path / "command" / "result.json").read_text())["best"]
    assert nfdist.train(run.config, resume=True).result() == run.result()

    scores, theirs = nfdist.evaluate(run), run_command("evaluate", tmp_path / "command")
    assert [scores[name] for name in ("metric", "train", "valid", "test", "loss")] == [
        theirs[name] for name in ("metric", "train", "valid", "test", "loss")
    ]

    new = pd.DataFrame({"id": ["a", "b"], "features": [[1.0, 0, 0], [0, 0, 1.0]], "neighbors": [["n1"], []]})
    new.to_parquet(tmp_path / "new.parquet")
    predictor = nfdist.Predictor(run)
    mine, arrow = predictor.predict(new), predictor.predict(pa.Table.from_pandas(new))
    run_command("predict", tmp_path / "command", tmp_path / "new.parquet", "--out", tmp_path / "answers.parquet")
    assert isinstance(mine, pd.DataFrame)
    assert isinstance(arrow, pa.Table)
    pd.testing.assert_frame_equal(mine, pd.read_parquet(tmp_path / "answers.parquet"))
    pd.testing.assert_frame_equal(mine, arrow.to_pandas())


def test_a_mistake_is_raised_in_the_words_of_the_command(tables: Path, tmp_path: Path) -> None:
    with pytest.raises(nfdist.ConfigError, match=r"train\.epoch\b.*train\.epochs"):
        nfdist.train(tables / "small.toml", train={"epoch": 3})
    with pytest.raises(nfdist.CheckpointError, match="nothing"):
        nfdist.evaluate(tmp_path / "nothing")
    with pytest.raises(nfdist.ConfigError, match="needs --parts P"):
        nfdist.partition(tables / "tables", tmp_path / "graph")
    with pytest.raises(nfdist.ConfigError, match="a pandas or Arrow table, got list"):
        as_arrow([1, 2])
