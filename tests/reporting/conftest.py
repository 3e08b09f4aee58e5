"""What the tests of this folder read and never change."""

import pytest

from nfdist.reporting.run_facts import gather
from tests.reporting.building import build_graph, train_run
from tests.reporting.explained import Explained


@pytest.fixture(scope="session")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Explained:
    folder = tmp_path_factory.mktemp("reporting")
    graph = build_graph(folder).directory
    path = train_run(folder / "run", graph)
    return Explained(path, graph, gather(path))
