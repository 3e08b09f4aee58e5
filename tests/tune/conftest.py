"""One small graph for all tests."""

from pathlib import Path

import pytest

from tests.tune.building import build_graph


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_graph(tmp_path_factory.mktemp("tune"))
