"""Rates are kept for a host and its versions, and anything else is not taken for them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nfdist.plan.rates import ROUGH, HostRates, keep_rates, known_rates, rates_file


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NFDIST_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_what_was_measured_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not known_rates().measured
    assert known_rates().rates == ROUGH
    found = HostRates(1e9, 2e9, 3e9, 4e9, 5e9, threads=1)
    path = keep_rates(found)
    assert path.parent == tmp_path / "nfdist"
    known = known_rates()
    assert known.measured
    assert known.rates == found
    assert known.link_bytes == ROUGH.link_bytes  # no other host was met
    keep_rates(replace(found, link_bytes=7e6, link_latency_seconds=1e-3))
    assert (known_rates().link_bytes, known_rates().link_latency_seconds) == (7e6, 1e-3)
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert not known_rates().measured


@pytest.mark.parametrize("text", ["", "{", "{}", '{"rates": {"product_flops": 1}}', "[]", '{"rates": 3}'])
def test_a_damaged_file_is_as_good_as_none(text: str) -> None:
    keep_rates(ROUGH)
    rates_file().write_text(text)
    assert not known_rates().measured


def test_a_rate_that_is_no_speed_is_not_believed() -> None:
    keep_rates(replace(ROUGH, passed_bytes=0.0))
    assert not known_rates().measured
