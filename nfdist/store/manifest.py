"""Manifest: what a partition holds, how it was made and how to recognize its files; stored as manifest.json."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from nfdist.errors import PartitionError
from nfdist.files import checksum, write_flushed

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
IDS_FILE = "ids.arrow"
CHOICES = {
    "feature_kind": ("dense", "sparse"),
    "feature_dtype": ("float32", "float16"),
    "id_type": ("int64", "string"),
    "index_type": ("int32", "int64"),
}

Record = TypeVar("Record")


def part_directory(part: int) -> str:
    return f"part-{part:05d}"


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
class StoredFile:
    size_bytes: int
    checksum: str


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
    files: dict[str, StoredFile]

    @staticmethod
    def read(directory: Path | str, parts: Iterable[int] | None = None) -> "Manifest":
        """The manifest of a partition whose files exist with their recorded sizes; checksums are for `verify`.

        With `parts`, the files of other parts need not be here.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise PartitionError(f"{directory} is not a directory: give one that `nfdist partition` wrote")
        path = directory / MANIFEST_NAME
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PartitionError(f"{directory} holds no {MANIFEST_NAME}: it is not a partition") from None
        except OSError as error:
            raise PartitionError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise PartitionError(f"{path} is not valid JSON ({error}): partition again") from None
        try:
            manifest = _parsed(content)
        except PartitionError as error:
            raise PartitionError(f"{path}: {error}") from None
        wanted = set(range(len(manifest.parts)) if parts is None else parts)
        for number in sorted(wanted - set(range(len(manifest.parts)))):
            raise PartitionError(f"{directory} has no part {number}: its parts are 0 to {len(manifest.parts) - 1}")
        elsewhere = {part_directory(number) for number in range(len(manifest.parts)) if number not in wanted}
        for name, stored in manifest.files.items():
            if PurePosixPath(name).parts[0] not in elsewhere:
                _check_size(directory / name, stored.size_bytes)
        return manifest

    def write(self, directory: Path) -> None:
        """Write manifest.json and wait until the disk has it."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"
        write_flushed(directory / MANIFEST_NAME, text.encode())

    def verify(self, directory: Path | str, progress: Callable[[int], None] | None = None) -> None:
        """Compare every checksum, calling `progress` with the bytes of each block read; the first bad file is named."""
        for name, stored in self.files.items():
            path = Path(directory) / name
            _check_size(path, stored.size_bytes)
            try:
                found = checksum(path, progress)
            except OSError as error:
                raise PartitionError(f"{path} cannot be read: {error.strerror}") from None
            if found != stored.checksum:
                raise PartitionError(
                    f"{path} was altered: its checksum is {found}, the manifest says {stored.checksum}; partition again"
                )


def recorded(path: Path) -> StoredFile:
    """A file as the manifest records it."""
    return StoredFile(path.stat().st_size, checksum(path))


def _check_size(path: Path, size_bytes: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise PartitionError(f"{path} cannot be read: {error.strerror}; partition again") from None
    if found != size_bytes:
        raise PartitionError(f"{path} has {found:,} bytes, the manifest says {size_bytes:,}: partition again")


def _parsed(content: Any) -> Manifest:
    if not isinstance(content, dict) or "format_version" not in content:
        raise PartitionError("it has no format_version: it is not a partition's manifest")
    if type(content["format_version"]) is not int or content["format_version"] != FORMAT_VERSION:
        raise PartitionError(
            f"format version {content['format_version']!r} is unknown, this nfdist reads version {FORMAT_VERSION}: "
            "partition again, or use the nfdist that wrote it"
        )
    values = _checked(content, Manifest, "the manifest")
    for name in values["files"]:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise PartitionError(f"file {name!r} lies outside the partition")
    values["files"] = {
        name: StoredFile(**_checked(entry, StoredFile, f"file {name}")) for name, entry in values["files"].items()
    }
    values["parts"] = tuple(
        Part(**_checked(entry, Part, f"part {number}")) for number, entry in enumerate(values["parts"])
    )
    values["label_shape"] = tuple(values["label_shape"])
    manifest = Manifest(**values)
    _check_choices(manifest)
    _check_sums(manifest)
    return manifest


def _checked(content: Any, record: type[Record], where: str) -> dict[str, Any]:
    """The fields of a JSON object, when they are exactly those of the record and of their types."""
    if not isinstance(content, Mapping):
        raise PartitionError(f"{where} is not an object")
    kinds: dict[str, Any] = {field.name: field.type for field in fields(record)}  # type: ignore[arg-type]
    for name in kinds:
        if name not in content:
            raise PartitionError(f"{where} has no field {name}")
    for name, value in content.items():
        if name not in kinds:
            raise PartitionError(f"{where} has an unknown field {name}")
        kind = _json_kind(kinds[name])
        if type(value) is not kind:
            raise PartitionError(f"{where} has {name} = {value!r}, expected a value of type {kind.__name__}")
    return dict(content)


def _json_kind(kind: Any) -> type:
    """What json.loads gives for a field of this type."""
    origin: type = getattr(kind, "__origin__", kind)
    return list if origin is tuple else origin


def _check_choices(manifest: Manifest) -> None:
    for name, choices in CHOICES.items():
        if getattr(manifest, name) not in choices:
            raise PartitionError(f"{name} is {getattr(manifest, name)!r}, expected {' or '.join(choices)}")
    for name, counts in (("label_shape", manifest.label_shape), ("split_counts", manifest.split_counts.values())):
        if not all(type(count) is int and count >= 0 for count in counts):
            raise PartitionError(f"{name} holds {list(counts)}, expected counts")


def _check_sums(manifest: Manifest) -> None:
    ends = [0, *(part.stop for part in manifest.parts)]
    if [part.start for part in manifest.parts] != ends[:-1] or ends != sorted(ends) or ends[-1] != manifest.num_nodes:
        raise PartitionError(f"the parts do not cover the {manifest.num_nodes} nodes once, in order")
    for total, name, counts in (
        (manifest.num_edges, "num_edges", [part.edges for part in manifest.parts]),
        (manifest.edge_cut, "edge_cut", [part.cut_edges for part in manifest.parts]),
        (manifest.num_nodes, "num_nodes", list(manifest.split_counts.values())),
    ):
        if sum(counts) != total:
            raise PartitionError(f"{name} is {total}, but its parts sum to {sum(counts)}")
