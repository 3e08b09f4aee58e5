"""A data folder of a test's own."""

from pathlib import Path

import pytest


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NFDIST_DATA", str(tmp_path))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "empty"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
