"""Files that are elsewhere: what a URI such as s3://bucket/folder names, through pyarrow's filesystems.

Credentials, regions and proxies are what these filesystems find in the environment (AWS_ACCESS_KEY_ID, ...), and their
options stand in the URI, as in s3://bucket/folder?region=eu-north-1. A file:// URI is the path it names.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from nfdist import log
from nfdist.errors import ConfigError, NfdistError
from nfdist.files import BLOCK_BYTES

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_AT_ONCE = 8  # files; one stream alone is far slower than most networks
_REASON_CHARACTERS = 300
_PROBE = ".nfdist-probe"


def is_uri(named: object) -> bool:
    """Whether a text names a file elsewhere; a file:// URI counts, until `without_file_scheme`."""
    return isinstance(named, str) and _SCHEME.match(named) is not None


def without_file_scheme(named: Path | str) -> Path | str:
    """The path of a file:// URI as text; all else as it is."""
    if not (isinstance(named, str) and named.lower().startswith("file://")):
        return named
    parts = urlsplit(named)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise ConfigError(f"{named} names no file of this host: write file:///folder/file")
    return unquote(parts.path)


def refuse_uri(name: str, value: Path | str, move: str) -> None:
    """Refuse a URI where only a path can be; `move` is what to do instead."""
    if is_uri(value):
        raise ConfigError(f"{name} {value} is a URI: {move}")


def last_name(uri: str) -> str:
    """The last name in a URI's path, without its options: what a copy of it is called."""
    return PurePosixPath(uri.partition("?")[0].partition("://")[2]).name or "root"


@dataclass(frozen=True)
class Remote:
    """A file or folder elsewhere. Names of files are relative to it, with slashes."""

    uri: str
    filesystem: Any
    path: str
    refusal: type[NfdistError]

    @staticmethod
    def open(uri: str, refusal: type[NfdistError]) -> "Remote":
        """What a URI names; nothing is looked up yet. Every failure from now on is of the class `refusal`."""
        if ":" in urlsplit(uri).netloc.rpartition("@")[0]:
            scheme = uri.partition("://")[0]
            raise refusal(
                f"the {scheme}:// URI holds a password, which would be written into files: put it into "
                "the environment, as AWS_SECRET_ACCESS_KEY for s3://"
            )
        with _one_line(uri, "opened", refusal):
            filesystem, path = open_filesystem(uri)
        if not path.strip("/"):
            raise refusal(f"{uri} names no file or folder: write the URI of one, as in s3://bucket/folder")
        return Remote(uri, filesystem, path.rstrip("/"), refusal)

    def files(self) -> dict[str, int]:
        """The size of every file below it, by name; none where there is nothing. A file has itself, by no name."""
        from pyarrow import fs

        with _one_line(self.uri, "listed", self.refusal):
            own = self.filesystem.get_file_info(self.path)
            if own.type == fs.FileType.File:
                return {"": own.size}
            found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True, recursive=True))
        sizes = {info.path.removeprefix(self.path).lstrip("/"): info.size for info in found if info.is_file}
        sizes.pop(_PROBE, None)
        for name in sizes:
            if ".." in PurePosixPath(name).parts or "\0" in name:  # would leave the folder it is fetched into
                raise self.refusal(f"{self.uri} holds a file called {name!r}: rename it")
        return sizes

    def read(self, name: str) -> bytes | None:
        """The content of a small file, None where there is none."""
        with _one_line(self._uri(name), "read", self.refusal):
            try:
                with self.filesystem.open_input_stream(self._path(name), compression=None) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def fetch(self, name: str, size_bytes: int, to: Path, progress: Callable[[int], None] | None = None) -> None:
        """Copy a file here, all of it or an error."""
        with _one_line(self._uri(name), "read", self.refusal):
            stream = self.filesystem.open_input_stream(self._path(name), compression=None)
        with stream, to.open("wb") as file:
            while True:
                with _one_line(self._uri(name), "read", self.refusal):
                    block = stream.read(BLOCK_BYTES)
                if not block:
                    break
                file.write(block)
                if progress:
                    progress(len(block))
            if file.tell() != size_bytes:
                raise self.refusal(
                    f"{self._uri(name)} has {file.tell():,} bytes instead of {size_bytes:,}: it is being written or "
                    "was altered, try again"
                )

    def fetch_all(self, sizes: dict[str, int], to: Path, progress: Callable[[int], None] | None = None) -> None:
        """Copy files into a folder, several at a time."""
        for folder in {(to / name).parent for name in sizes}:
            folder.mkdir(parents=True, exist_ok=True)
        _several(lambda name: self.fetch(name, sizes[name], to / name, progress), sizes)

    def send(self, file: Path, name: str) -> None:
        """Copy a file there, over one of the same name."""
        shown = self._uri(name)
        with file.open("rb") as opened, _one_line(shown, "written", self.refusal), self._writing(name) as stream:
            while block := opened.read(BLOCK_BYTES):
                stream.write(block)

    def send_all(self, folder: Path, names: Iterable[str]) -> None:
        """Copy files of a folder there, several at a time."""
        _several(lambda name: self.send(folder / name, name), names)

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        with _one_line(self._uri(name), "removed", self.refusal):
            try:
                self.filesystem.delete_file(self._path(name))
            except FileNotFoundError:
                return

    def remove_folder(self, name: str) -> None:
        """Remove a folder and all in it, in no order; one that is not there is no error."""
        with _one_line(self._uri(name), "removed", self.refusal):
            try:
                self.filesystem.delete_dir(self._path(name))
            except FileNotFoundError:
                return

    def check_writable(self) -> None:
        """Refuse, before the work, a place where no file can be written."""
        with TemporaryDirectory(prefix="nfdist-") as folder:
            empty = Path(folder) / _PROBE
            empty.touch()
            self.send(empty, _PROBE)
            self.remove(_PROBE)

    def _writing(self, name: str) -> Any:
        path = self._path(name)
        try:
            return self.filesystem.open_output_stream(path, compression=None)
        except FileNotFoundError:  # of a filesystem with real folders; in an object store there are none to make
            self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            return self.filesystem.open_output_stream(path, compression=None)

    def _path(self, name: str) -> str:
        return f"{self.path}/{name}" if name else self.path

    def _uri(self, name: str) -> str:
        base, mark, options = self.uri.partition("?")
        return f"{base.rstrip('/')}/{name}{mark}{options}" if name else self.uri


