"""What this process holds in memory, as the system counts it, what the host has, and sizes as people write them."""

import ctypes
import errno
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nfdist.errors import ConfigError

_UNITS = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SECONDS_BETWEEN_SAMPLES = 0.01
# Of glibc's malloc.h: M_MMAP_THRESHOLD, the smallest block that is given back alone; M_TRIM_THRESHOLD, how much may be
# free at the end of the heap before it is given back.
_KEEPING = ((-3, 32 << 20), (-1, 1 << 30))
# What torch, numpy, METIS, the dynamic linker and Python say when memory is short.
_MEMORY_WORDS = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "not enough memory",
    "unable to allocate",
    "bad_alloc",
    "can't start new thread",
    "failed to map segment",
    "resource temporarily unavailable",
)


_counted: set[int] = set()  # processes that work for this one
_largest_of_counted = 0


def private_bytes() -> int:
    """What could not be given back now: anonymous and shared memory, but no pages of mapped files.

    Processes that are `counted` are in it.
    """
    own = _status_bytes("RssAnon") + _status_bytes("RssShmem")
    return own + sum(_status_bytes("RssAnon", one) + _status_bytes("RssShmem", one) for one in tuple(_counted))


def peak_resident_bytes() -> int:
    """The largest resident set of any one process so far, mapped pages included.

    (getrusage would count the parent's before the start.)
    """
    return max(_status_bytes("VmHWM"), _largest_of_counted)


@contextmanager
def counted(process_id: int) -> Iterator[None]:
    """For the length of the block what a process holds that works for this one counts as this one's."""
    _counted.add(process_id)
    try:
        yield
    finally:
        _counted.discard(process_id)


def count_resident(peak_bytes: int) -> None:
    """Count the largest resident set of a process that worked for this one, as it told in the end."""
    global _largest_of_counted
    _largest_of_counted = max(_largest_of_counted, peak_bytes)


def host_bytes() -> int:
    """The memory of this host."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_bytes(host: Path = Path("/")) -> int | None:
    """What processes could still take here: of memory and swap, and of what limits bind them; None if nobody says."""
    lines = (line.split() for line in read_text(host / "proc/meminfo").splitlines())
    kibibytes = {words[0]: int(words[1]) for words in lines if len(words) > 1}
    left = []
    if "MemAvailable:" in kibibytes:
        left.append(1024 * (kibibytes["MemAvailable:"] + kibibytes.get("SwapFree:", 0)))
    for folder in cgroup_folders(host, "memory"):
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with suppress(ValueError):  # "max", or no such file
                free = int(read_text(folder / limit)) - int(read_text(folder / used))
                found = re.search(rf"^{cached} (\d+)$", read_text(folder / "memory.stat"), re.MULTILINE)
                left.append(free + (int(found[1]) if found else 0))
    return max(0, min(left)) if left else None


def keep_freed_memory() -> bool:
    """Have glibc keep what is freed of blocks of up to 32 MiB for the next ones; False where it is another C library.

    The pages of a fresh block are cleared at first touch, which may cost more than the work on it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(*option) for option in _KEEPING)


def cgroup_folders(host: Path, controller: str) -> Iterator[Path]:
    """The folders whose limits bind this process: its cgroup and all above it, in cgroup versions 2 and 1."""
    for line in read_text(host / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = host / "sys/fs/cgroup" / (controller if controllers else "")
        group = base / path.strip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(base))


def read_text(path: Path) -> str:
    """What a file of the system says, or nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def parse_bytes(name: str, text: str) -> int:
    """The bytes of a size such as 4GiB, 512MiB or 1000000; messages call the setting `name`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]ib|)", text.strip().lower())
    size = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise ConfigError(f"{name} must be a size such as 4GiB, 512MiB or a number of bytes, got {text!r}")
    return size


def format_bytes(size: int) -> str:
    """A size that `parse_bytes` reads as no less than it is."""
    return f"{-(-size // 2**20)}MiB" if size >= 2**20 else f"{-(-size // 2**10)}KiB" if size >= 2**10 else f"{size}"


def return_freed() -> None:
    """Give the system what was freed in small blocks: glibc keeps it for more of these, in each thread's own store."""
    with suppress(AttributeError):  # another C library has no such store
        ctypes.CDLL(None).malloc_trim(0)


def is_shortage(error: BaseException) -> bool:
    """Whether an error of any library says that memory is short."""
    if isinstance(error, SystemError) and error.__context__ is not None:  # the interpreter itself was short of it
        return is_shortage(error.__context__)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    text = (str(error).lower().splitlines() or [""])[0]  # a library's own error, of whatever class
    return any(word in text for word in _MEMORY_WORDS)


class MemoryWatch:
    """Samples `private_bytes` from a thread of its own for as long as its block runs."""

    def __init__(self) -> None:
        self.peak_private_bytes = private_bytes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nfdist memory watch", daemon=True)

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(_SECONDS_BETWEEN_SAMPLES)
            self.peak_private_bytes = max(self.peak_private_bytes, private_bytes())


def _status_bytes(field: str, process_id: int | None = None) -> int:
    """A number of this process or, 0 where it has ended, of another one."""
    try:
        text = Path(f"/proc/{process_id or 'self'}/status").read_text()
    except OSError:
        return 0
    match = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    assert match or process_id is not None
    return int(match[1]) * 1024 if match else 0
