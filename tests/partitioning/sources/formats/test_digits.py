"""digits comes with scikit-learn, with edges between its nearest neighbors where they are asked for."""

from pathlib import Path

import numpy as np

from nfdist.partitioning.sources import SourceCounts, SourceOptions, counts, load


def test_digits_with_nearest_neighbors(data: Path) -> None:
    from sklearn.datasets import load_digits

    graph = load("digits", SourceOptions(knn=5))
    assert np.array_equal(graph.features, load_digits().data)
    assert np.array_equal(graph.labels, load_digits().target)
    assert len(graph.sources) >= 5 * 1797
    assert np.bincount(graph.split).tolist() == [0, 898, 450, 449]
    assert counts("digits", SourceOptions()) == SourceCounts(1797, 0, 64, None, "float32")
