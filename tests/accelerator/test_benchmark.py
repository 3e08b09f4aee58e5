"""benchmarks/gpu.py counts a step on the fake accelerator, and says so where there is no GPU to measure one on."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.accelerator.device import accelerator, needs_counts
from tests.needs import needs_dgl

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the script, which finds those beside it."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("gpu")


def test_counts_and_what_a_device_could_do_at_best(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    needs_counts()
    assert script.main(["--fake", "--roofline", "--nodes", "300", "model.layers=1"]) == 0
    told = capsys.readouterr().out
    whole = next(line for line in told.splitlines() if line.startswith("| nfdist |"))
    launches, waits, *_ = (float(cell) for cell in whole.split("|")[2:-1])
    assert 100 < launches < 500
    assert waits == 1
    assert "| attention/ops/gpu/summaries.py |" in told
    assert "| milliseconds | nfdist, A100 SXM 80 GB | nfdist, H100 SXM 80 GB | transcription, " in told


def test_without_a_gpu_there_is_one_line(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert script.main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert "no GPU" in told.err


@needs_dgl
def test_a_rehearsal_prints_the_table(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--device", "cpu", "--nodes", "200", "--steps", "1", "--only", "step"]) == 0
    assert "| a step, 200 nodes |" in capsys.readouterr().out


@pytest.mark.accelerator
def test_the_transcription_makes_the_same_step_on_a_device(script: Any) -> None:
    device_step = importlib.import_module("device_step")
    assert device_step.apart(device_step.Problem(300, accelerator())) < 1e-5


def test_a_step_takes_as_long_as_the_slower_of_device_and_host(script: Any) -> None:
    roofline = importlib.import_module("roofline")
    device = roofline.Device(
        "made up", "nowhere", float32=100.0, tf32=1000.0, memory=10.0, host_link=5.0, device_link=2.0
    )
    asked = ({"copy": 40, "product": 10}, {"product": 300})
    slow_device = roofline.estimate(device, 0, *asked, 20, 6)
    assert (slow_device.memory, slow_device.products, slow_device.products_tf32) == (5.0, 3.0, 0.3)
    assert slow_device.step == slow_device.device == 4.0 + 3.0
    assert (slow_device.batch, slow_device.gradients) == (4.0, 3.0)
    slow_host = roofline.estimate(device, 10**7, *asked, 20, 6)
    assert slow_host.step == slow_host.launches == 10**7 * roofline.LAUNCH_SECONDS
    assert "**a step takes at least** | 7e+03 |" in roofline.table({device.name: slow_device})
