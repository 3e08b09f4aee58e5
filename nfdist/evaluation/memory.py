"""Memory of this process: sizes as people write them, what it holds now, and the most it held while something ran."""

import re
import threading
from dataclasses import dataclass

from nfdist.errors import ConfigError
from nfdist.memory import private_bytes

_UNITS = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SECONDS_BETWEEN_SAMPLES = 0.01
_MOST_WORK_BYTES = 256 << 20
_LEAST_BYTES = 64 << 20
_NODE_BYTES = 48


def parse_bytes(name: str, text: str) -> int:
    """The bytes of a size such as 4GiB, 512MiB or 1000000; messages call the setting `name`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]ib|)", text.strip().lower())
    size = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise ConfigError(f"{name} must be a size such as 4GiB, 512MiB or a number of bytes, got {text!r}")
    return size


def format_bytes(size: int) -> str:
    """A size that `parse_bytes` reads as no less than it is."""
    return f"{-(-size // 2**20)}MiB"


@dataclass(frozen=True)
class Budget:
    """How much memory tensors with a row for every node may take together, and how much the work on a few of them."""

    held_bytes: int | None
    work_bytes: int

    @staticmethod
    def within(limit_bytes: int | None, num_nodes: int) -> "Budget":
        """What is left of a limit for the whole process; a good third stays free for libraries.

        The caller will hold labels, splits and the like of so many nodes.
        """
        if limit_bytes is None:
            return Budget(None, _MOST_WORK_BYTES)
        held = private_bytes()
        left = limit_bytes - held - _NODE_BYTES * num_nodes
        if left < _LEAST_BYTES:
            least = limit_bytes - left + _LEAST_BYTES
            raise ConfigError(
                f"a memory limit of {format_bytes(limit_bytes)} is too low for {num_nodes:,} nodes in a process that "
                f"holds {format_bytes(held)} before it starts: give at least {format_bytes(least)}"
            )
        return Budget(left // 2, min(_MOST_WORK_BYTES, left // 8))


class MemoryWatch:
    """Samples `private_bytes` from a thread of its own for as long as its block runs."""

    def __init__(self) -> None:
        self.peak_private_bytes = private_bytes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nfdist memory watch", daemon=True)

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(_SECONDS_BETWEEN_SAMPLES)
            self.peak_private_bytes = max(self.peak_private_bytes, private_bytes())
