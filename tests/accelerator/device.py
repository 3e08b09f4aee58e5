"""The accelerator that tests take: a GPU where NFDIST_TEST_DEVICE=cuda says so, else the fake one.

Tests that take one are marked `accelerator`; `make test-gpu` runs these on GPUs.
"""

import os

import pytest
import torch
from torch import Tensor

from tests.accelerator import fake

WANTED = os.environ.get("NFDIST_TEST_DEVICE", fake.TYPE)
assert WANTED in (fake.TYPE, "cuda"), f"NFDIST_TEST_DEVICE is fake or cuda, got {WANTED!r}"


def accelerator(rank: int = 0) -> torch.device:
    """The device of a rank; a test that asks for one is skipped where there is none."""
    if WANTED == "cuda":
        there = torch.cuda.device_count()
        if rank >= there:
            pytest.skip(f"{rank + 1} GPUs are needed, this machine has {there}")
        torch.cuda.set_device(rank)
        return torch.device("cuda", rank)
    if not fake.available():
        pytest.skip(f"torch {torch.__version__} lets no device be defined in Python")
    return fake.device()


def needs_worlds(ranks: int) -> None:
    """Skip a test of several ranks where there are too few devices for them."""
    accelerator(ranks - 1 if WANTED == "cuda" else 0)


def needs_counts() -> None:
    """Skip a test of what only the fake device tells: which operations it is asked for."""
    if WANTED != fake.TYPE:
        pytest.skip("launches and waits are counted on the fake accelerator alone")
    accelerator()


def assert_close(found: Tensor, wanted: Tensor, tolerance: float | None = None) -> None:
    """Equal to what the CPU has, but for the order of sums: operations of devices have one of their own."""
    tolerance = tolerance or {torch.float64: 1e-7, torch.float32: 1e-3}[wanted.dtype]
    assert float((found - wanted).abs().max()) <= tolerance * float(wanted.abs().max())
