"""Threads that each do all the work on a chunk of rows by themselves.

Torch's own threads wait for each other after every operation: on chunks that fit a cache that takes a good part of the
time, and many times the work itself when other processes want the cores too.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MOST_WORKERS = 8  # beyond that they would wait for the interpreter

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_workers() -> int:
    """How many chunks are worked on at a time."""
    return min(torch.get_num_threads(), MOST_WORKERS)


def keep_freed_memory() -> None:
    """Make glibc keep what chunks free, up to 32 MiB a block, for the next chunk: fresh pages cost more than the work.

    It raises its own threshold to the largest block that it has seen returned.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def in_workers(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results in the order of the items, not recorded for differentiation; take them all.

    Threads that torch may use beyond the workers help these.
    """
    workers, threads = num_workers(), torch.get_num_threads()
    unrecorded = torch.no_grad()(work)  # recording is a setting of each thread
    if workers == 1:
        yield from map(unrecorded, items)
        return
    torch.set_num_threads(threads // workers)
    pool = ThreadPoolExecutor(workers, "nfdist evaluation")
    try:
        yield from pool.map(unrecorded, items)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
