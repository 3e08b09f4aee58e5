"""A study goes on with what it was begun for, and with nothing else."""

from pathlib import Path

import pytest

from nfdist import files
from nfdist.errors import CheckpointError, ConfigError
from nfdist.tune.purpose import FORMAT_VERSION, STUDY_FILE, Purpose
from tests.tune.building import SEARCH, build_graph, config_of, purpose_of


def test_what_is_written_is_read(graph: Path, tmp_path: Path) -> None:
    purpose = purpose_of(graph)
    assert (purpose.metric, purpose.larger_is_better) == ("accuracy", True)
    purpose.begin(tmp_path)
    assert Purpose.read(tmp_path) == purpose
    purpose_of(graph, "observe.port=1", "run.dir=elsewhere").begin(tmp_path)


def test_another_purpose_is_refused(graph: Path, tmp_path: Path) -> None:
    purpose_of(graph).begin(tmp_path)
    with pytest.raises(CheckpointError, match=r"a study with train\.epochs = 3, not 4: .* choose another --out"):
        purpose_of(graph, "train.epochs=4").begin(tmp_path)
    with pytest.raises(CheckpointError, match=r"\[search\] model\.dropout over \[0\.0, 0\.3\], not \[0\.0\]"):
        purpose_of(graph, search={**SEARCH, "model.dropout": [0.0]}).begin(tmp_path)
    with pytest.raises(CheckpointError, match="another partition"):
        purpose_of(build_graph(tmp_path / "other", poisoned=True)).begin(tmp_path)
    written = (tmp_path / STUDY_FILE).read_text()
    (tmp_path / STUDY_FILE).write_text(written.replace("0.3", "0.4"))
    with pytest.raises(CheckpointError, match=r"study\.json was altered"):
        Purpose.read(tmp_path)


def test_what_cannot_be_tuned_is_refused(graph: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.evaluate_every is 0"):
        purpose_of(graph, "train.evaluate_every=0")
    with pytest.raises(ConfigError, match="nothing to search for"):
        Purpose.of(config_of(graph), SEARCH, list(SEARCH))
    with pytest.raises(ConfigError, match="needs other settings"):
        purpose_of(graph, "model.name=gcn", "train.edge_loss=1")


def test_fixed_settings_are_not_varied(graph: Path) -> None:
    assert set(Purpose.of(config_of(graph), SEARCH, ["model.dropout"]).space) == {"train.learning_rate"}
    assert "model.heads" not in Purpose.of(config_of(graph), None, ["model.heads"]).space


def test_a_study_of_an_earlier_version_keeps_what_its_settings_meant(graph: Path, tmp_path: Path) -> None:
    purpose_of(graph, "evaluate.two_classes=accuracy").begin(tmp_path)
    content = files.load_checked((tmp_path / STUDY_FILE).read_bytes(), FORMAT_VERSION, "")
    content["config"] = content["config"].replace('two_classes = "accuracy"\n', "")  # as if it did not know the key
    (tmp_path / STUDY_FILE).write_bytes(files.dump_checked(FORMAT_VERSION, content))
    assert Purpose.read(tmp_path).config.evaluate.two_classes == "accuracy"
    with pytest.raises(CheckpointError, match=r"holds a study with evaluate\.two_classes = accuracy, not roc_auc"):
        purpose_of(graph).begin(tmp_path)
    purpose_of(graph, "evaluate.two_classes=accuracy").begin(tmp_path)
