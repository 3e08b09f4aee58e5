"""Who a process is, and how long it waits for the others."""

import time
from collections.abc import Callable

import pytest
import torch

from nfdist.errors import WorldError
from nfdist.world import Watch, World


def test_a_rank_is_one_of_its_world() -> None:
    with pytest.raises(WorldError, match="rank 2 does not exist in a world of 2"):
        World(2, 2)


def test_a_device_that_never_gets_there_is_waited_for_only_so_long() -> None:
    """As with NCCL, whose operations neither end nor fail when a rank is gone."""
    watch = Watch()
    watch.phase, watch.timeout_seconds, watch.explain = "seed 0, step 3", 0.05, lambda: "rank 1 on b is lost"
    began = time.monotonic()
    with pytest.raises(WorldError, match=r"seed 0, step 3, losses: rank 1 on b is lost \(waited 0\.05 s\)"):
        watch.wait_until(lambda: False, "losses")
    assert time.monotonic() - began < 5


def test_a_device_that_gets_there_is_waited_for() -> None:
    watch, answers = Watch(), iter([False, False, True])
    watch.wait_until(lambda: next(answers), "losses")
    assert next(answers, None) is None
    assert watch.phase == "start"


def test_seconds_of_a_device_are_read_when_they_are_asked_for() -> None:
    watch, read = Watch(), []

    def stopwatch(_: torch.device) -> Callable[[], Callable[[], float]]:
        def seconds() -> float:
            read.append(1)
            return 2.5

        return lambda: seconds

    watch.stopwatch = stopwatch
    for _ in range(2):
        with watch.collective("sum", 8):
            pass
    assert not read
    assert watch.seconds == 5.0
    assert watch.seconds == 5.0
    assert len(read) == 2
    assert watch.sent_bytes == 16
