"""Whose memory is short, at what, and which batch would fit: told in one line, and never blamed on another rank."""

import re
from collections.abc import Callable

import pytest
import torch

from nfdist.config import TrainConfig
from nfdist.devices import MemoryUse
from nfdist.errors import ConfigError, WorldError
from nfdist.training import shortage
from nfdist.training.shortage import Shortage
from nfdist.world import Watch, World

MIB = 1 << 20
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 1 GiB")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Says what a device of 1,000 MiB would."""

    def holds(now: int, peak: int) -> None:
        monkeypatch.setattr(shortage, "memory_use", lambda _: MemoryUse(now * MIB, peak * MIB, 1_000 * MIB))

    return holds


def refusal(found: Shortage, error: RuntimeError) -> str:
    with pytest.raises(ConfigError) as caught, found.explained():
        raise error
    return str(caught.value)


def test_a_batch_that_would_fit_is_told(memory: Callable[[int, int], None]) -> None:
    world = World(1, 2)
    memory(100, 100)
    short = Shortage(torch.device("cuda", 1), world, TrainConfig(batch_nodes=10_000))
    world.watch.phase = "seed 0, step 3, backward"
    short.meet(10_000)
    memory(960, 980)
    text = refusal(short, FULL)
    # 980 + 100 MiB are 98 KiB a node beyond what was there before, of which 90 % of 900 MiB have room for 8,265.
    assert re.fullmatch(
        r"rank 1 \(cuda:1 on \S+\) is out of memory at seed 0, step 3, backward, with 0\.94 of 0\.98 GiB in use, by "
        r"10000 nodes: set train\.batch_nodes to at most 8200 \(is 10000\)",
        text,
    )


def test_what_fit_before_counts_where_it_took_more(memory: Callable[[int, int], None]) -> None:
    memory(100, 100)
    short = Shortage(torch.device("cuda"), World(), TrainConfig(batch_nodes=0))
    short.meet(5_000)
    memory(100, 900)
    short.learn()
    memory(100, 999)  # an evaluation, say
    short.learn()
    short.meet(10_000)
    text = refusal(short, FULL)
    assert "use more ranks, or set train.batch_nodes to at most 5000" in text


def test_other_errors_stay_what_they_are(memory: Callable[[int, int], None]) -> None:
    memory(1, 1)
    short = Shortage(torch.device("cuda"), World(), TrainConfig())
    with pytest.raises(RuntimeError, match="another"), short.explained():
        raise RuntimeError("another")


@pytest.mark.parametrize("error", [FULL, RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes")])
def test_a_shortage_is_not_blamed_on_another_rank(error: RuntimeError) -> None:
    watch = Watch()
    with pytest.raises(type(error)) as caught, watch.doing("backward"), watch.explained("gradients"):
        raise error
    assert caught.value is error
    assert watch.phase == "start, backward, gradients"
    with pytest.raises(WorldError, match="another rank has stopped"), watch.explained("gradients"):
        raise RuntimeError("Connection closed by peer")
