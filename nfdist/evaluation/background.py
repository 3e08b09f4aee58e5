"""Work beside an evaluation: what is made already is written while the next rows are computed."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from nfdist.world import World

Item = TypeVar("Item")


class Background:
    """A thread that does one piece of work after another, for the length of a block.

    The ranks of its `world` meet in it, so that every rank must begin the same work in the same order. What the work
    reads must stay as it is until it is settled.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._pool = ThreadPoolExecutor(1, "nfdist writer")
        self._begun: list[Future[None]] = []
        self._given_up = threading.Event()

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._given_up.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, work: Callable[[], None]) -> None:
        """Do some work after what was begun before."""
        self._begun.append(self._pool.submit(torch.no_grad()(work)))  # recording is a setting of each thread

    def settle(self) -> None:
        """Wait until all that was begun is done; raise what it has raised. Every rank must call this."""
        begun, self._begun = self._begun, []
        for work in begun:
            work.result()

    def while_wanted(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, but no more once the block ends by an error or an interruption."""
        for item in items:
            if self._given_up.is_set():
                raise InterruptedError("what is being written is no longer wanted")
            yield item
