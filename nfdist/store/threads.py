"""Pieces of one read, shared by as many threads as torch may use.

Numpy leaves the interpreter's lock while it gathers. Torch's own threads wait for each other after every operation,
which cost more than the work of a cache-sized piece, and many times more on a busy machine. Threads live for one
call, so a process may fork between two.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The results in the order of the items."""
    workers = min(torch.get_num_threads(), len(items))
    if workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
