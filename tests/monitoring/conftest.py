"""A folder with the files of launch/monitoring, where there is a Prometheus to read them."""

import os
import shutil
from pathlib import Path

import pytest

from tests.monitoring.monitoring_files import MONITORING
from tests.monitoring.prometheus import missing_programs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of launch/monitoring."""
    if missing := missing_programs():
        reason = f"no {' and no '.join(missing)}: apt-get install --no-install-recommends prometheus"
        if os.environ.get("NFDIST_REQUIRE_PROMETHEUS") == "1":
            pytest.fail(f"Prometheus is required, but there is {reason}")
        pytest.skip(reason)
    return Path(shutil.copytree(MONITORING, tmp_path / "monitoring"))
