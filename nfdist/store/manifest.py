"""Manifest: what a partition holds, how it was made and how to recognize its files; stored as manifest.json."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from nfdist import layout
from nfdist.errors import PartitionError
from nfdist.files import dump_checked, load_checked, write_flushed
from nfdist.store.gate import CURE, Gate, StoredFile, WholeFile, check_size
from nfdist.store.json_fields import checked_fields
from nfdist.store.schema import Schema, parsed_schema

FORMAT_VERSION, OLDER_VERSIONS = 3, (2,)  # and 1, whose manifests had no checksum of their own; both had no schema
MANIFEST_NAME = layout.MANIFEST_NAME
IDS_FILE = "ids.arrow"
WEIGHTS = "weights"  # the file and the column of what every in-edge weighs, in partitions of weighted graphs
MOST_CLASSES_AT_LEAST = 1000  # of a graph with fewer nodes than that
CHOICES = {
    "task": ("single", "binary", "multi"),
    "feature_kind": ("dense", "sparse"),
    "feature_dtype": ("float32", "float16"),
    "id_type": ("int64", "string"),
    "index_type": ("int32", "int64"),
}


def part_directory(part: int) -> str:
    return f"{layout.PART_PREFIX}{part:05d}"


def part_file(part: int, file: str) -> str:
    """The name of a part's file inside the partition, such as part-00003/sources.arrow."""
    return f"{part_directory(part)}/{file}.arrow"


@dataclass(frozen=True)
class Part:
    """A part owns the nodes start .. stop - 1 and their in-edges; cut edges come from the halo, other parts' nodes."""

    start: int
    stop: int
    edges: int
    cut_edges: int
    halo_nodes: int
    train_nodes: int

    @property
    def num_nodes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Manifest:
    """`label_shape` is [] for one label a node and [questions] for multi-label; `files` are named from the directory.

    `index_type` is the type of sources and in-edge offsets, `id_type` int64 or string, `feature_kind` dense or sparse.
    """

    format_version: int
    name: str
    task: str
    num_classes: int
    num_nodes: int
    num_edges: int
    num_features: int
    feature_kind: str
    feature_dtype: str
    id_type: str
    index_type: str
    label_shape: tuple[int, ...]
    directed: bool
    split_counts: dict[str, int]
    edge_cut: int
    parts: tuple[Part, ...]
    recipe: dict[str, Any]
    schema: Schema
    files: dict[str, StoredFile | WholeFile]

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return part_file(0, WEIGHTS) in self.files

    @staticmethod
    def read(directory: Path | str, parts: Iterable[int] | None = None) -> "Manifest":
        """The manifest of a partition whose files exist with their recorded sizes; their content is not read.

        With `parts`, the files of other parts need not be here.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise PartitionError(f"{directory} is not a directory: give one that `nfdist partition` wrote")
        path = directory / MANIFEST_NAME
        try:
            written = path.read_bytes()
        except FileNotFoundError:
            raise PartitionError(f"{directory} holds no {MANIFEST_NAME}: it is not a partition") from None
        except OSError as error:
            raise PartitionError(f"{path} cannot be read: {error.strerror}") from None
        manifest = Manifest.parse(written, str(path))
        wanted = set(range(len(manifest.parts)) if parts is None else parts)
        for number in sorted(wanted - set(range(len(manifest.parts)))):
            raise PartitionError(f"{directory} has no part {number}: its parts are 0 to {len(manifest.parts) - 1}")
        elsewhere = {part_directory(number) for number in range(len(manifest.parts)) if number not in wanted}
        for name, stored in manifest.files.items():
            if PurePosixPath(name).parts[0] not in elsewhere:
                _check_size(directory / name, stored.size_bytes)
        return manifest

    @staticmethod
    def parse(written: bytes, named: str) -> "Manifest":
        """The manifest of a file's content; messages call the file `named`."""
        try:
            return _parsed(written)
        except ValueError as error:
            raise PartitionError(f"{named} {error}") from None

    def write(self, directory: Path) -> None:
        """Write manifest.json and wait until the disk has it."""
        content = asdict(self)
        write_flushed(directory / MANIFEST_NAME, dump_checked(content.pop("format_version"), content))

    def verify(self, directory: Path | str, progress: Callable[[int], None] | None = None) -> None:
        """Compare every checksum, calling `progress` with the bytes of each block read; the first bad file is named."""
        for name, stored in self.files.items():
            Gate(Path(directory) / name, stored).check_all(progress)


def _check_size(path: Path, size_bytes: int) -> None:
    try:
        check_size(path, size_bytes)
    except OSError as error:
        raise PartitionError(f"{path} cannot be read: {error.strerror}; {CURE}") from None
    except ValueError as error:
        raise PartitionError(f"{path} {error}: {CURE}") from None


