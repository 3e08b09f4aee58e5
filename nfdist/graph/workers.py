"""Threads that each do all the work on a chunk of rows by themselves.

Torch's own threads wait for each other after every operation: on chunks that fit a cache that takes a good part of the
time, and many times the work itself when other processes want the cores too.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MOST_WORKERS = 8  # beyond that they would wait for the interpreter

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """`count` workers, at most as many as told, for the length of a block, in which torch's threads are divided."""

    def __init__(self, most: int = MOST_WORKERS) -> None:
        self._threads = torch.get_num_threads()
        self.count = max(1, min(self._threads, most, MOST_WORKERS))
        self._pool = ThreadPoolExecutor(self.count, "nfdist evaluation")

    def __enter__(self) -> "Workers":
        torch.set_num_threads(self._threads // self.count)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self._threads)

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results in the order of the items, not recorded for differentiation."""
        unrecorded = torch.no_grad()(work)  # recording is a setting of each thread
        if min(self.count, len(items)) == 1:
            return map(unrecorded, items)
        return self._pool.map(unrecorded, items)