def open_filesystem(uri: str) -> tuple[Any, str]:
    """The one door to pyarrow's filesystems, which are loaded only when a URI is used."""
    from pyarrow import fs

    filesystem, path = fs.FileSystem.from_uri(uri)
    return filesystem, str(path)


@contextmanager
def fetched(named: str, refusal: type[NfdistError]) -> Iterator[str]:
    """A path of this host for what a user named: a URI's files are in a temporary folder until the block ends.

    A JSON file, which is that of a DGL partition, comes with all files beside it. Messages name the URI.
    """
    local = str(without_file_scheme(named))
    if not is_uri(local):
        yield local
        return
    remote, name = Remote.open(named, refusal), last_name(named)
    sizes = remote.files()
    if not sizes:
        raise refusal(f"{named} does not exist or is empty: check the URI")
    single = "" in sizes
    if single and name.endswith(".json"):
        remote = Remote(named, remote.filesystem, remote.path.rpartition("/")[0], refusal)
        sizes = remote.files()
    with TemporaryDirectory(prefix="nfdist-") as folder:
        inside = Path(folder) / name
        with log.progress(sum(sizes.values()), f"fetch {named}") as progress, _local_disk(folder, sizes, refusal):
            if "" in sizes:
                remote.fetch("", sizes[""], inside, progress.advance)
            else:
                remote.fetch_all(sizes, inside.parent if single else inside, progress.advance)
        try:
            yield str(inside)
        except NfdistError as error:
            error.args = (str(error).replace(str(inside), named),)
            raise


@contextmanager
def _local_disk(folder: str, sizes: dict[str, int], refusal: type[NfdistError]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        needed = f"{sum(sizes.values()) / 2**30:.1f} GiB"
        raise refusal(
            f"{folder} cannot be written ({error.strerror or error}): set TMPDIR to a folder with {needed} free"
        ) from error


def _several(work: Callable[[str], None], names: Iterable[str]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tasks = [pool.submit(work, name) for name in names]
        try:
            for task in tasks:
                task.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _one_line(uri: str, deed: str, refusal: type[NfdistError]) -> Iterator[None]:
    """Whatever pyarrow raises, as one line."""
    try:
        yield
    except (NfdistError, MemoryError):
        raise
    except Exception as error:  # OSError, ArrowInvalid, NotImplementedError: each filesystem has its own
        reason = " ".join(str(error).split())[:_REASON_CHARACTERS] or type(error).__name__
        raise refusal(
            f"{uri} cannot be {deed} ({reason}): check the URI, the credentials in the environment and the network"
        ) from error
