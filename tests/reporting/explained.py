"""A run, its graph, and what a report finds in it."""

from dataclasses import dataclass
from pathlib import Path

from nfdist.reporting.run_facts import RunFacts


@dataclass(frozen=True)
class Explained:
    path: Path
    graph: Path
    facts: RunFacts
