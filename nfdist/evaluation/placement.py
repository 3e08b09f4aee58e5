"""Placement: where the rows of an evaluation are worked on, and where what has a row for every node lies meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nfdist.collectives import least
from nfdist.devices import is_gpu, memory_use, pin
from nfdist.graph.spill import Spill
from nfdist.graph.workers import MOST_WORKERS, Workers
from nfdist.world import World

CPU = torch.device("cpu")
ROWS_AT_ONCE = 1 << 14  # half as many cost 3% more on two cores of an EPYC, an eighth 23%
GPU_ROWS_AT_ONCE = 1 << 17  # a guess: eight times as many, so that launches are few
FEW_ROWS = 1 << 12  # so few that workers would wait for the interpreter: torch's own threads do better
_MOST_WORK_BYTES = 1 << 30  # of a GPU, for the work on the rows of a chunk
_SPARE = 0.2  # of a GPU's free memory, for libraries and what does not fit into gaps


@dataclass(frozen=True)
class Placement:
    """Rows are worked on at `work`, in at most so much memory; `states` is the same device, or the CPU beside a GPU.

    `edges` says whether a GPU keeps the edges, too: else they come from mapped files again in every sweep.
    """

    work: torch.device
    states: torch.device
    work_bytes: int
    edges: bool = False

    @staticmethod
    def on_cpu(work_bytes: int) -> "Placement":
        """All in the memory of this host, or in files."""
        return Placement(CPU, CPU, work_bytes)

    @staticmethod
    def decided(world: World, work: torch.device, state_bytes: int, edge_bytes: int, work_bytes: int) -> "Placement":
        """By what is left of the GPU's memory, the same for all ranks: they exchange rows of states.

        Every rank must call this.
        """
        use = memory_use(work)
        if use is None:
            return Placement.on_cpu(work_bytes)
        usable = int(use.free * (1 - _SPARE))
        work_bytes = min(_MOST_WORK_BYTES, usable // 8)
        left = usable - work_bytes - state_bytes
        fits = torch.tensor([left >= 0, left >= edge_bytes], dtype=torch.int64)
        states, edges = least(world, fits, "compare memory").tolist()
        return Placement(work, work if states else CPU, work_bytes, bool(edges))

    @property
    def beside_states(self) -> "Placement":
        """For work without products: all of it where states lie."""
        return Placement(self.states, self.states, self.work_bytes, self.edges)

    def workers(self, num_rows: int) -> Workers:
        """Who works on chunks of so many rows: one thread gives a GPU its work."""
        return Workers(1 if num_rows <= FEW_ROWS or is_gpu(self.work) else MOST_WORKERS)

    @property
    def rows_at_once(self) -> int:
        """Most rows of a chunk."""
        return GPU_ROWS_AT_ONCE if is_gpu(self.work) else ROWS_AT_ONCE


@dataclass(frozen=True)
class Room:
    """Makes tensors of zeros, where states lie: a GPU's memory, or that of the host, which a GPU can copy directly."""

    spill: Spill
    placement: Placement

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        if is_gpu(self.placement.states):
            return torch.zeros(tuple(shape), dtype=dtype, device=self.placement.states)
        in_memory = self.spill.fits(shape, dtype)
        made = self.spill.tensor(shape, dtype)
        return pin(made, self.placement.work) if in_memory else made
