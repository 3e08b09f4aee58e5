"""Damaged and odd inputs: each is read to a graph, or refused in one line, whatever was done to it."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from nfdist.errors import NfdistError
from nfdist.partitioning.sources import SourceOptions, counts, load

SOME = 25
SECONDS = 60.0
UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
ODD_NUMBERS = st.sampled_from([-1, 0, 1, 2, 7, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1])


def outcome(read: Callable[[], Any]) -> str:
    """What reading comes to: "graph", or the one line that refuses."""
    try:
        read()
    except NfdistError as error:
        text = str(error)
        assert text, "a refusal says nothing"
        assert len(text.splitlines()) == 1, f"a refusal of several lines: {text!r}"
        return text
    return "graph"


def try_some(case: Callable[[Any], str]) -> None:
    """Some examples of a case, always the same."""
    found: set[str] = set()

    @settings(max_examples=SOME, derandomize=True, database=None, deadline=None, suppress_health_check=UNHURRIED)
    @given(st.data())
    def run(data: Any) -> None:
        found.add(case(data))

    run()
    _check_both_happen(found)


def try_many(name: str, case: Callable[[Any], str]) -> None:
    """Examples of a case from a new seed, which is shown, for a bounded time."""
    found: set[str] = set()
    number = random.SystemRandom().randrange(1 << 32)
    stop = time.monotonic() + SECONDS
    while time.monotonic() < stop:
        print(f"seed {number} of {name}")

        @seeded(number)
        @settings(
            max_examples=200,
            phases=[Phase.generate, Phase.shrink],
            database=None,
            deadline=None,
            suppress_health_check=UNHURRIED,
        )
        @given(st.data())
        def run(data: Any) -> None:
            found.add(case(data))

        run()
        number += 1
    _check_both_happen(found)


def _check_both_happen(found: set[str]) -> None:
    """A fuzzer that only refuses, or refuses nothing, tests nothing."""
    assert "graph" in found or len(found) > 1
    assert len(found) > 3


def load_and_count(path: Path, options: SourceOptions) -> None:
    """Read a source in both ways; what loads must be consistent in itself."""
    counted = outcome(lambda: counts(str(path), options))
    graph = load(str(path), options)
    assert counted == "graph", f"it loads, but cannot be counted: {counted}"
    assert graph.features.shape[0] == len(graph.labels) == len(graph.split) == graph.num_nodes > 0
    assert len(graph.sources) == len(graph.targets)
    values = getattr(graph.features, "data", graph.features)
    assert not np.isinf(np.asarray(values, np.float64)).any()  # a gap is NaN


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes changed, cut, inserted, repeated, or a number of 1 to 8 bytes replaced."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        if not content:
            break
        place = draw(st.integers(0, len(content) - 1))
        kind = draw(st.sampled_from(["flip", "set", "cut", "number", "insert", "repeat", "drop"]))
        if kind == "flip":
            content[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set":
            content[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del content[place:]
        elif kind == "number":
            width = draw(st.sampled_from([2, 4, 8]))
            number = draw(ODD_NUMBERS) % (1 << 8 * width)
            content[place : place + width] = number.to_bytes(width, "little")
        elif kind == "insert":
            content[place:place] = draw(st.binary(min_size=1, max_size=9))
        elif kind == "repeat":
            content[place:place] = content[place : place + draw(st.integers(1, 64))]
        else:
            del content[place : place + draw(st.integers(1, 16))]
    return bytes(content)
