"""What is wrong around a command is one line, and nothing else is."""

import errno
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from nfdist.cli.environment import check_address_space, explain, open_standard_streams
from nfdist.errors import ConfigError


def failure(work: Callable[[], object]) -> BaseException:
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


@pytest.mark.parametrize(
    "work",
    [
        lambda: torch.empty(1 << 60, dtype=torch.uint8),
        lambda: np.empty(1 << 60, dtype=np.uint8),
        lambda: bytearray(1 << 60),
    ],
)
def test_a_shortage_of_memory_says_what_helps(work: Callable[[], object]) -> None:
    text = explain(failure(work), "train")
    assert text is not None
    assert text.startswith("train ran out of memory (")
    assert text.endswith("lower train.batch_nodes")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "ran out of memory"),
        (Exception("metis_partition.cc:104: Error in Metis: cannot allocate memory\nStack"), "ran out of memory"),
        (RuntimeError("can't start new thread"), "ran out of memory"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "ran out of memory"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b cannot be used (No space left on device): free"),
        (OSError(errno.EMFILE, "Too many open files", "a/b"), "ulimit -n"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b cannot be used (Permission denied)"),
        (OSError(errno.ESTALE, "Stale file handle"), "a file cannot be used (Stale file handle)"),
    ],
)
def test_what_the_environment_refuses_is_named(error: Exception, words: str) -> None:
    text = explain(error, "evaluate")
    assert text is not None
    assert words in text
    assert text.startswith("evaluate")


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes differ"), ValueError("x"), ConnectionResetError("x"), OSError()]
)
def test_a_bug_stays_one(error: Exception) -> None:
    assert explain(error, "train") is None


def test_a_limit_under_which_nothing_loads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_address_space("train")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 30, resource.RLIM_INFINITY))
    with pytest.raises(ConfigError, match=r"train may use 1\.00 GiB of addresses, .* takes 1\.5 GiB: .*ulimit -v"):
        check_address_space("train")


def test_a_closed_stdout_is_not_the_number_of_the_next_file(tmp_path: Path) -> None:
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from nfdist.cli.environment import open_standard_streams"
    )
    program += "; open_standard_streams(); file = open(sys.argv[1], 'w'); os.write(1, b'noise'); os.write(2, b'noise')"
    root = Path(__file__).parents[2]
    script = 'exec "$0" -c "$1" "$2" "$3" >&- 2>&- <&-'
    done = subprocess.run(["sh", "-c", script, sys.executable, program, tmp_path / "file", root], timeout=60)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == ""
    open_standard_streams()  # where all are open it does nothing
