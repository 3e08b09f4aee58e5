"""Jobs to plan: a small graph's counts, made larger as tests want them."""

from dataclasses import replace
from pathlib import Path

from nfdist import settings
from nfdist.graph.counts import read_counts
from nfdist.plan.planned_job import PlannedJob
from nfdist.plan.rates import ROUGH, KnownRates


def job_of(partition: Path, *overrides: str, ranks: int = 1, times: int = 1) -> PlannedJob:
    """A job on a graph with so many times as many nodes and edges."""
    config = settings.parse({"relation": {"order": 1}}, [f'data.partition="{partition}"', *overrides])
    counts = read_counts(partition, config.relation.num_patterns)
    parts = tuple(
        replace(part, start=part.start * times, stop=part.stop * times, halo_nodes=part.halo_nodes * times)
        for part in counts.parts
    )
    larger = replace(
        counts,
        nodes=counts.nodes * times,
        edges=counts.edges * times,
        trained=counts.trained * times,
        validated=counts.validated * times,
        patterns=tuple(pattern * times for pattern in counts.patterns),
        parts=parts,
    )
    return PlannedJob(config, larger, KnownRates(ROUGH, False), ranks)
