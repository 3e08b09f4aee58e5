"""What to tell when a GPU has no memory left: whose, at what, and which batch would fit."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nfdist.config import TrainConfig
from nfdist.devices import MemoryUse, memory_use
from nfdist.errors import ConfigError
from nfdist.memory import is_shortage
from nfdist.world import World

ROOM = 0.9  # of the memory: freed blocks do not always fit what comes next
_ASKED = re.compile(r"tried to allocate (\d+(?:\.\d+)?) ([kmg]i)?b", re.IGNORECASE)
_UNITS = {"": 1, "ki": 2**10, "mi": 2**20, "gi": 2**30}


class Shortage:
    """What the batches of this rank take of its device, as far as steps have shown."""

    def __init__(self, device: torch.device, world: World, config: TrainConfig) -> None:
        self._device, self._world, self._config = device, world, config
        self._num_nodes = 0
        self._row_bytes: float | None = None
        before = memory_use(device)
        self._before = 0 if before is None else before.now

    def meet(self, num_nodes: int) -> None:
        """A batch of so many nodes is about to be worked on."""
        self._num_nodes = num_nodes

    def learn(self) -> None:
        """A step has fit; the first one tells what a node takes, before an evaluation can have taken more."""
        if self._row_bytes is None:
            use = memory_use(self._device)
            self._row_bytes = 0.0 if use is None else (use.peak - self._before) / max(1, self._num_nodes)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """A block in which an error of the device's memory becomes one line for its user."""
        try:
            yield
        except RuntimeError as error:
            use = memory_use(self._device)
            if use is None or not is_shortage(error):
                raise
            raise ConfigError(self._text(use, str(error))) from error

    def _text(self, use: MemoryUse, error: str) -> str:
        asked = _ASKED.search(error)
        more = float(asked[1]) * _UNITS[(asked[2] or "").lower()] if asked else 0.0
        phase, nodes = self._world.watch.phase, self._num_nodes
        whose = f"rank {self._world.rank} ({self._device} on {socket.gethostname()})"
        text = f"{whose} is out of memory at {phase}, with {use.now / 2**30:.2f} of {use.limit / 2**30:.2f} GiB in use"
        if nodes == 0 or use.limit <= self._before:
            return f"{text}: use a GPU with more memory, or make [model] smaller"
        # Of a batch that has not fit, this is the least that its nodes take.
        least = max(self._row_bytes or 0.0, (use.peak - self._before + more) / nodes)
        fits = rounded_down(min(ROOM * (use.limit - self._before) / max(least, 1.0), ROOM * nodes))
        cure = f"set train.batch_nodes to at most {fits} (is {self._config.batch_nodes})"
        if self._config.batch_nodes == 0:
            cure = f"use more ranks, or set train.batch_nodes to at most {fits}"
        return f"{text}, by {nodes} nodes: {cure}"


def rounded_down(number: float) -> int:
    """The number with two digits, then zeros: what people are told to set a batch to."""
    unit: int = 10 ** max(0, len(str(int(number))) - 2)
    return max(1, int(number) // unit * unit)
