"""The cache of partitions that are elsewhere: manifest first, then only the parts that are asked for, once a host.

    $NFDIST_CACHE/<of the URI and the manifest>/<name>/     the partition, as far as it was fetched; its hops beside it
    $NFDIST_CACHE/<of the URI and the manifest>.lock        held by every process that uses it; its time is the last use

A partition that changed elsewhere has another manifest, and so another place. What nobody uses makes way for what is
fetched, the least recently used first.
"""

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO

from nfdist import files, log
from nfdist.errors import ConfigError, PartitionError
from nfdist.memory import format_bytes, parse_bytes
from nfdist.remote import Remote, is_uri, last_name, without_file_scheme
from nfdist.store.gate import Gate
from nfdist.store.manifest import MANIFEST_NAME, Manifest, part_directory

DEFAULT_SIZE = "50GiB"
_LOCK = ".lock"
_ALTERED = "it was damaged on its way or elsewhere, fetch it again or upload it again"

_in_use: dict[Path, IO[bytes]] = {}  # entries that this process uses, until it ends: their files may be mapped
_using = threading.Lock()


def local_directory(named: Path | str, parts: Sequence[int] | None = None) -> Path:
    """Where a partition's files are on this host; those of a URI are fetched first, of all parts or of some."""
    named = without_file_scheme(named)
    if not (isinstance(named, str) and is_uri(named)):
        return Path(named)
    remote, written = _remote_manifest(named)
    manifest = Manifest.parse(written, f"{named}: {MANIFEST_NAME}")
    key = files.checksum_of(named.encode() + b"\0" + written)
    entry = cache_folder() / key
    with files.disk_errors_as(PartitionError, entry):
        entry.parent.mkdir(parents=True, exist_ok=True)
        _use(entry)
        directory = entry / last_name(named)
        if _missing(directory, manifest, parts):
            with _locked(entry.parent / f"fetch{_LOCK}"):
                _fetch(remote, written, manifest, directory, parts)
    return directory


def available_parts(named: Path | str) -> list[int]:
    """The parts whose directory is there; of a partition elsewhere, all, or those of $NFDIST_PARTS, as in 0-3,8."""
    named = without_file_scheme(named)
    if not (isinstance(named, str) and is_uri(named)):
        parts = range(len(Manifest.read(named, []).parts))
        return [number for number in parts if (Path(named) / part_directory(number)).is_dir()]
    numbers = range(len(Manifest.parse(_remote_manifest(named)[1], f"{named}: {MANIFEST_NAME}").parts))
    text = os.environ.get("NFDIST_PARTS", "")
    if not text:
        return list(numbers)
    chosen: set[int] = set()
    try:
        for piece in text.split(","):
            first, _, last = piece.partition("-")
            chosen |= set(range(int(first), min(int(last or first), len(numbers)) + 1)) or {-1}
    except ValueError:
        chosen = {-1}
    if not chosen <= set(numbers):
        raise ConfigError(
            f"NFDIST_PARTS={text} must be parts of {named}, such as 0-3,8: they are 0 to {len(numbers) - 1}"
        )
    return sorted(chosen)


@contextmanager
def sent(out: str) -> Iterator[Path]:
    """Where to write a partition that is to be at `out`; it is sent to a URI in the end, its manifest last of all."""
    local = without_file_scheme(out)
    if not is_uri(local):
        yield Path(local)
        return
    remote = Remote.open(out, PartitionError)
    if remote.files():
        raise PartitionError(f"{out} exists: choose another --out or remove it first")
    remote.check_writable()
    with TemporaryDirectory(prefix="nfdist-") as folder:
        directory = Path(folder) / last_name(out)
        yield directory
        names = list(Manifest.read(directory).files)
        log.notice(f"sending {len(names) + 1} files to {out}")
        try:
            remote.send_all(directory, names)
            remote.send(directory / MANIFEST_NAME, MANIFEST_NAME)
        except BaseException:
            with suppress(PartitionError):  # the failure to send is the one to tell
                for name in (MANIFEST_NAME, *names):
                    remote.remove(name)
            raise


def _remote_manifest(uri: str) -> tuple[Remote, bytes]:
    remote = Remote.open(uri, PartitionError)
    written = remote.read(MANIFEST_NAME)
    if written is None:
        raise PartitionError(f"{uri} holds no {MANIFEST_NAME}: it is not a partition")
    return remote, written


