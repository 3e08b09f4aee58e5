"""Where a row's data comes from, its digest, and the partition made of it, once."""

import hashlib
import json
import os
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from experiments import ROOT, Experiment

from nfdist import seeds, settings
from nfdist.config import Config
from nfdist.errors import PartitionError
from nfdist.fields import each_setting
from nfdist.files import checksum
from nfdist.partitioning.sources.formats.source_format import Located
from nfdist.partitioning.sources.locate import locate
from nfdist.settings import read_toml


def recipe_path(row: Experiment) -> Path:
    return ROOT / "partitions" / f"{row.recipe}.toml"


def located_source(row: Experiment) -> Located | None:
    """The source of a row, None where its data is not here."""
    try:
        return locate(read_toml(recipe_path(row))["source"])
    except PartitionError:
        return None


def data_digest(row: Experiment, source: Located) -> str:
    """A name for the data: the recipe and the source's content."""
    recipe = {key: value for key, value in read_toml(recipe_path(row)).items() if key != "out"}
    made = ["image features"] if row.image_features else []
    return digest_of([recipe, row.rows, source.format.name, _content_of(source.path), *made])


def row_digest(row: Experiment, source: Located) -> str:
    """A name for what a row computes: its settings and data.

    A setting that is what it was before it existed is left out: an older result stays that of its row.
    """
    config = settings.load(ROOT / row.config, row.overrides)
    counted = [(name, setting.metadata["before"]) for name, setting in each_setting(Config) if _counts(name)]
    values = ((name, attrgetter(name)(config), before) for name, before in counted)
    meant = {name: value for name, value, before in values if before is None or value != before}
    script = [row.script, *([row.options] if row.options else [])]
    return digest_of([*script, meant, data_digest(row, source)])


def _counts(name: str) -> bool:
    """Whether a setting is one of what is computed, not of where."""
    return name.partition(".")[0] not in ("run", "observe") and name != "data.partition"


def digest_of(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()


def partition_folder(row: Experiment, source: Located, work: Path) -> Path:
    return work / "partitions" / f"{row.recipe}-{data_digest(row, source)}"


def partition_environment(row: Experiment, source: Located, work: Path) -> dict[str, str]:
    """The environment in which the recipe finds its source: of a subset, a data folder that holds only that."""
    if not row.rows:
        return dict(os.environ)
    assert source.path is not None
    folder = work / "sources" / f"{source.path.stem}-{row.rows}"
    write_subset(source.path, folder / source.path.name, row.rows)
    return {**os.environ, "NFDIST_DATA": str(folder)}


def write_subset(source: Path, target: Path, rows: int) -> None:
    """Some rows of an .npz of features and labels without edges, drawn by a fixed seed."""
    if target.exists():
        return
    with np.load(source, allow_pickle=False) as arrays:
        features, labels = arrays["feat"], arrays["label"]
    chosen = np.sort(seeds.numpy_generator(0, "subset").permutation(len(labels))[:rows])
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_suffix(".part.npz")
    np.savez(aside, feat=features[chosen].astype(np.float32) / features.max(), label=labels[chosen])
    aside.rename(target)


def _content_of(path: Path | None) -> Any:
    """The checksum of a file, or names and sizes of a folder's files."""
    if path is None:
        return None
    if path.is_file():
        return checksum(path)
    return sorted([str(file.relative_to(path)), file.stat().st_size] for file in path.rglob("*") if file.is_file())
