"""Every SOURCE that can be partitioned: `load` turns one into a SourceGraph, `counts` only measures it."""

from nfdist.partition.sources.counting import SourceCounts, counts
from nfdist.partition.sources.load import load
from nfdist.partition.sources.locate import NAMES
from nfdist.partition.sources.options import SourceOptions

__all__ = ["NAMES", "SourceCounts", "SourceOptions", "counts", "load"]
