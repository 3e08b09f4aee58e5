"""Several hosts on one machine: network namespaces, each with a cable to one switch."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SECONDS = 20
CARD = "eth0"  # the network card inside a host


class NoHostsError(Exception):
    """This machine or user cannot make namespaces."""


@dataclass(frozen=True)
class Host:
    """A namespace; `plug` is its cable's end at the switch, itself a namespace so that nothing outlives the two."""

    name: str
    address: str
    switch: str
    plug: str

    def inside(self, command: list[str]) -> list[str]:
        """A command as this host runs it; gloo must be told which card leads to the others."""
        return ["ip", "netns", "exec", self.name, "env", f"GLOO_SOCKET_IFNAME={CARD}", *command]

    def pull_plug(self) -> None:
        """Cut the cable: what was sent is lost, and nobody is told."""
        _ip("-n", self.switch, "link", "set", self.plug, "down")

    def put_plug(self) -> None:
        _ip("-n", self.switch, "link", "set", self.plug, "up")


@contextmanager
def connected_hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts that reach each other and nothing else."""
    if shutil.which("ip") is None:
        raise NoHostsError("the command ip is missing: install iproute2")
    switch = f"nfdist-{os.getpid()}-switch"
    hosts = [Host(f"nfdist-{os.getpid()}-{i}", f"10.77.0.{i + 1}", switch, f"plug{i}") for i in range(count)]
    made: list[str] = []
    try:
        for name in (switch, *(host.name for host in hosts)):
            _ip("netns", "add", name)
            made.append(name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for host in hosts:
            _connect(host)
        yield hosts
    finally:
        for name in made:
            _ip("netns", "delete", name)


def _connect(host: Host) -> None:
    _ip("-n", host.switch, "link", "add", host.plug, "type", "veth", "peer", "name", CARD, "netns", host.name)
    _ip("-n", host.switch, "link", "set", host.plug, "master", "bridge", "up")
    _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", CARD)
    _ip("-n", host.name, "link", "set", CARD, "up")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise NoHostsError(f"ip {' '.join(words)}: {done.stderr.strip()}")
