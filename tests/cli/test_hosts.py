"""Hosts side by side: what ranks measure of each other, and what of it is told."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from nfdist.cli.hosts import HostFacts, check_hosts, compare_hosts, host_lines
from nfdist.rendezvous import Place
from nfdist.world import World
from tests.cli.findings import only
from tests.worlds import run_world

HOST = HostFacts("a", 0, 2, 8, 16 << 30, {"torch": "2.13.0"}, None, None, None)
OTHER = replace(HOST, host="b", first_rank=2, clock_skew_seconds=0.01, latency_seconds=1e-4, link_bytes=1e9)


def compared(world: World, ranks_a_host: int) -> list[dict[str, Any]]:
    place = Place(world.rank, world.size, world.rank % ranks_a_host, ranks_a_host)
    return [asdict(host) for host in compare_hosts(world, place, {"torch": "2.13.0"})]


@pytest.mark.parametrize("ranks_a_host", [1, 2])
def test_ranks_measure_clocks_and_links(ranks_a_host: int) -> None:
    """Processes of one machine have one clock: what is measured of its skew is the error of the measurement."""
    first, second = run_world(2, compared, ranks_a_host)
    assert first == second
    assert len(first) == 2 // ranks_a_host
    last = first[-1]
    assert last["latency_seconds"] > 0
    assert last["link_bytes"] > 0
    if ranks_a_host == 1:
        assert abs(last["clock_skew_seconds"]) <= last["latency_seconds"] + 1e-4
        assert check_hosts([HostFacts(**facts) for facts in first]).facts == {"hosts": 2, "ranks": 2}


def test_hosts_that_are_alike_are_fine() -> None:
    assert check_hosts([HOST, OTHER]).findings == []
    lines = list(host_lines([HOST, OTHER]))
    assert "1 b" in lines[2]
    assert "+10.0 ms" in lines[2]
    assert "1000 MB/s" in lines[2]


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"versions": {"torch": "2.12.0"}}, "broken", "host 1 (b, rank 2) has torch 2.12.0, host 0 has 2.13.0"),
        ({"clock_skew_seconds": -7.5}, "slow", "-7.5 s off that of host 0"),
        ({"link_bytes": 2e7}, "slow", "carries 20 MB a second"),
        ({"cores": 2}, "slow", "4.0 times the cores a rank of host 1"),
        ({"memory_bytes": 64 << 30}, "slow", "host 1 has 4.0 times the memory of host 0"),
    ],
)
def test_what_stands_in_a_jobs_way_is_told(change: dict[str, Any], kind: str, said: str) -> None:
    finding = only(check_hosts([HOST, replace(OTHER, **change)]), kind)
    assert said in finding.problem
    assert finding.remedy