def cache_folder() -> Path:
    """Where what can be fetched or measured again is kept: $NFDIST_CACHE, or nfdist in the cache of the user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(os.environ.get("NFDIST_CACHE") or Path(base) / "nfdist").absolute()


def _use(entry: Path) -> None:
    """Keep an entry from making way for as long as this process lives."""
    lock = entry.with_suffix(_LOCK)
    with _using:
        if entry not in _in_use:
            file = lock.open("ab")
            fcntl.flock(file, fcntl.LOCK_SH)
            _in_use[entry] = file
    os.utime(lock)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _missing(directory: Path, manifest: Manifest, parts: Sequence[int] | None) -> dict[str, int]:
    """The files that are asked for and not here yet, with their sizes; of a part, all or none are."""
    wanted = range(len(manifest.parts)) if parts is None else parts
    folders = {part_directory(number) for number in wanted}
    sizes = {}
    for name, stored in manifest.files.items():
        first, *inside = PurePosixPath(name).parts
        if (not inside or first in folders) and not (directory / first).exists():
            sizes[name] = stored.size_bytes
    return sizes if (directory / MANIFEST_NAME).exists() else {**sizes, MANIFEST_NAME: 0}


def _fetch(remote: Remote, written: bytes, manifest: Manifest, directory: Path, parts: Sequence[int] | None) -> None:
    """Fetch what is missing, each part whole or not at all, and only after its checksums were compared."""
    sizes = _missing(directory, manifest, parts)  # again, since another process may have fetched it meanwhile
    if not sizes:
        return
    _make_room(directory.parent, sum(sizes.values()), remote.uri)
    directory.mkdir(parents=True, exist_ok=True)
    files.remove_stale(directory)
    groups: dict[str, dict[str, int]] = {}
    for name in sizes.keys() & manifest.files.keys():
        groups.setdefault(PurePosixPath(name).parts[0], {})[name] = sizes[name]
    with log.progress(sum(sizes.values()), f"fetch {remote.uri}") as progress:
        for first, group in sorted(groups.items()):
            inside = {name: f"{remote.uri} ({name})" for name in group}
            if set(group) == {first}:  # a file by itself
                with files.replaced(directory / first) as aside:
                    remote.fetch(first, group[first], aside, progress.advance)
                    _check(aside, manifest, first, inside[first])
                continue
            with files.written_aside(directory / first, sum(group.values()), "part", PartitionError) as aside:
                own = Remote(remote.uri, remote.filesystem, f"{remote.path}/{first}", PartitionError)
                own.fetch_all({name.partition("/")[2]: size for name, size in group.items()}, aside, progress.advance)
                for name in group:
                    _check(aside / name.partition("/")[2], manifest, name, inside[name])
    files.replace_bytes(directory / MANIFEST_NAME, written)


def _check(path: Path, manifest: Manifest, name: str, shown: str) -> None:
    try:
        Gate(path, manifest.files[name], _ALTERED).check_all()
    except PartitionError as error:
        raise PartitionError(str(error).replace(str(path), shown)) from None


def _make_room(entry: Path, needed_bytes: int, uri: str) -> None:
    """Remove what was not used for longest until so much more fits; whoever calls has the lock of fetching."""
    limit = parse_bytes("NFDIST_CACHE_SIZE", os.environ.get("NFDIST_CACHE_SIZE") or DEFAULT_SIZE)
    sizes = {folder: _size_bytes(folder) for folder in entry.parent.iterdir() if folder.is_dir()}
    own = sizes.pop(entry, 0)
    if own + needed_bytes > limit:
        raise PartitionError(
            f"{uri} takes {format_bytes(own + needed_bytes)} and the cache {entry.parent} holds {format_bytes(limit)}: "
            "set NFDIST_CACHE_SIZE to more, or NFDIST_PARTS to some of its parts"
        )
    for folder in sorted(sizes, key=_last_use):
        if own + needed_bytes + sum(sizes.values()) <= limit:
            return
        if evict(folder):
            sizes.pop(folder)
    used = sum(sizes.values())
    if own + needed_bytes + used > limit:
        raise PartitionError(
            f"{uri} takes {format_bytes(own + needed_bytes)}, and other processes use {format_bytes(used)} "
            f"of the {format_bytes(limit)} in the cache {entry.parent}: set NFDIST_CACHE_SIZE to more, or wait for them"
        )


def evict(entry: Path) -> bool:
    """Remove an entry, unless a process uses it."""
    with entry.with_suffix(_LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        files.remove(entry)
    return True


def is_used(entry: Path) -> bool:
    """Whether a process uses an entry."""
    try:
        with entry.with_suffix(_LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _last_use(entry: Path) -> float:
    with suppress(OSError):
        return entry.with_suffix(_LOCK).stat().st_mtime
    return 0.0


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