def _parsed(written: bytes) -> Manifest:
    """The manifest of a file's content; ValueError says what is wrong with it, after the file's name."""
    try:
        content = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON ({error}): {CURE}") from None
    if not isinstance(content, dict) or "format_version" not in content:
        raise ValueError("has no format_version: it is not a partition's manifest")
    version = content["format_version"]
    if repr(version) != "1":
        content = {"format_version": version, **load_checked(written, FORMAT_VERSION, CURE, *OLDER_VERSIONS)}
    kind = WholeFile if version == 1 else StoredFile
    try:
        older = version in (1, *OLDER_VERSIONS)
        values = checked_fields({**content, "schema": {}} if older else content, Manifest, "the manifest")
        values["schema"] = _schema_before(values) if older else parsed_schema(values["schema"])
        values["files"] = {
            name: kind(**checked_fields(entry, kind, f"file {name!r}")) for name, entry in values["files"].items()
        }
        values["parts"] = tuple(
            Part(**checked_fields(entry, Part, f"part {number}")) for number, entry in enumerate(values["parts"])
        )
        values["label_shape"] = tuple(values["label_shape"])
        manifest = Manifest(**values)
        _check_choices(manifest)
        _check_sums(manifest)
        _check_files(manifest)
    except ValueError as error:
        raise ValueError(f"cannot be right: {error}; {CURE}") from None
    return manifest


def _schema_before(values: dict[str, Any]) -> Schema:
    """What is known of a partition that was written without a schema: features have no names there, nor classes."""
    options = values["recipe"].get("options")
    row = isinstance(options, dict) and options.get("normalize_features") == "row"
    return Schema.of_matrix(values["num_features"], values["feature_dtype"], normalize="row" if row else "none")


def _check_choices(manifest: Manifest) -> None:
    for name, choices in CHOICES.items():
        if getattr(manifest, name) not in choices:
            raise ValueError(f"{name} is {getattr(manifest, name)!r}, expected {' or '.join(choices)}")
    for name, counts in (("label_shape", manifest.label_shape), ("split_counts", manifest.split_counts.values())):
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"{name} holds {list(counts)}, expected counts")


def _check_sums(manifest: Manifest) -> None:
    ends = [0, *(part.stop for part in manifest.parts)]
    if [part.start for part in manifest.parts] != ends[:-1] or ends != sorted(ends) or ends[-1] != manifest.num_nodes:
        raise ValueError(f"the parts do not cover the {manifest.num_nodes} nodes once, in order")
    most = max(manifest.num_nodes, MOST_CLASSES_AT_LEAST)
    if manifest.label_shape not in ((), (manifest.num_classes,)) or not 0 <= manifest.num_classes <= most:
        raise ValueError(f"num_classes is {manifest.num_classes}, and labels are {list(manifest.label_shape)} a node")
    if manifest.schema.num_features != manifest.num_features:
        raise ValueError(f"the schema has {manifest.schema.num_features} features of {manifest.num_features}")
    if len(manifest.schema.class_names) not in (0, manifest.num_classes):
        raise ValueError(f"{len(manifest.schema.class_names)} of {manifest.num_classes} classes have names")
    for number, part in enumerate(manifest.parts):
        if min(vars(part).values()) < 0 or part.cut_edges > part.edges or part.train_nodes > part.num_nodes:
            raise ValueError(f"part {number} has counts that do not fit: {vars(part)}")
    for total, name, counts in (
        (manifest.num_edges, "num_edges", [part.edges for part in manifest.parts]),
        (manifest.edge_cut, "edge_cut", [part.cut_edges for part in manifest.parts]),
        (manifest.num_nodes, "num_nodes", list(manifest.split_counts.values())),
    ):
        if sum(counts) != total:
            raise ValueError(f"{name} is {total}, but its parts sum to {sum(counts)}")


def _check_files(manifest: Manifest) -> None:
    """Every file of every part and no other is there, large enough for the rows that the manifest tells of."""
    index_bytes = np.dtype(manifest.index_type).itemsize
    least = {IDS_FILE: manifest.num_nodes * (8 + index_bytes)}
    for number, part in enumerate(manifest.parts):
        rows = part.num_nodes
        row_bytes = 9 + (manifest.label_shape[0] if manifest.label_shape else 8)  # id or its offset, split, label
        sizes = {"indptr": (rows + 1) * index_bytes, "sources": part.edges * index_bytes}
        if manifest.weighted:
            sizes[WEIGHTS] = part.edges * 4
        if manifest.feature_kind == "dense":
            row_bytes += manifest.num_features * np.dtype(manifest.feature_dtype).itemsize
        else:
            sizes |= {"features-indptr": (rows + 1) * 4, "features-indices": 0, "features-values": 0}
        sizes["nodes"] = rows * row_bytes
        least |= {part_file(number, file): size for file, size in sizes.items()}
    for name in sorted(least.keys() ^ manifest.files.keys()):
        raise ValueError(f"file {name!r} is missing" if name in least else f"file {name!r} belongs to no part")
    for name, stored in manifest.files.items():
        if stored.size_bytes <= least[name]:
            raise ValueError(f"file {name} has {stored.size_bytes:,} bytes, its rows need more than {least[name]:,}")
        if isinstance(stored, StoredFile):
            _ = stored.digests  # which there must be for every block
