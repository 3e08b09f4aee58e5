"""Files and directories that are whole or absent: write aside, then rename; and checksums, to recognize them."""

import errno
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from nfdist.errors import NfdistError

BLOCK_BYTES = 1 << 22
CHECKSUM_BYTES = 16

_UNFINISHED: set[Path] = set()  # what this process has aside


@contextmanager
def written_aside(
    directory: Path, needed_bytes: int, noun: str, refusal: type[NfdistError], replace: bool = False
) -> Iterator[Path]:
    """A temporary sibling that becomes `directory` when the block ends, and is removed when the block raises.

    What already has the name is refused or, with `replace`, makes way in the end. Messages are of the class `refusal`
    and call what is written `noun`, such as partition.
    """
    directory = directory.absolute()
    if os.path.lexists(directory) and not replace:
        raise refusal(f"{directory} already exists: remove it or choose another directory")
    aside = _aside(directory)
    with disk_errors_as(refusal, directory, f"the {noun} needs about {needed_bytes / 2**20:,.1f} MiB; "):
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(directory.parent, directory.name)
            aside.mkdir()
            yield aside
            for folder in (*(path for path in aside.iterdir() if path.is_dir()), aside):
                flush(folder)
            _put_in_place(aside, directory, replace)
            _UNFINISHED.discard(aside)
        except BaseException as error:
            _delete(aside)
            if isinstance(error, OSError) and _is_taken(directory, error):
                text = f"{directory} appeared while it was being written: remove it or choose another directory"
                raise refusal(text) from error
            raise
        flush(directory.parent)


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """An empty folder beside `path` for what is needed while that is made; it is removed when the block ends.

    What dead processes left is removed, too.
    """
    remove_stale(path.parent, path.name)
    aside = _aside(path)
    try:
        aside.mkdir()
        yield aside
    finally:
        _delete(aside)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary sibling that takes the place of a file when the block ends, and is removed when the block raises."""
    remove_stale(path.parent, path.name)
    aside = _aside(path)
    try:
        yield aside
        flush(aside)
        aside.replace(path)
        _UNFINISHED.discard(aside)
    except BaseException:
        _delete(aside)
        raise
    flush(path.parent)


def replace_file(path: Path, text: str) -> None:
    """Give a file new content that is whole at any time and survives a loss of power; its folder must exist."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """`replace_file` for what is no text."""
    with replaced(path) as aside:
        aside.write_bytes(content)


def remove(path: Path) -> None:
    """Remove a directory that is whole until it is gone, by way of a temporary name."""
    aside = _aside(path)
    try:
        path.rename(aside)
    finally:
        _delete(aside)


def abandon() -> None:
    """Remove all that this process has aside, since it must end now: whoever still writes there fails."""
    for path in list(_UNFINISHED):
        # Under another name first, which its writer can no longer rename to the final one.
        with suppress(OSError):
            path = path.rename(_aside(path))
        _delete(path)


def remove_stale(folder: Path, name: str | None = None) -> None:
    """Remove what dead processes of this host left aside in a folder: versions of `name`, or of anything."""
    for path in stale(folder, name):
        _delete(path)


def stale(folder: Path, name: str | None = None) -> Iterator[Path]:
    """What dead processes of this host left aside in a folder: versions of `name`, or of anything."""
    wanted = re.escape(name) if name else ".+"
    pattern = re.compile(rf"\.{wanted}\.tmp-(\d+)-(.*)-[0-9a-f]{{8}}")
    for path in list(folder.iterdir()):
        match = pattern.fullmatch(path.name)
        if match and match[2] == socket.gethostname() and not _alive(int(match[1])):
            yield path


def existing_ancestor(directory: Path) -> Path:
    """The nearest folder above `directory` that is already there: the disk it will be on."""
    return next(folder for folder in directory.absolute().parents if folder.is_dir())


def write_flushed(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The 16-byte BLAKE2b of a file in hexadecimal, read block by block; `progress` gets the bytes of each block."""
    digest = blake2b(digest_size=CHECKSUM_BYTES)
    block = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
            if progress:
                progress(count)
    return digest.hexdigest()


def checksum_of(content: Any) -> str:
    """The checksum of a file with this content, of bytes or anything that holds some."""
    return blake2b(content, digest_size=CHECKSUM_BYTES).hexdigest()


def dump_checked(version: int, content: Mapping[str, Any]) -> bytes:
    """A JSON object with a format version and its own checksum: no byte can change unnoticed by `load_checked`.

    ValueError if a number is NaN or infinite.
    """
    whole = {"format_version": version, **content}
    own = checksum_of(json.dumps(whole, allow_nan=False).encode())
    return json.dumps({**whole, "checksum": own}, indent=2).encode() + b"\n"


def load_checked(written: bytes, version: int, cure: str, *older: int) -> dict[str, Any]:
    """What `dump_checked` was given; ValueError if it has another version or is not, to the byte, what was written.

    Its text follows the name of the file; `cure` is what to do about an altered one; `older` versions are read, too.
    """
    altered = ValueError(f"was altered since it was written: {cure}")
    try:
        content = json.loads(written)
        found = content.pop("format_version")
        if repr(found) not in map(repr, (version, *older)):  # since True == 1.0 == 1
            text = f"has format version {found!r}, this nfdist reads version {version}: use the nfdist that wrote it"
            altered = ValueError(text)
        elif content.pop("checksum") and dump_checked(found, content) == written:
            return dict(content)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    raise altered


@contextmanager
def disk_errors_as(refusal: type[NfdistError], path: Path, need: str = "") -> Iterator[None]:
    """Say in one line of the class `refusal` why `path` cannot be written; if the disk is full, also the `need`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text = f"the disk that holds {path.parent} is full: {need}free some space or choose another directory"
            raise refusal(text) from error
        raise refusal(f"{path} cannot be written: {error}") from error


def _aside(path: Path) -> Path:
    name = re.sub(r"^\.(.+)\.tmp-.*", r"\1", path.name)  # of what is aside already
    aside = path.with_name(f".{name}.tmp-{os.getpid()}-{socket.gethostname()}-{secrets.token_hex(4)}")
    _UNFINISHED.add(aside)
    return aside


def _put_in_place(aside: Path, directory: Path, replace: bool) -> None:
    """Give what is aside its name; what had it comes back if that fails."""
    retired = _aside(directory)
    _UNFINISHED.discard(retired)
    try:
        if replace and directory.is_dir():
            directory.rename(retired)
        aside.rename(directory)
    finally:
        if retired.exists() and not directory.exists():
            retired.rename(directory)
    _delete(retired)


def _is_taken(directory: Path, error: OSError) -> bool:
    return error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR) and os.path.lexists(directory)


def process_start(process: int) -> str | None:
    """When a process of this host was started, in its kernel's count: its number may be given again, this may not.

    None when it has ended; "unknown" where no kernel tells.
    """
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "unknown" if _alive(process) else None
    return None if state in "ZX" else fields[18]


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _delete(aside: Path) -> None:
    """Delete what can be deleted: the failure that led here is the one to report."""
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(OSError):
        aside.unlink()
    _UNFINISHED.discard(aside)
