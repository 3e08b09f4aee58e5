"""Every SOURCE that can be partitioned: `load` turns one into a SourceGraph, `counts` only measures it."""

from nfdist.partitioning.sources.formats.source_format import SourceCounts
from nfdist.partitioning.sources.load import counts, load
from nfdist.partitioning.sources.locate import dataset_names
from nfdist.partitioning.sources.options import SourceOptions

__all__ = ["SourceCounts", "SourceOptions", "counts", "dataset_names", "load"]
