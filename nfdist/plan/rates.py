"""How fast a host is: measured once by `nfdist doctor --bench`, kept in the user's cache, read by `nfdist plan`."""

import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from nfdist import __version__, files
from nfdist.store.cache import cache_folder

BENCH = "nfdist doctor --bench"


@dataclass(frozen=True)
class HostRates:
    """Numbers a second of one worker with its threads; `link_` ones are None where no other host was met.

    `start_seconds` are those of the processor until a command has loaded its libraries.
    """

    product_flops: float  # of dense products of float32
    passed_bytes: float  # read and written by simple operations on tensors larger than caches
    gathered_bytes: float  # rows summed from random places
    disk_read_bytes: float
    disk_written_bytes: float
    link_bytes: float | None = None
    link_latency_seconds: float | None = None
    start_seconds: float = 2.0
    threads: int = 1

    def of(self, threads: int) -> "HostRates":
        """Those of so many threads: what one of these does, as often."""
        factor = threads / self.threads
        work = ("product_flops", "passed_bytes", "gathered_bytes")
        return replace(self, threads=threads, **{name: factor * getattr(self, name) for name in work})


@dataclass(frozen=True)
class KnownRates:
    """Rates, and whether they were measured here."""

    rates: HostRates
    measured: bool

    @property
    def link_bytes(self) -> float:
        return self.rates.link_bytes or ROUGH.link_bytes or 1.0

    @property
    def link_latency_seconds(self) -> float:
        return self.rates.link_latency_seconds or ROUGH.link_latency_seconds or 0.0


# Of one core of a server of some years ago, a disk in it and a network of 1 GBit: right within an order of magnitude.
ROUGH = HostRates(
    product_flops=6e10,
    passed_bytes=1.5e10,
    gathered_bytes=1e10,
    disk_read_bytes=5e8,
    disk_written_bytes=3e8,
    link_bytes=1e8,
    link_latency_seconds=2e-4,
)


def known_rates() -> KnownRates:
    """The rates of this host, or rough ones where they were never measured with these versions."""
    with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):  # whatever a damaged file gives
        written = json.loads(rates_file().read_text())
        known = {field.name for field in fields(HostRates)}
        rates = HostRates(**{name: value for name, value in written["rates"].items() if name in known})
        if all(value is None or value > 0 for value in asdict(rates).values()):
            return KnownRates(rates, measured=True)
    return KnownRates(ROUGH, measured=False)


def keep_rates(rates: HostRates) -> Path:
    """Write the rates where `known_rates` finds them; the file."""
    path = rates_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace_bytes(path, json.dumps({**_measured_with(), "rates": asdict(rates)}, indent=2).encode())
    return path


def rates_file() -> Path:
    """A file for this host and these versions alone."""
    return cache_folder() / f"rates-{files.checksum_of(json.dumps(_measured_with(), sort_keys=True).encode())}.json"


def _measured_with() -> dict[str, str]:
    import torch  # here, since all else of this file needs none of it

    return {
        "host": platform.node(),
        "processor": platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "nfdist": __version__,
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
    }
