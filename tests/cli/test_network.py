"""Which card gloo takes, and what is wrong with it."""

import socket

import pytest

from nfdist.cli.network import card_addresses, check_network
from tests.cli.findings import only

CARDS = {"lo": "127.0.0.1", "eth0": "10.1.2.3"}


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "10.1.2.3")


def test_the_loopback_has_its_address() -> None:
    assert card_addresses()["lo"].startswith("127.")


def test_the_card_of_the_hosts_name_is_taken() -> None:
    check = check_network(CARDS)
    assert check.findings == []
    assert check.facts["gloo takes"].startswith("eth0, by the name ")


@pytest.mark.parametrize(("address", "said"), [("127.0.1.1", "is 127.0.1.1"), ("10.9.9.9", "which no card here has")])
def test_a_name_that_leads_nowhere_is_told(address: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: address)
    finding = only(check_network(CARDS), "slow")
    assert said in finding.problem
    assert "export GLOO_SOCKET_IFNAME=eth0" in finding.remedy


def test_a_name_without_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise socket.gaierror

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    assert "has no address" in only(check_network(CARDS), "slow").problem


def test_the_card_that_is_told_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    check = check_network(CARDS)
    assert check.findings == []
    assert check.facts["gloo takes"] == "eth0"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    finding = only(check_network(CARDS), "broken")
    assert "eth7 without an address here (there are lo, eth0)" in finding.problem
