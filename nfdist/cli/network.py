"""Which network card workers will meet through, and what decides that."""

import fcntl
import os
import socket
import struct
from contextlib import suppress

from nfdist.cli.check import Check

GLOO_VARIABLE = "GLOO_SOCKET_IFNAME"
_ASK_ADDRESS = 0x8915  # SIOCGIFADDR of Linux
_REQUEST_BYTES = 256


def check_network(addresses: dict[str, str] | None = None) -> Check:
    """The card that gloo takes: the one it is told, else the one that has the address of this host's name."""
    cards = card_addresses() if addresses is None else addresses
    told, name = os.environ.get(GLOO_VARIABLE), socket.gethostname()
    others = [card for card, address in cards.items() if not address.startswith("127.")]
    example = others[0] if others else "eth0"
    check = Check("network", {"cards": ", ".join(f"{card} {address}" for card, address in cards.items()) or None})
    check.facts[GLOO_VARIABLE] = told
    if told:
        check.facts["gloo takes"] = told
        for card in told.split(","):
            if card not in cards:
                known = ", ".join(cards) or "none"
                check.broken(
                    f"{GLOO_VARIABLE}={told} names a network card {card} without an address here (there are {known})",
                    f"unset it, or export {GLOO_VARIABLE}={example}",
                )
        return check
    found = _own_address(name)
    taken = next((card for card, address in cards.items() if address == found), None)
    check.facts["gloo takes"] = f"{taken or 'lo'}, by the name {name} ({found or 'no address'})"
    if found is None or found.startswith("127.") or taken is None:
        why = "has no address" if found is None else f"is {found}"
        why += "" if found is None or found.startswith("127.") else ", which no card here has"
        check.slow(
            f"the name of this host, {name}, {why}: workers of one host meet, those of several will not over gloo",
            f"fine for one host; for several, export {GLOO_VARIABLE}={example} on each with the card that joins them",
        )
    return check


def card_addresses() -> dict[str, str]:
    """The IPv4 address of every network card that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, card in socket.if_nameindex():
            with suppress(OSError):
                request = struct.pack(f"{_REQUEST_BYTES}s", card[:15].encode())
                answer = fcntl.ioctl(asked.fileno(), _ASK_ADDRESS, request)
                found[card] = socket.inet_ntoa(answer[20:24])
    return found


def _own_address(name: str) -> str | None:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None
