"""Budget: how the memory that an evaluation may take is divided."""

from dataclasses import dataclass

from nfdist.errors import ConfigError
from nfdist.memory import format_bytes, private_bytes

_MOST_WORK_BYTES = 256 << 20
_LEAST_BYTES = 64 << 20
NODE_BYTES = 48


@dataclass(frozen=True)
class Budget:
    """How much memory tensors with a row for every node may take together, and how much the work on a few of them."""

    held_bytes: int | None
    work_bytes: int

    @staticmethod
    def within(limit_bytes: int | None, num_nodes: int) -> "Budget":
        """What is left of a limit for the whole process, which has begun."""
        return Budget.of(limit_bytes, 0 if limit_bytes is None else private_bytes(), num_nodes)

    @staticmethod
    def of(limit_bytes: int | None, held: int, num_nodes: int) -> "Budget":
        """What is left of a limit for a process that holds so much before; a good third stays free for libraries.

        The caller will hold labels, splits and the like of so many nodes.
        """
        if limit_bytes is None:
            return Budget(None, _MOST_WORK_BYTES)
        left = limit_bytes - held - NODE_BYTES * num_nodes
        if left < _LEAST_BYTES:
            least = limit_bytes - left + _LEAST_BYTES
            raise ConfigError(
                f"a memory limit of {format_bytes(limit_bytes)} is too low for {num_nodes:,} nodes in a process that "
                f"holds {format_bytes(held)} before it starts: give at least {format_bytes(least)}"
            )
        return Budget(left // 2, min(_MOST_WORK_BYTES, left // 8))
