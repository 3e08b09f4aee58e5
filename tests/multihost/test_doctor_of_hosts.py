"""The doctor of two hosts: every rank reports, and the first one tells of both and of the way between them."""

import json
from contextlib import ExitStack
from pathlib import Path

from tests.multihost.hosts import Host
from tests.multihost.starting import members, start_all
from tests.training.launching import torchrun


def test_two_hosts_are_compared(hosts: list[Host], tmp_path: Path) -> None:
    two = hosts[:2]
    commands = [torchrun("doctor", "--json", workers=1, host=host) for host in members(two)]
    with ExitStack() as stack:
        jobs = start_all(stack, two, commands, tmp_path)
        assert [job.wait() for job in jobs] == [0, 0]
        (report,) = [json.loads(line) for job in jobs for line in job.output.splitlines() if line.startswith("{")]
    assert report["hosts"] == {"hosts": 2, "ranks": 2}
    assert report["network"]["gloo takes"] == "eth0"
    first, second = report["each_host"]
    assert first["link_bytes"] is None
    assert second["link_bytes"] > 0
    assert abs(second["clock_skew_seconds"]) <= second["latency_seconds"] + 1e-3  # one machine, one clock
    assert not [finding for finding in report["findings"] if finding["kind"] == "broken"]
