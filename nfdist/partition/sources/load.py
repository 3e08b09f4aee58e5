"""The one entry point of sources."""

from dataclasses import fields

from nfdist.errors import PartitionError
from nfdist.partition.sources import dgl_files, named, npz, ogb_files, synthetic, tables
from nfdist.partition.sources.finish import finish
from nfdist.partition.sources.locate import Located, locate
from nfdist.partition.sources.options import SourceOptions
from nfdist.partition.sources.raw import RawSource
from nfdist.store.graph import SourceGraph

_NODE_COLUMNS = ("id_column", "feature_columns", "label_column", "split_column")
_COLUMNS_OF = {
    "tables": (*_NODE_COLUMNS, "source_column", "target_column"),
    "dgl": _NODE_COLUMNS,
    "dgl-partition": _NODE_COLUMNS,
    "npz": ("id_column", "label_column"),
}


def load(source: str, options: SourceOptions) -> SourceGraph:
    """The graph of a name or a path, checked and with its split."""
    try:
        return finish(_read(locate(source), options), options)
    except MemoryError:
        raise PartitionError(
            f"{source} does not fit the memory of this machine: nfdist plan says what it needs"
        ) from None


def _read(located: Located, options: SourceOptions) -> RawSource:
    _refuse_what_does_not_apply(located, options)
    if located.kind == "synthetic":
        return synthetic.make(options.scale, options.seed)
    if located.kind == "digits":
        return named.read_digits()
    if located.kind == "news":
        return named.read_news(located.path)
    assert located.path is not None
    if located.kind == "tables":
        return tables.read(located.path, located.name, options)
    if located.kind == "dgl":
        return dgl_files.read_graph(located.path, located.name, options)
    if located.kind == "dgl-partition":
        return dgl_files.read_partition(located.path, located.name, options)
    if located.kind == "ogb":
        raw = ogb_files.read(located.path, located.name)
    else:
        raw = npz.read(located.path, located.name, options)
    if located.name == "amazon2m":
        raw.members = None  # ogbn-products' sales ranking is not Amazon2M's split, which is random
    return raw


def _refuse_what_does_not_apply(located: Located, options: SourceOptions) -> None:
    """Refuse options that the source would ignore."""
    if options.scale != 1.0 and located.kind != "synthetic":
        raise PartitionError(f"scale {options.scale} is for {synthetic.NAME} alone: {located.name} has one size")
    known = _COLUMNS_OF.get(located.kind, ())
    for column in (field.name for field in fields(options) if "_column" in field.name):
        if getattr(options, column) and column not in known:
            raise PartitionError(f"{column} does not apply to {located.name}, which has no such columns: leave it out")
