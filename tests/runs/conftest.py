from pathlib import Path

import pytest

from nfdist.runs.run import Run
from tests.runs.building import CONFIG


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", CONFIG, "launch-1")
