"""Every kernel compiles for the GPUs it is meant for, which needs none of them, and fits their processors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton.compiler", reason="triton is not installed: pip install nfdist[gpu]")

MOST_SHARED = 99 << 10  # bytes that a program may have on the smallest of them, capability 8.6


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "90"])
def test_all_kernels_compile_and_fit(capability: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.attention.ops.triton_kernels.compiling", capability]
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    report = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert report.returncode == 0, report.stderr[-2000:]
    shared = [int(count) for count in re.findall(r"(\d+) shared", report.stdout)]
    assert len(shared) > 30
    assert max(shared) <= MOST_SHARED, report.stdout
