"""Measure this host in some seconds: each rate is the fastest of several tries, since others may want the cores too."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from nfdist.plan.rates import HostRates
from nfdist.sparse.spmm import segment_spmm

SECONDS_EACH = 0.8
ROWS, CHANNELS = 1 << 15, 64
GATHERED_ROWS, GATHERED_EDGES = 1 << 18, 1 << 19  # 64 MiB of rows, more than a core's caches
PASSED_NUMBERS = 1 << 24
DISK_BYTES = 64 << 20


def measure_host(folder: Path, seconds_each: float = SECONDS_EACH, disk_bytes: int = DISK_BYTES) -> HostRates:
    """The rates of this process and of a folder's disk; the links are measured by the doctor of several ranks."""
    read, written = disk_rates(folder, disk_bytes)
    return HostRates(
        product_flops=product_rate(seconds_each),
        passed_bytes=passing_rate(seconds_each),
        gathered_bytes=gathering_rate(seconds_each),
        disk_read_bytes=read,
        disk_written_bytes=written,
        threads=torch.get_num_threads(),
    )


def product_rate(seconds: float) -> float:
    """Of products such as those of a layer: many rows, narrow matrices."""
    rows, weights, out = torch.rand(ROWS, CHANNELS), torch.rand(CHANNELS, CHANNELS), torch.empty(ROWS, CHANNELS)
    return 2 * ROWS * CHANNELS**2 / _fastest(lambda: torch.mm(rows, weights, out=out), seconds)


def passing_rate(seconds: float) -> float:
    """Of a sum of two tensors: two are read and one is written."""
    left, right, out = (torch.ones(PASSED_NUMBERS) for _ in range(3))
    return 3 * left.nbytes / _fastest(lambda: torch.add(left, right, out=out), seconds)


def gathering_rate(seconds: float) -> float:
    """Of sums over neighbors: rows at random places are read once an edge."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(GATHERED_ROWS, CHANNELS)
    sources = torch.randint(GATHERED_ROWS, (GATHERED_EDGES,), generator=generator, dtype=torch.int32)
    ends = torch.arange(0, GATHERED_EDGES + 1, 32, dtype=torch.int32)
    weights = torch.ones(GATHERED_EDGES)
    return GATHERED_EDGES * CHANNELS * 4 / _fastest(lambda: segment_spmm(ends, sources, rows, weights), seconds)


def disk_rates(folder: Path, size: int) -> tuple[float, float]:
    """Bytes read and written a second in a folder, as far as the system lets its own memory be left out."""
    content = os.urandom(1 << 20) * (size >> 20)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="nfdist-bench-") as file:
        started = time.perf_counter()
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        written = size / (time.perf_counter() - started)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        started = time.perf_counter()
        with Path(file.name).open("rb", buffering=0) as again:
            while again.read(1 << 20):
                pass
        return size / (time.perf_counter() - started), written


def _fastest(work: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest of some tries."""
    work()
    best, ends = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best
