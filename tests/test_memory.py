"""Sizes as people write them, the watch over private memory, and the workers."""

import mmap
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from nfdist.errors import ConfigError
from nfdist.evaluation.budget import Budget
from nfdist.graph.workers import Workers
from nfdist.memory import MemoryWatch, format_bytes, parse_bytes, private_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 << 30),
        ("1.5 gib", 3 << 29),
        ("512MiB", 512 << 20),
        ("8KiB", 8192),
        ("1000", 1000),
        (" 2TiB", 2 << 40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes("--memory", text) == size


@pytest.mark.parametrize("text", ["4GB", "", "GiB", "-1MiB", "0", "1e9", "0.2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--memory must be a size such as 4GiB, 512MiB or a number of bytes"):
        parse_bytes("--memory", text)


def test_the_least_that_is_named_is_accepted() -> None:
    with pytest.raises(ConfigError) as refusal:
        Budget.within(1, 1000)
    least = parse_bytes("limit", str(refusal.value).rpartition(" ")[2])
    budget = Budget.within(least + (8 << 20), 1000)  # this process has grown a little since
    assert budget.held_bytes is not None
    assert budget.held_bytes + budget.work_bytes < least - private_bytes() + (8 << 20)
    assert parse_bytes("size", format_bytes(12345)) >= 12345


def test_the_watch_sees_what_is_gone_when_it_ends() -> None:
    before = private_bytes()
    with MemoryWatch() as watch:
        block = np.frombuffer(mmap.mmap(-1, 64 << 20), np.uint8)  # no memory that this process had before and freed
        block[:] = 1
        ends = time.monotonic() + 60
        while watch.peak_private_bytes < before + (60 << 20):
            assert time.monotonic() < ends, "not seen within a minute"
            time.sleep(0.01)
        del block
    assert private_bytes() < watch.peak_private_bytes < before + (90 << 20)


@pytest.fixture
def four_threads() -> Iterator[None]:
    used = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(used)


@pytest.mark.usefixtures("four_threads")
def test_workers_answer_in_order_and_have_one_thread_each() -> None:
    seen = set()
    four = threading.Barrier(4)

    def work(item: int) -> tuple[int, bool, int]:
        seen.add(threading.get_ident())
        four.wait(60)
        return item, torch.is_grad_enabled(), torch.get_num_threads()

    with Workers() as workers:
        assert list(workers.map(work, range(20))) == [(item, False, 1) for item in range(20)]
    assert len(seen) == 4
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_a_failing_worker_stops_the_others_and_leaves_torch_as_it_was() -> None:
    done = []

    def work(item: int) -> None:
        time.sleep(0.005)
        if item == 2:
            raise ValueError("item 2")
        done.append(item)

    with pytest.raises(ValueError, match="item 2"), Workers() as workers:
        list(workers.map(work, range(5000)))
    assert len(done) < 2500
    assert torch.get_num_threads() == 4


def test_freed_memory_is_kept_and_found_again() -> None:
    """In a process of its own, since how glibc allocates stays as it was set."""
    script = """
import resource
import numpy as np
from nfdist.memory import keep_freed_memory

def faults():
    blocks = [np.ones(2 << 20) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

kept, first, second = keep_freed_memory(), faults(), faults()
assert kept
assert faults() - second < 1000 < 8 * 4096, (first, second)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
