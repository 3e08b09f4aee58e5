"""Small graphs on disk for trainings on an accelerator."""

from pathlib import Path

from tests.golden import graphs
from tests.store import building


def build_graph(folder: Path, name: str) -> Path:
    """One of the golden graphs, or "words", whose features are sparse rows."""
    if name != "words":
        return graphs.build_graph(folder, name)
    out = folder / name
    if not out.exists():
        building.write(out, building.build_graph(features="sparse"))
    return out
