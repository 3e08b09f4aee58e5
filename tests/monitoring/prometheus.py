"""A Prometheus of our own on loopback, and its tool."""

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.training.launching import Job, started

SECONDS = 150
PROGRAMS = ("prometheus", "promtool")


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name) is None]


def promtool(*words: str | Path, stdin: str = "") -> str:
    """What promtool says of something that it finds nothing wrong with."""
    done = subprocess.run(
        ["promtool", *map(str, words)], input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def get(address: str) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is behind no proxy
    with direct.open(f"http://{address}", timeout=SECONDS) as answer:
        return str(answer.read().decode())


@dataclass(frozen=True)
class Prometheus:
    address: str
    job: Job

    def ask(self, path: str, **words: str) -> Any:
        answer = json.loads(get(f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(words)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values that answer an expression now."""
        return [(one["metric"], float(one["value"][1])) for one in self.ask("query", query=expression)["result"]]

    def wait_for(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What answers an expression, once something does."""
        ends = time.monotonic() + SECONDS
        while not (found := self.query(expression)):
            assert self.job.process.poll() is None, self.job.output
            assert time.monotonic() < ends, f"no answer within {SECONDS} s: {expression}"
            time.sleep(0.2)
        return found


def free_ports(count: int) -> list[int]:
    """Ports one after another that nobody listens at."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            start = int(first.getsockname()[1])
        try:
            for port in range(start, start + count):
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        return list(range(start, start + count))


@contextmanager
def running_prometheus(config: Path) -> Iterator[Prometheus]:
    """A Prometheus with its data beside its configuration, until the block ends."""
    (port,) = free_ports(1)
    folder, address = config.parent, f"127.0.0.1:{port}"
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with started([*command, f"--web.listen-address={address}", "--log.level=warn"], folder / "prometheus.log") as job:
        prometheus = Prometheus(address, job)
        job.wait_until(lambda: is_ready(address), pause=0.1)
        yield prometheus


def is_ready(address: str) -> bool:
    try:
        return "Ready" in get(f"{address}/-/ready")
    except OSError:
        return False
