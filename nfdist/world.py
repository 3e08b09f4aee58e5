"""World: who this process is among the workers of a job. It is passed, never discovered."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Optional

import torch

from nfdist.errors import WorldError
from nfdist.memory import is_shortage

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

CPU = torch.device("cpu")

SECONDS_BETWEEN_LOOKS = 0.0002
MOST_OPEN = 1000  # collectives whose time nobody has asked for yet: older ones have ended

Seconds = Callable[[], float]  # of what has ended; on a GPU asking for them waits until it has


class Watch:
    """What this rank is doing, for those who wait for it, and what talking to the others has cost.

    `explain` turns a failed collective into a sentence that names who is missing, and nobody is waited for longer than
    `timeout_seconds`; whoever joined the world knows both. `stopwatch` times collectives where their tensors are: it
    gives what ends the time, and that the seconds.
    """

    def __init__(self) -> None:
        self.phase = "start"
        self.sent_bytes = 0
        self.explain: Callable[[], str] = lambda: "another rank has stopped"
        self.timeout_seconds = math.inf
        self.stopwatch: Callable[[torch.device], Callable[[], Seconds]] = lambda _: _host_stopwatch()
        self._seconds = 0.0
        self._open: list[Seconds] = []

    @property
    def seconds(self) -> float:
        """In collectives so far."""
        while self._open:
            self._seconds += self._open.pop(0)()
        return self._seconds

    def count(self, sent_bytes: int, seconds: Seconds) -> None:
        self.sent_bytes += sent_bytes
        self._open.append(seconds)
        if len(self._open) > MOST_OPEN:
            self._seconds += self._open.pop(0)()

    @contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """A phase within the one before, which stays when it fails: so what explains the failure can name it."""
        before = self.phase
        self.phase = f"{before}, {name}"
        yield
        self.phase = before

    @contextmanager
    def collective(self, name: str, sent_bytes: int = 0, on: torch.device = CPU) -> Iterator[None]:
        """Something the ranks do together with tensors `on` a device: counted, timed, and explained when it fails."""
        stop = self.stopwatch(on)
        with self.explained(name):
            yield
        self.count(sent_bytes, stop())

    @contextmanager
    def explained(self, name: str) -> Iterator[None]:
        """A phase that fails when another rank is gone or late; then the error says which."""
        with self.doing(name):
            try:
                yield
            except RuntimeError as error:  # what torch.distributed raises
                if is_shortage(error):
                    raise  # this rank's own
                first_line = (str(error).splitlines() or [""])[0]
                raise WorldError(f"{self.phase}: {self.explain()} ({first_line:.160})") from error

    def wait_until(self, reached: Callable[[], bool], name: str) -> None:
        """Wait for a device on which a collective does not fail when another rank is gone, but never ends."""
        ends = time.monotonic() + self.timeout_seconds
        with self.explained(name):
            while not reached():
                if time.monotonic() > ends:
                    raise RuntimeError(f"waited {self.timeout_seconds:g} s")
                time.sleep(SECONDS_BETWEEN_LOOKS)


@dataclass(frozen=True)
class World:
    """A rank among `size` ranks that meet in `group` (None: torch.distributed's default; a world of one needs none)."""

    rank: int = 0
    size: int = 1
    group: Optional["ProcessGroup"] = field(default=None, compare=False)
    watch: Watch = field(default_factory=Watch, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise WorldError(f"rank {self.rank} does not exist in a world of {self.size}")

    def meeting_in(self, group: Optional["ProcessGroup"]) -> "World":
        """The same ranks in a group of their own, with a watch of its own: for another thread."""
        watch = Watch()
        watch.explain, watch.timeout_seconds = self.watch.explain, self.watch.timeout_seconds
        return replace(self, group=group, watch=watch)


def _host_stopwatch() -> Callable[[], Seconds]:
    started = time.perf_counter()

    def stop() -> Seconds:
        seconds = time.perf_counter() - started
        return lambda: seconds

    return stop
