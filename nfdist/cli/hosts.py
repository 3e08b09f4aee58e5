"""The hosts of a job, side by side: `torchrun ... -m nfdist doctor` compares them and measures what joins them."""

import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import torch

from nfdist.cli.check import Check
from nfdist.collectives import bounced, broadcast, gather_text
from nfdist.memory import available_bytes
from nfdist.rendezvous import Place
from nfdist.world import World

ROUNDS = 20  # of a message there and back; the fastest counts
LINK_BYTES, LINK_ROUNDS = 8 << 20, 4
MOST_SKEW_SECONDS = 1.0
SLOW_LINK_BYTES = 1.1e8  # less than a network of 1 GBit carries
UNEVEN = 1.5  # times as much on one host as on another, and the others wait


@dataclass(frozen=True)
class HostFacts:
    """One host as its first rank sees it, and the way from the first host's first rank to it."""

    host: str
    first_rank: int
    ranks: int
    cores: int
    memory_bytes: int | None
    versions: dict[str, str]
    clock_skew_seconds: float | None = None
    latency_seconds: float | None = None
    link_bytes: float | None = None


def compare_hosts(world: World, place: Place, versions: dict[str, str]) -> list[HostFacts]:
    """All hosts, with what joins them to the first one. Every rank must call this."""
    cores = len(os.sched_getaffinity(0))
    mine = HostFacts(socket.gethostname(), world.rank, place.local_size, cores, available_bytes(), versions)
    told = gather_text(world, json.dumps(asdict(mine) if place.local_rank == 0 else None), "hosts")
    hosts = [HostFacts(**facts) for facts in map(json.loads, told) if facts is not None]
    joined = [hosts[0]]
    for host in hosts[1:]:
        skew, latency = _clock(world, host.first_rank)
        speed = _speed(world, host.first_rank)
        joined.append(replace(host, clock_skew_seconds=skew, latency_seconds=latency, link_bytes=speed))
    if len(hosts) == 1 and world.size > 1:  # between two workers of one host
        _, latency = _clock(world, 1)
        joined = [replace(hosts[0], latency_seconds=latency, link_bytes=_speed(world, 1))]
    return joined


def check_hosts(hosts: list[HostFacts]) -> Check:
    """What of the hosts will stand in a job's way."""
    first, check = hosts[0], Check("hosts", {"hosts": len(hosts), "ranks": sum(host.ranks for host in hosts)})
    for number, host in enumerate(hosts):
        name = f"host {number} ({host.host}, rank {host.first_rank})"
        for what in sorted(first.versions.keys() | host.versions.keys()):
            theirs, ours = host.versions.get(what), first.versions.get(what)
            if theirs != ours:
                check.broken(f"{name} has {what} {theirs}, host 0 has {ours}", "install the same versions on all hosts")
        if host.clock_skew_seconds is not None and abs(host.clock_skew_seconds) > MOST_SKEW_SECONDS:
            check.slow(
                f"the clock of {name} is {host.clock_skew_seconds:+.1f} s off that of host 0: times in logs and files "
                "of its workers mislead",
                "synchronize clocks (chronyd or systemd-timesyncd)",
            )
        if len(hosts) > 1 and host.link_bytes is not None and host.link_bytes < SLOW_LINK_BYTES:
            check.slow(
                f"the way from host 0 to {name} carries {host.link_bytes / 1e6:.0f} MB a second",
                "export GLOO_SOCKET_IFNAME with the fastest card that joins them, or raise train.batch_nodes, which "
                "means fewer exchanges",
            )
    for what, values in (("cores a rank", [host.cores / host.ranks for host in hosts]), ("memory", _memories(hosts))):
        if values and max(values) > UNEVEN * min(values):
            least, most = (values.index(pick(values)) for pick in (min, max))
            problem = f"host {most} has {max(values) / min(values):.1f} times the {what} of host {least}"
            check.slow(
                f"{problem}: ranks wait for the slowest",
                "start fewer workers on the smaller hosts, or more on the larger",
            )
    return check


def host_lines(hosts: list[HostFacts]) -> Iterator[str]:
    """A table of the hosts."""
    yield f"  {'host':<24}{'ranks':>6}{'cores':>6}{'memory':>12}{'clock':>10}{'latency':>10}{'link':>12}"
    for number, host in enumerate(hosts):
        memory = "-" if host.memory_bytes is None else f"{host.memory_bytes / 2**30:.1f} GiB"
        skew = "-" if host.clock_skew_seconds is None else f"{1000 * host.clock_skew_seconds:+.1f} ms"
        latency = "-" if host.latency_seconds is None else f"{1e6 * host.latency_seconds:.0f} us"
        link = "-" if host.link_bytes is None else f"{host.link_bytes / 1e6:.0f} MB/s"
        counts = f"{f'{number} {host.host}':<24}{host.ranks:>6}{host.cores:>6}"
        yield f"  {counts}{memory:>12}{skew:>10}{latency:>10}{link:>12}"
    yield ""


def _clock(world: World, other: int) -> tuple[float, float]:
    """How far the clock of another rank is ahead of rank 0's, and the seconds of a message; by the fastest of some."""
    best, skew = float("inf"), 0.0
    for _ in range(ROUNDS):
        began = time.time()
        answer = bounced(world, 0, other, torch.zeros(1, dtype=torch.float64), time.time)
        ended = time.time()
        if ended - began < best:
            best, skew = ended - began, float(answer[0]) - (began + ended) / 2
    skew, latency = _from_first(world, skew, best / 2)
    return skew, latency


def _speed(world: World, other: int) -> float:
    """Bytes a second from rank 0 to another rank and back."""
    content, best = torch.zeros(LINK_BYTES // 4), float("inf")
    for _ in range(LINK_ROUNDS):
        began = time.perf_counter()
        bounced(world, 0, other, content)
        best = min(best, time.perf_counter() - began)
    (speed,) = _from_first(world, 2 * LINK_BYTES / best)
    return speed


def _from_first(world: World, *numbers: float) -> list[float]:
    """The numbers of rank 0 on all ranks. Every rank must call this."""
    told: list[float] = broadcast(world, torch.tensor(numbers, dtype=torch.float64), 0, "hosts").tolist()
    return told


def _memories(hosts: list[HostFacts]) -> list[float]:
    found = [host.memory_bytes / host.ranks for host in hosts if host.memory_bytes]
    return found if len(found) == len(hosts) else []
