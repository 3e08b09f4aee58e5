"""World: who this process is among the workers of a job. It is passed, never discovered."""

from dataclasses import dataclass

from nfdist.errors import WorldError


@dataclass(frozen=True)
class World:
    """A rank among `size` ranks that meet in torch.distributed's default group; a world of one needs no group."""

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise WorldError(f"rank {self.rank} does not exist in a world of {self.size}")
