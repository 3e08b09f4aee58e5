"""What the ranks bring to a batch, and what the batches of a step come to."""

from dataclasses import dataclass
from signal import Signals

from nfdist.training.batches import Batch
from nfdist.training.step import Counts


@dataclass(frozen=True)
class Meeting:
    """What the ranks tell each other before a batch: counts, how long each worked on the last step, who must stop.

    The lag is how much longer than the fastest this rank worked.
    """

    counts: Counts
    busy_seconds: tuple[float, ...]
    straggler_lag_seconds: float
    stop: Signals | None

    @property
    def straggler_gap_seconds(self) -> float:
        """How unequal the last step's work was."""
        return max(self.busy_seconds) - min(self.busy_seconds)


@dataclass
class Accumulated:
    """A step so far: when it began, what this rank had sent and waited by then, and its batches since.

    Nodes, edges and bytes are this rank's own, `all_nodes` and `all_edges` those of all ranks.
    """

    began: float
    sent_before: int
    talked_before: float
    batches: int = 0
    nodes: int = 0
    edges: int = 0
    all_nodes: int = 0
    all_edges: int = 0
    sent_bytes: int = 0
    wait_seconds: float = 0.0
    straggler_gap_seconds: float = 0.0
    straggler_lag_seconds: float = 0.0
    rank_seconds: tuple[float, ...] = ()

    def add(self, batch: Batch, meeting: Meeting, waited_seconds: float) -> None:
        """Count one batch more, which was waited for so long."""
        self.batches += 1
        self.nodes += batch.num_nodes
        self.edges += batch.num_edges
        self.all_nodes += meeting.counts.nodes
        self.all_edges += meeting.counts.edges
        self.sent_bytes += batch.sent_bytes
        self.wait_seconds += waited_seconds
        # The same in all meetings of a step.
        self.straggler_gap_seconds, self.rank_seconds = meeting.straggler_gap_seconds, meeting.busy_seconds
        self.straggler_lag_seconds = meeting.straggler_lag_seconds
