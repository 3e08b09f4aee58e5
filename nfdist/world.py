"""World: who this process is among the workers of a job. It is passed, never discovered."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Optional

from nfdist.errors import WorldError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Watch:
    """What this rank is doing, for those who wait for it, and what talking to the others has cost.

    `explain` turns a failed collective into a sentence that names who is missing; whoever joined the world knows how.
    """

    def __init__(self) -> None:
        self.phase = "start"
        self.sent_bytes = 0
        self.seconds = 0.0
        self.explain: Callable[[], str] = lambda: "another rank has stopped"

    def count(self, sent_bytes: int, seconds: float) -> None:
        self.sent_bytes += sent_bytes
        self.seconds += seconds

    @contextmanager
    def collective(self, name: str, sent_bytes: int = 0) -> Iterator[None]:
        """Something the ranks do together: counted, timed, and explained when it fails."""
        started = time.perf_counter()
        with self.explained(name):
            yield
        self.count(sent_bytes, time.perf_counter() - started)

    @contextmanager
    def explained(self, name: str) -> Iterator[None]:
        """A phase that fails when another rank is gone or late; then the error says which."""
        before = self.phase
        self.phase = f"{before}, {name}"
        try:
            yield
        except RuntimeError as error:  # what torch.distributed raises
            first_line = (str(error).splitlines() or [""])[0]
            raise WorldError(f"{self.phase}: {self.explain()} ({first_line:.160})") from error
        finally:
            self.phase = before


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
        watch.explain = self.watch.explain
        return replace(self, group=group, watch=watch)
