"""What the scoreboard was made on: processor, memory, versions, commit."""

import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from nfdist.memory import host_bytes, read_text

ROOT = Path(__file__).parents[2]
PACKAGES = ("nfdist", "torch", "dgl", "torch_geometric", "duckdb", "pyarrow", "numpy")
GIB = 2**30


def git(*words: str) -> str:
    """What git says of this clone, or nothing."""
    with suppress(OSError):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    return ""


def commit() -> str:
    return git("rev-parse", "--short", "HEAD") or "unknown"


def code_version() -> str:
    """Of what decides how a stage runs: facts of another version are made again, whatever documents say by then."""
    return " ".join(git("rev-parse", f"HEAD:{folder}") for folder in ("nfdist", "benchmarks/scoreboard", "launch"))


def describe_machine() -> dict[str, str]:
    model = [line.partition(":")[2].strip() for line in read_text(Path("/proc/cpuinfo")).splitlines() if "name" in line]
    cores = len(os.sched_getaffinity(0))
    return {
        "processor": f"{model[0] if model else platform.machine()}, {cores} cores",
        "memory": f"{host_bytes() / GIB:.1f} GiB",
        "versions": ", ".join([f"Python {platform.python_version()}", *filter(None, map(_versioned, PACKAGES))]),
        "threads": str(torch.get_num_threads()),
    }


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""
