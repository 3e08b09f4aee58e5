"""What this process holds in memory, as the system counts it, and what the host has."""

import os
import re
from pathlib import Path


def private_bytes() -> int:
    """What could not be given back now: anonymous and shared memory, but no pages of mapped files."""
    return _status_bytes("RssAnon") + _status_bytes("RssShmem")


def peak_resident_bytes() -> int:
    """The largest resident set so far, mapped pages included (getrusage would count the parent's before the start)."""
    return _status_bytes("VmHWM")


def host_bytes() -> int:
    """The memory of this host."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _status_bytes(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match
    return int(match[1]) * 1024
