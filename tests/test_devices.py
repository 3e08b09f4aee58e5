"""Rounded products reach no exponent and no evaluation, and torch is left as it was."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist import settings
from nfdist.attention import ops
from nfdist.devices import exact_products, matrix_products, placed
from nfdist.evaluation.full import FullGraph
from nfdist.training.step import Stepper
from nfdist.world import World
from tests.accelerator.device import accelerator
from tests.training.building import build_partition, config_of, run_training

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ASKED = {  # of torch, for products of float32
    "plain": (CPU, False, False, "highest"),
    "bf16": (CPU, True, False, "medium"),
    "TF32 on a CPU": (CPU, False, True, "highest"),
    "TF32 on a GPU": (CUDA, False, True, "high"),
    "bf16 on a GPU": (CUDA, True, True, "medium"),
}


@pytest.mark.parametrize("case", ASKED)
def test_products_are_rounded_for_a_while_but_for_exact_ones(case: str) -> None:
    device, bf16, tf32, wanted = ASKED[case]
    with matrix_products(device, bf16=bf16, tf32=tf32):
        assert torch.get_float32_matmul_precision() == wanted
        with exact_products():
            with exact_products():
                pass
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == wanted
    assert torch.get_float32_matmul_precision() == "highest"


def test_what_a_user_asked_of_torch_stays_outside_of_a_training() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with exact_products():
            assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_bf16_spares_exponents_and_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {}

    def watched(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watch(*given: Any, **options: Any) -> Any:
            seen.setdefault(name, set()).add(torch.get_float32_matmul_precision())
            return work(*given, **options)

        monkeypatch.setattr(owner, name, watch)

    monkeypatch.setattr("nfdist.training.job.check_precision", lambda *_, **__: None)
    for owner, name in ((ops, "project"), (ops, "summarize"), (Stepper, "move"), (FullGraph, "_first_rows")):
        watched(owner, name)
    graph = build_partition(tmp_path / "graph")
    options = ("train.precision=bf16", "train.epochs=1", "train.evaluate_every=1")
    run_training(World(), settings.dump(config_of(graph, tmp_path / "run", *options)))
    assert seen["project"] == seen["_first_rows"] == {"highest"}
    assert seen["summarize"] == {"medium", "highest"}  # in steps, and in the evaluation
    assert seen["move"] == {"medium"}


@pytest.mark.accelerator
def test_a_module_is_copied_to_another_device_alone() -> None:
    device, linear = accelerator(), torch.nn.Linear(2, 3)
    there = placed(linear, device)
    assert placed(linear, CPU) is linear
    assert placed(there, device) is there
    assert linear.weight.device == CPU
    assert torch.equal(there.weight.cpu(), linear.weight)
