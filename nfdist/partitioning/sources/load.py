"""The one entry point of sources: each is located, and read or counted by its format."""

from dataclasses import fields, replace

from nfdist.errors import PartitionError
from nfdist.partitioning.sources.assemble import assemble
from nfdist.partitioning.sources.formats.source_format import FORMATS, Located, SourceCounts
from nfdist.partitioning.sources.locate import locate
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.workspace import Workspace
from nfdist.store.source_graph import SourceGraph
from nfdist.store.table_shares import check_same_files


def load(source: str, options: SourceOptions, workspace: Workspace | None = None) -> SourceGraph:
    """The graph of a name or a path, checked and with its split; its arrays lie in a workspace."""
    workspace = workspace or Workspace.unlimited()
    try:
        located = locate(source)
        if located.path is not None and located.path.is_file():
            check_same_files(workspace.world, [located.path])
        _refuse_what_does_not_apply(located, options)
        return assemble(located.format.read(located.path, located.name, options, workspace), options, workspace)
    except MemoryError:
        raise PartitionError(
            f"{source} does not fit the memory of this machine: nfdist plan says what it needs"
        ) from None


def counts(source: str, options: SourceOptions) -> SourceCounts:
    """The counts of a name or a path, without loading it where its format allows; a k-NN graph counts its neighbors."""
    located = locate(source)
    if located.format.count is not None:
        found = located.format.count(located.path, options)
    else:
        found = SourceCounts.of(located.format.read(located.path, located.name, options, Workspace.unlimited()))
    return replace(found, edges=found.nodes * options.knn) if options.knn else found


def _refuse_what_does_not_apply(located: Located, options: SourceOptions) -> None:
    """Refuse options that the source would ignore."""
    if options.scale != 1.0 and "scale" not in located.format.options:
        scaled = ", ".join(name for known in FORMATS if "scale" in known.options for name in known.datasets)
        raise PartitionError(f"scale {options.scale} is for {scaled} alone: {located.name} has one size")
    for column in (field.name for field in fields(options) if "column" in field.name):
        if getattr(options, column) and column not in located.format.options:
            raise PartitionError(f"{column} does not apply to {located.name}, which has no such columns: leave it out")
