"""What is asked of CUDA itself, played by stand-ins: in which order, and that nothing is waited for too early."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist import devices
from nfdist.devices import Copies, describe, gpu_stopwatch, reached, readable_by
from nfdist.training.result import versions

GPU = torch.device("cuda", 0)


class Event:
    """An event of a stream that is reached after a number of looks."""

    log: list[str]
    looks = 2

    def __init__(self, enable_timing: bool = False) -> None:
        self.timed = enable_timing

    def record(self, stream: str) -> None:
        self.log.append(f"record in {stream}")

    def query(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def synchronize(self) -> None:
        self.log.append("wait")

    def elapsed_time(self, _: "Event") -> float:
        assert self.timed
        return 250.0


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the stand-ins."""
    Event.log = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "the main stream")
    return Event.log


def test_a_step_is_asked_for_without_waiting(log: list[str]) -> None:
    done = reached(GPU)
    assert [done() for _ in range(4)] == [False, False, True, True]
    assert log == ["record in the main stream"]
    assert reached(torch.device("cpu"))()


def test_seconds_of_a_gpu_are_waited_for_when_they_are_asked_for(log: list[str]) -> None:
    stop = gpu_stopwatch(GPU)
    seconds = stop()
    assert log == ["record in the main stream"] * 2
    assert seconds() == 0.25
    assert log[2:] == ["wait"]


def test_versions_have_the_gpu_its_driver_and_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\nGCC version: 12.3.0\n"
    (tmp_path / "version").write_text(told)
    monkeypatch.setattr(devices, "_DRIVER", tmp_path / "version")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100-SXM4-40GB")
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    facts = {"gpu": "NVIDIA A100-SXM4-40GB", "cuda": "12.4", "driver": "550.54.15"}
    assert describe(GPU) == facts
    assert versions(GPU) == {**versions(torch.device("cpu")), **facts}


def test_the_cpu_has_its_batches_where_they_are() -> None:
    rows: Any = readable_by(torch.device("cpu"), (2, 3), torch.float16)
    assert (rows.shape, rows.dtype, rows.is_pinned()) == ((2, 3), torch.float16, False)
    assert Copies(torch.device("cpu")).move(rows) is rows
