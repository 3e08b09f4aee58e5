"""Packages that `make test` does without."""

import os
from importlib.util import find_spec

import pytest


def need(package: str) -> None:
    """Skip the tests of a module, or fail where they are wanted, if a package is missing."""
    if find_spec(package) is not None:
        return
    reason = f"{package} is not installed: make test-trackers installs it"
    if os.environ.get("NFDIST_REQUIRE_TRACKERS") == "1":
        pytest.fail(f"trackers are required, but {reason}")
    pytest.skip(reason)
