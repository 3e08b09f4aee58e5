"""One writer at a time: who trains in a run directory, or writes one of its outputs, on this host or another.

The owner holds a lock of the system on a small file, which the kernel drops with the process, and counts in that file
every few seconds. On one machine the lock decides. Another machine's locks may not be seen here (NFS), so there the
counter does: one that stands still for long enough belongs to an owner that is gone. No two clocks are compared.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nfdist import files, log
from nfdist.errors import CheckpointError
from nfdist.signals import deferred

LOCK_SUFFIX = ".lock"
BEAT_SECONDS = 2.0
CERTAIN_SECONDS = 30.0  # so long an owner on another machine may be kept from counting, by a network say
ENDING_SECONDS = 60.0  # within which an owner ends whose launcher is gone, or was told to start it again
_LOOK_SECONDS = 0.1
_UNREADABLE_SECONDS = 0.5  # an owner takes less to write its name
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Owner:
    """`launch` and `launcher` (process number and start) are of the torchrun that started it, if one did."""

    host: str
    machine: str
    process: int
    start: str
    launch: str
    launcher: tuple[int, str]
    since: str
    beat: int = 0

    @staticmethod
    def this_process(launch: str) -> "Owner":
        process, parent = os.getpid(), os.getppid()
        start, since = files.process_start(process) or "", time.strftime("%Y-%m-%d %H:%M:%S %z")
        launcher = (parent, files.process_start(parent) or "")
        return Owner(socket.gethostname(), _machine(), process, start, launch, launcher, since)

    @property
    def alive(self) -> bool:
        """Whether its process runs, for an owner on this machine."""
        return files.process_start(self.process) == self.start

    def is_ending(self, launch: str) -> bool:
        """Whether it will end by itself, for an owner on this machine: whoever started it is gone, or asks again."""
        if not self.launch:
            return not self.alive
        return not self.alive or self.launch == launch or files.process_start(self.launcher[0]) != self.launcher[1]

    def same_as(self, other: "Owner") -> bool:
        return replace(self, beat=0) == replace(other, beat=0)


@dataclass(frozen=True)
class Lock:
    """A lock's file as somebody sees who does not want it: `held` is None where only the counter can tell."""

    path: Path
    owner: Owner | None
    held: bool | None

    @staticmethod
    def look(path: Path) -> "Lock | None":
        """The lock of a file, which is neither made nor written; None where there is no file."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            owner = _read(descriptor)
            if owner is not None and owner.machine != _machine():
                return Lock(path, owner, None)
            here = owner is not None and (owner.alive or _starts_again(owner))
            return Lock(path, owner, here or not _is_free(descriptor))
        finally:
            os.close(descriptor)

    def has_counted(self) -> bool:
        """Whether its owner, on another machine, is at work: it has counted since this look, or given the lock back."""
        now = Lock.look(self.path)
        return now is None or now.owner is None or now.owner != self.owner


@contextmanager
def owning_directory(directory: Path, name: str, deed: str, launch: str = "") -> Iterator[None]:
    """`owning` for a directory that is made if it is not there, and removed again if nothing came into it."""
    folders = [folder for folder in (directory, *directory.parents) if not os.path.lexists(folder)]
    with files.disk_errors_as(CheckpointError, directory):
        if os.path.lexists(directory) and not directory.is_dir():
            raise CheckpointError(f"{directory} is a file: choose another run.dir")
        directory.mkdir(parents=True, exist_ok=True)
    try:
        with owning(directory / f"{name}{LOCK_SUFFIX}", deed, launch):
            yield
    finally:
        with suppress(OSError):  # of the first that is not empty
            for folder in folders:
                folder.rmdir()


@contextmanager
def owning(path: Path, deed: str, launch: str = "", lost: Callable[[str], None] | None = None) -> Iterator[None]:
    """Be the one process that does a deed, such as "trained", for the length of a block; `path` is the lock's file.

    CheckpointError if another one is alive. `lost` is called if another one took over, as from a process that was
    suspended: by default this one ends at once.
    """
    ownership = _Ownership(path, deed, launch, lost or _end)
    try:
        with files.disk_errors_as(CheckpointError, path):
            ownership.acquire()
        yield
    finally:
        with deferred():  # or the file would stay behind, as if the process had been killed
            ownership.release()


class _Ownership:
    """The lock that is held, and the thread that counts."""

    def __init__(self, path: Path, deed: str, launch: str, lost: Callable[[str], None]) -> None:
        self._path, self._deed, self._lost = path, deed, lost
        self._owner = Owner.this_process(launch)
        self._descriptor, self._taken = -1, False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count, name="nfdist owner", daemon=True)

    def acquire(self) -> None:
        self._descriptor = self._acquire()
        self._thread.start()

    def release(self) -> None:
        """Give the file back, also where a signal came before all of it was acquired."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(OSError):
            if self._descriptor >= 0:
                if _is_at(self._path, self._descriptor) and self._is_mine():
                    self._path.unlink()
                os.close(self._descriptor)
            else:
                self._remove_half_acquired()

    def _acquire(self) -> int:
        """The descriptor of the locked file, once it is ours."""
        seen: Owner | None = None
        began = unchanged_since = time.monotonic()
        told = False
        while True:
            descriptor, locked = _open_locked(self._path)
            try:
                found = _read(descriptor)
                if self._takes(descriptor, locked, found, time.monotonic() - unchanged_since):
                    taken, descriptor = descriptor, -1
                    return taken
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
            if found is not None and found != seen:
                if seen is not None and found.same_as(seen) and not self._is_here(found):
                    raise self._refusal(found)  # it counts
                seen, unchanged_since = found, time.monotonic()
            if found is not None and self._is_here(found) and not found.is_ending(self._owner.launch):
                raise self._refusal(found)
            if time.monotonic() - began > CERTAIN_SECONDS + ENDING_SECONDS:
                raise self._refusal(found)
            if not told and found is not None:
                log.notice(f"{self._path.parent}: waiting until it is certain that {_name(found)} has ended")
                told = True
            time.sleep(_LOOK_SECONDS)

    def _takes(self, descriptor: int, locked: bool | None, found: Owner | None, unchanged_seconds: float) -> bool:
        """Take the file if nobody has it who could be alive."""
        if locked is False or not _is_at(self._path, descriptor):
            return False
        if found is None:
            free = os.fstat(descriptor).st_size == 0 or unchanged_seconds > _UNREADABLE_SECONDS
        elif self._is_here(found):
            free = locked is True or not found.alive
        else:
            free = unchanged_seconds > CERTAIN_SECONDS
        if free:
            self._taken = True
            try:
                _write(descriptor, self._owner)
            except OSError:  # a full disk, say
                self._path.unlink()
                raise
        return free

    def _is_here(self, owner: Owner) -> bool:
        return owner.machine == self._owner.machine

    def _refusal(self, found: Owner | None) -> CheckpointError:
        if found is None:
            return CheckpointError(f"{self._path} is locked by another process: wait for it, or stop it")
        return CheckpointError(
            f"{self._path.parent} is being {self._deed} by {_name(found)} since {found.since}: "
            f"wait for it, or stop it with kill {found.process}"
        )

    def _count(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            with suppress(OSError):  # a disk that fails for a while; others wait for longer than that
                if not self._path.exists() and self._path.parent.is_dir():
                    self._place_again()
                elif not self._is_mine():
                    return self._lost(
                        f"{self._path.parent} is being {self._deed} by another process now: this one ends"
                    )
                self._owner = replace(self._owner, beat=self._owner.beat + 1)
                _write(self._descriptor, self._owner)
        return None

    def _place_again(self) -> None:
        """The file was removed by hand: make and lock it anew, unless another process was faster."""
        descriptor, locked = _open_locked(self._path)
        if locked is False or _read(descriptor) is not None:
            os.close(descriptor)
            return
        _write(descriptor, self._owner)
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _is_mine(self) -> bool:
        """Whether the file names this process; one that cannot be read is being written."""
        descriptor = os.open(self._path, os.O_RDONLY)  # opened anew, or NFS would answer from its memory
        try:
            found = _read(descriptor)
        finally:
            os.close(descriptor)
        return found is None or found.same_as(self._owner)

    def _remove_half_acquired(self) -> None:
        """Remove the file if it has our name, or none and nobody's lock; that of whoever refused us stays."""
        descriptor, locked = _open_locked(self._path)
        try:
            found, empty = _read(descriptor), os.fstat(descriptor).st_size == 0
            ours = found is not None and self._taken and found.same_as(self._owner)
            if locked is not False and _is_at(self._path, descriptor) and (ours or (empty and locked)):
                self._path.unlink()
        finally:
            os.close(descriptor)


def _starts_again(owner: Owner) -> bool:
    """Whether a torchrun that lost this worker is still there to start another one."""
    return bool(owner.launch) and files.process_start(owner.launcher[0]) == owner.launcher[1]


def _is_free(descriptor: int) -> bool:
    """Whether no process that is seen from here holds a file's lock; where there are no locks, its owner decides."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _open_locked(path: Path) -> tuple[int, bool | None]:
    """The file, and whether its lock is ours; None where the file system has no locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return descriptor, False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return descriptor, None
        os.close(descriptor)
        raise
    return descriptor, True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the file was not removed or replaced since it was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> Owner | None:
    """The owner that a file names; None for an empty file, and for one that is just being written."""
    try:
        values = json.loads(os.pread(descriptor, 1 << 16, 0))
        owner = Owner(**{**values, "launcher": (int(values["launcher"][0]), str(values["launcher"][1]))})
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    texts = (owner.host, owner.machine, owner.start, owner.launch, owner.since)
    numbers = (owner.process, owner.beat)
    return owner if {*map(type, texts)} == {str} and {*map(type, numbers)} == {int} else None


def _write(descriptor: int, owner: Owner) -> None:
    content = json.dumps(asdict(owner)).encode() + b"\n"
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))


def _machine() -> str:
    """What tells a machine, and a container on it, from all others: there process numbers mean the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _name(owner: Owner) -> str:
    return f"process {owner.process} on {owner.host}"


def _end(text: str) -> None:
    """End at once: whatever this process still writes would be mixed with what another one does."""
    files.abandon()
    log.notice(text)
    os._exit(2)
