"""Hosts for all tests of this folder."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.multihost.hosts import Host, NoHostsError, connected_hosts


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    with ExitStack() as stack:
        try:
            connected = stack.enter_context(connected_hosts(3))
        except NoHostsError as reason:
            if os.environ.get("NFDIST_REQUIRE_MULTIHOST") == "1":
                pytest.fail(f"hosts are required, but {reason}")
            pytest.skip(f"no network namespaces: {reason}")
        yield connected
