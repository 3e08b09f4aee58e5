"""Measure this host in some seconds: each rate is the fastest of several tries, since others may want the cores too.

Every thread works by itself, as the workers of an evaluation do, and all at once, so that they share what they must.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from nfdist.graph.workers import Workers
from nfdist.plan.rates import HostRates
from nfdist.sparse.spmm import segment_spmm

SECONDS_EACH = 0.8
ROWS, CHANNELS = 1 << 12, 64
GATHERED_ROWS, GATHERED_EDGES, EDGES_AT_ONCE = 1 << 18, 1 << 19, 1 << 14  # 64 MiB of rows, more than a core's caches
PASSED_NUMBERS, PASSED_AT_ONCE = 1 << 23, 1 << 18
DISK_BYTES = 64 << 20
DISK_TRIES, DISK_SECONDS = 3, 2.0
LOADED = "import nfdist.evaluation.evaluator"


def measure_host(folder: Path, seconds_each: float = SECONDS_EACH, disk_bytes: int = DISK_BYTES) -> HostRates:
    """The rates of this process and of a folder's disk; the links are measured by the doctor of several ranks."""
    tries = [disk_rates(folder, disk_bytes)]
    while len(tries) < DISK_TRIES and disk_bytes * sum(1 / written for _, written in tries) < DISK_SECONDS:
        tries.append(disk_rates(folder, disk_bytes))
    read, written = (max(rates) for rates in zip(*tries, strict=True))
    return HostRates(
        product_flops=product_rate(seconds_each),
        passed_bytes=passing_rate(seconds_each),
        gathered_bytes=gathering_rate(seconds_each),
        disk_read_bytes=read,
        disk_written_bytes=written,
        start_seconds=start_seconds(),
        threads=torch.get_num_threads(),
    )


def product_rate(seconds: float) -> float:
    """Of products such as those of a layer: many rows, narrow matrices."""

    def make() -> list[Callable[[], object]]:
        rows, weights, out = torch.rand(ROWS, CHANNELS), torch.rand(CHANNELS, CHANNELS), torch.empty(ROWS, CHANNELS)
        return [lambda: torch.mm(rows, weights, out=out)]

    return 2 * ROWS * CHANNELS**2 * _pieces_a_second(make, seconds)


def passing_rate(seconds: float) -> float:
    """Of a sum of two tensors: two are read and one is written."""

    def make() -> list[Callable[[], object]]:
        tensors = [torch.ones(PASSED_NUMBERS).split(PASSED_AT_ONCE) for _ in range(3)]
        return [partial(torch.add, left, right, out=out) for left, right, out in zip(*tensors, strict=True)]

    return 3 * 4 * PASSED_AT_ONCE * _pieces_a_second(make, seconds)


def gathering_rate(seconds: float) -> float:
    """Of sums over neighbors: rows at random places are read once an edge."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(GATHERED_ROWS, CHANNELS)
    sources = torch.randint(GATHERED_ROWS, (GATHERED_EDGES,), generator=generator, dtype=torch.int32)
    ends = torch.arange(0, EDGES_AT_ONCE + 1, 32, dtype=torch.int32)
    weights = torch.ones(EDGES_AT_ONCE)

    def make() -> list[Callable[[], object]]:
        return [partial(segment_spmm, ends, some, rows, weights) for some in sources.split(EDGES_AT_ONCE)]

    return EDGES_AT_ONCE * CHANNELS * 4 * _pieces_a_second(make, seconds)


def start_seconds() -> float:
    """What a process works until it has loaded the libraries of a command, whatever else the cores do meanwhile."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", LOADED], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


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


def _pieces_a_second(make: Callable[[], Sequence[Callable[[], object]]], seconds: float) -> float:
    """Of all threads together, each with pieces of its own that take equally long."""
    with Workers() as workers:
        return sum(workers.map(lambda _: 1 / _fastest(make(), seconds), range(workers.count)))


def _fastest(pieces: Sequence[Callable[[], object]], seconds: float) -> float:
    """Seconds of the fastest piece; one after another, so that none finds in a cache what it left there itself.

    Each takes a millisecond or less: what takes longer is interrupted on a busy host, whatever is tried.
    """
    best, ends = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for work in pieces:
            started = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - started)
    return best
