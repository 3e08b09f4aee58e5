"""20news: ten categories of 20 Newsgroups as TF-IDF features without edges, from text in the data folder."""

from pathlib import Path

import numpy as np

from nfdist.errors import PartitionError
from nfdist.partitioning.sources.formats.source_format import Located, SourceFormat, register
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import NO_EDGES, RawGraph
from nfdist.partitioning.workspace import Workspace
from nfdist.reading import reading

FOLDERS = ("20news-bydate-train", "20news-bydate-test")
CATEGORIES = (
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


def find(name: str, folder: Path | None) -> Located | None:
    """The folder of the first texts, whether it is there or not: reading says what is missing."""
    return Located(name, FORMAT, folder and folder / FOLDERS[0]) if name == "20news" else None


def read(path: Path | None, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    texts, labels = _read_texts(path and path.parent)
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    counts = CountVectorizer(stop_words="english", min_df=0.05).fit_transform(texts)
    rows = TfidfTransformer(smooth_idf=False).fit_transform(counts)
    return RawGraph(name, NO_EDGES, NO_EDGES, rows, np.asarray(labels))


def _read_texts(folder: Path | None) -> tuple[list[str], list[int]]:
    if folder is None or not all((folder / part).is_dir() for part in FOLDERS):
        raise PartitionError(
            f"20news is not here and is not downloaded: neither 20news.npz nor {' and '.join(FOLDERS)} are in "
            f"{folder or '$NFDIST_DATA, which is not set'}: put either there"
        )
    texts: list[str] = []
    labels: list[int] = []
    for part in FOLDERS:
        for label, category in enumerate(CATEGORIES):
            with reading(folder / part / category):
                files = sorted(file for file in (folder / part / category).iterdir() if file.is_file())
                texts += [file.read_text(encoding="latin1") for file in files]
            labels += [label] * len(files)
    return texts, labels


FORMAT = register(SourceFormat("news", 70, read, find=find, datasets=("20news",)))
