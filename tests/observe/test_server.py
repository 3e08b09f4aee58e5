"""Scrapes over loopback: what is served, where, and that nothing is left when it ends."""

import gc
import socket
import struct
import threading
import time
import urllib.request
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from nfdist.errors import ConfigError
from nfdist.observe import server as server_module
from nfdist.observe.server import serve


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("nfdist_nodes_total", "Nodes", registry=registry).inc(42)
    return registry


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def scrape(address: str) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is behind no proxy
    with direct.open(f"http://{address}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return str(answer.read().decode())


def test_a_scrape_reads_the_registry_as_it_is_now(
    registry: CollectorRegistry, capfd: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    with serve(registry, "127.0.0.1", port) as server:
        assert server.address == f"127.0.0.1:{port}"
        assert "nfdist_nodes_total 42.0\n" in scrape(server.address)
        Counter("nfdist_edges_total", "Edges", registry=registry).inc(7)
        assert "nfdist_edges_total 7.0\n" in scrape(server.address)
    assert capfd.readouterr() == ("", "")


def test_nothing_is_left_after_the_block(registry: CollectorRegistry) -> None:
    before, port = threading.active_count(), free_port()
    with serve(registry, "127.0.0.1", port) as server:
        address = server.address
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    with pytest.raises(OSError, match="refused"):
        scrape(address)
    del server
    gc.collect()  # a socket left open would warn here, and warnings are errors
    with serve(registry, "127.0.0.1", port) as server:
        assert server.address == f"127.0.0.1:{port}"


def test_port_zero_serves_nothing(registry: CollectorRegistry) -> None:
    before = threading.active_count()
    with serve(registry, "no such host", 0) as server:
        assert server.address == ""
        assert threading.active_count() == before


def test_a_taken_port_is_told_in_one_line_and_another_one_serves(
    registry: CollectorRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with serve(registry, "127.0.0.1", port) as server:
            assert server.address.startswith("127.0.0.1:")
            assert not server.address.endswith((f":{port}", ":0"))
            assert "nfdist_nodes_total 42.0\n" in scrape(server.address)
            lines = capsys.readouterr().err.splitlines()
            assert lines == [
                f"nfdist: warning: observe.port {port} is taken: metrics are at http://{server.address}/metrics instead"
            ]


@pytest.mark.parametrize("host", ["", "a..b", "no such host", "192.0.2.1"])
def test_an_address_of_no_interface_here_names_the_setting(registry: CollectorRegistry, host: str) -> None:
    with pytest.raises(ConfigError, match=r"^observe\.host .*: use 127\.0\.0\.1") as caught:
        serve(registry, host, free_port())
    assert repr(host) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_port_past_the_last_names_the_setting(registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigError, match=r"^observe\.port 65537 .*: choose"):
        serve(registry, "127.0.0.1", 65537)


def test_an_address_of_ipv6_is_written_as_a_url_wants_it(registry: CollectorRegistry) -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
            port = int(listener.getsockname()[1])
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with serve(registry, "::1", port) as server:
        assert server.address == f"[::1]:{port}"
        assert "nfdist_nodes_total 42.0\n" in scrape(server.address)


def test_clients_that_hang_or_hang_up_disturb_nobody(
    registry: CollectorRegistry, capfd: pytest.CaptureFixture[str]
) -> None:
    with serve(registry, "127.0.0.1", free_port()) as server:
        place = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        with socket.create_connection(place), socket.create_connection(place) as rude:
            rude.sendall(b"GET /met")
            # Lingering for no time resets the connection instead of closing it.
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rude.close()
            assert "nfdist_nodes_total 42.0\n" in scrape(server.address)
            time.sleep(0.1)  # for the thread of the reset connection to see it
    assert capfd.readouterr() == ("", "")


def test_the_last_values_are_seen_by_whoever_scrapes_regularly_and_nobody_else_is_waited_for(
    registry: CollectorRegistry,
) -> None:
    gauge = Gauge("nfdist_loss", "Loss", registry=registry)
    with serve(registry, "127.0.0.1", free_port()) as server:
        assert not server.await_scrape(60)  # nobody has come
        scrape(server.address)
        assert not server.await_scrape(60)  # one look is no habit
        time.sleep(0.2)
        scrape(server.address)
        gauge.set(0.125)
        seen: list[str] = []
        later = threading.Timer(0.2, lambda: seen.append(scrape(server.address)))
        later.start()
        assert server.await_scrape(60)
        later.join()
        assert "nfdist_loss 0.125\n" in seen[0]
        assert not server.await_scrape(0)
        assert not server.await_scrape(60)  # whoever came every 0.2 s is gone after 1.5
    assert not server.await_scrape(60)


def drip(clients: list[socket.socket], until_left: int) -> None:
    """Send a byte now and then to a server that must hang up on all but so many."""
    ends = time.monotonic() + 60
    while len(clients) > until_left:
        assert time.monotonic() < ends
        for client in list(clients):
            try:
                client.sendall(b"G")
            except OSError:
                clients.remove(client)
        time.sleep(0.02)


def test_clients_that_drip_bytes_are_few_and_dropped(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    monkeypatch.setattr(server_module, "MOST_SCRAPES", 3)
    with serve(registry, "127.0.0.1", free_port()) as server, ExitStack() as stack:
        place = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        monkeypatch.setattr(server_module, "SECONDS_OF_A_SCRAPE", 600)
        clients = [stack.enter_context(socket.create_connection(place)) for _ in range(8)]
        drip(list(clients), until_left=3)
        assert len(set(threading.enumerate()) - before) == 1 + 3
        for client in clients:
            client.close()
        monkeypatch.setattr(server_module, "SECONDS_OF_A_SCRAPE", 0.05)
        while len(set(threading.enumerate()) - before) > 1:
            time.sleep(0.01)
        drip([stack.enter_context(socket.create_connection(place))], until_left=0)
        monkeypatch.setattr(server_module, "SECONDS_OF_A_SCRAPE", 10)
        assert "nfdist_nodes_total 42.0\n" in scrape(server.address)
