"""Named datasets that need no graph file: digits, and 20news from its text."""

from pathlib import Path
from typing import Any

import numpy as np

from nfdist.errors import PartitionError
from nfdist.partition.sources.locate import NEWS_FOLDERS
from nfdist.partition.sources.raw import RawSource
from nfdist.reading import reading

NEWS_CATEGORIES = (
    "alt.atheism",
    "comp.sys.ibm.pc.hardware",
    "misc.forsale",
    "rec.autos",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "talk.politics.guns",
)


def read_digits() -> RawSource:
    """The 1,797 images of handwritten digits that scikit-learn brings, without edges."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return _without_edges("digits", pixels, labels)


def read_news(folder: Path | None) -> RawSource:
    """Ten categories of 20 Newsgroups as TF-IDF features, from text in the data folder."""
    texts, labels = _read_texts(folder)
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    counts = CountVectorizer(stop_words="english", min_df=0.05).fit_transform(texts)
    return _without_edges("20news", TfidfTransformer(smooth_idf=False).fit_transform(counts), np.asarray(labels))


def _without_edges(name: str, features: Any, labels: Any) -> RawSource:
    return RawSource(name, np.empty(0, np.int64), np.empty(0, np.int64), features, labels)


def _read_texts(folder: Path | None) -> tuple[list[str], list[int]]:
    if folder is None or not all((folder / part).is_dir() for part in NEWS_FOLDERS):
        raise PartitionError(
            f"20news is not here and is not downloaded: neither 20news.npz nor {' and '.join(NEWS_FOLDERS)} are in "
            f"{folder or '$NFDIST_DATA, which is not set'}: put either there"
        )
    texts: list[str] = []
    labels: list[int] = []
    for part in NEWS_FOLDERS:
        for label, category in enumerate(NEWS_CATEGORIES):
            with reading(folder / part / category):
                files = sorted(file for file in (folder / part / category).iterdir() if file.is_file())
                texts += [file.read_text(encoding="latin1") for file in files]
            labels += [label] * len(files)
    return texts, labels
