"""digits: the 1,797 images of handwritten digits that scikit-learn brings, without edges."""

from nfdist.partitioning.sources.formats.source_format import SourceFormat, register
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import NO_EDGES, RawGraph
from nfdist.partitioning.workspace import Workspace


def read(path: None, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return RawGraph(name, NO_EDGES, NO_EDGES, pixels, labels)


register(SourceFormat("digits", 60, read, datasets=("digits",)))
