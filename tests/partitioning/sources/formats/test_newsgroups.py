"""20news is made from the texts of its ten categories."""

from pathlib import Path

import numpy as np
import scipy.sparse

from nfdist.partitioning.sources import SourceOptions, load
from nfdist.partitioning.sources.formats.newsgroups import CATEGORIES


def test_20news_from_text(data: Path) -> None:
    words = ("alpha", "beta", "gamma", "delta")
    for part in ("train", "test"):
        for index, category in enumerate(CATEGORIES):
            folder = data / f"20news-bydate-{part}" / category
            folder.mkdir(parents=True)
            for number in range(2):
                (folder / str(number)).write_bytes(f"the {words[index % 4]} {words[number]} caf\xe9".encode("latin1"))
    graph = load("20news", SourceOptions())
    rows = graph.features.toarray() if scipy.sparse.issparse(graph.features) else graph.features
    assert rows.shape == (40, 5)  # four words and the café; "the" is a stop word
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.bincount(graph.labels).tolist() == [4] * 10
