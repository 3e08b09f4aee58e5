"""Every mistake nfdist reports to its user.

NfdistError
├── ConfigError       a setting, an argument or a tensor that cannot be used
├── PartitionError    a graph on disk that cannot be read or written
│   └── UnknownNodeError  an id that no node of it has
├── WorldError        workers that disagree, or one that is missing
├── DivergedError     a loss or gradient that is no number
└── CheckpointError   a run or checkpoint that cannot be used

A message names the thing, its value and the next move; the command line prints it as one line and exits with 2.
"""


class NfdistError(Exception):
    """A mistake the user can repair; `everywhere` when every rank raises it, so that one of them may tell for all."""

    everywhere = False

    def __str__(self) -> str:
        """One line, whatever names and values of the user it quotes."""
        return " ".join(line.strip() for line in super().__str__().splitlines())


class ConfigError(NfdistError):
    """A setting, an argument or a tensor that cannot be used."""


class PartitionError(NfdistError):
    """A graph on disk that cannot be read or written."""


class UnknownNodeError(PartitionError):
    """An id that no node of a graph has."""


class WorldError(NfdistError):
    """Workers that disagree, or one that is missing."""


class DivergedError(NfdistError):
    """A loss or gradient that is no number."""


class CheckpointError(NfdistError):
    """A run or checkpoint that cannot be used."""
