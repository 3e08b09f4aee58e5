"""What rounded products do to a training: scores by precision, on one graph with several seeds.

    python benchmarks/precision.py PARTITION [--seeds 5] [section.key=value ...]

Settings are those of `nfdist train PARTITION`, and the overrides. A machine rounds only what it can: factors of
products to bf16 on CPUs with AMX, to TF32 on GPUs. So the two rounded modes are played here on any CPU: before each
product of float32 matrices, forward and backward, its factors are rounded, and the product and its sum are in float32,
as the hardware has them. "all products" also rounds those that exponents of the attention are made by, which nfdist
does not. Evaluations are exact in every mode.
Printed are test scores of the best epochs, raw and not smoothed, and the largest difference of a loss in the first
ten steps from that of float32, relative to it.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from nfdist import api
from nfdist.devices import matrix_products
from nfdist.evaluation.full import Evaluation, FullGraph
from nfdist.runs.run import Run
from nfdist.training import job

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmm_", "baddbmm_")
# What is trained with, the setting, what factors are rounded to by hand, and whether exponents are spared.
MODES = {
    "float32": ("float32", "", True),
    "bf16, as this machine has it": ("bf16", "", True),
    "tf32": ("float32", "tf32", True),
    "bf16": ("bf16", "bf16", True),
    "bf16, all products": ("bf16", "bf16", False),
}


def to_bf16(rows: Tensor) -> Tensor:
    return rows.bfloat16().float()


def to_tf32(rows: Tensor) -> Tensor:
    """To the nearest number of 10 bits."""
    return ((rows.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32).view_as(rows)


class RoundedProducts(TorchDispatchMode):
    """Rounds factors of products wherever torch was told that it may, or everywhere."""

    def __init__(self, kind: str, everywhere: bool) -> None:
        super().__init__()
        self._round, self._everywhere = {"bf16": to_bf16, "tf32": to_tf32}[kind], everywhere

    def __torch_dispatch__(self, call: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        name = str(call.__name__).split(".")[0]
        if name in PRODUCTS and (self._everywhere or torch.get_float32_matmul_precision() != "highest"):
            *others, left, right = arguments
            if left.dtype == torch.float32:
                arguments = (*others, self._round(left), self._round(right))
        return call(*arguments, **(keywords or {}))


@contextmanager
def rounding(kind: str, spared: bool) -> Iterator[None]:
    """A machine that rounds factors to `kind`, those of exponents spared or not, except in evaluations."""
    evaluate = FullGraph.evaluate

    def exact(*given: Any, **options: Any) -> Evaluation:
        with _disable_current_modes():
            return evaluate(*given, **options)

    told = matrix_products(torch.device("cuda"), bf16=False, tf32=kind == "tf32")  # as if it trained there
    played = RoundedProducts(kind, not spared) if kind else nullcontext()
    allowed = patch.object(job, "check_precision")  # on this CPU
    with patch.object(FullGraph, "evaluate", exact), told, played, allowed:
        yield


def first_losses(run: Run, seed: int) -> list[float]:
    """Of the first ten steps."""
    steps = (line for line in run.metrics() if line["kind"] == "step" and line["seed"] == seed)
    return [line["loss"] for line in steps if line["step"] <= 10]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("partition")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_intermixed_args()
    seeds: Sequence[int] = range(options.seeds)
    exact: list[list[float]] = []
    print(f"{'mode':32}{'test':>8}{'±':>8}{'first steps':>14}")
    for mode, (precision, kind, spared) in MODES.items():
        with tempfile.TemporaryDirectory() as folder, rounding(kind, spared):
            own = [f"train.precision={precision}", f"train.seeds={list(seeds)}", f"run.dir={folder}/run"]
            own += ["observe.port=0", "evaluate.smoothing=none"]
            run = api.train(api.configure(Path(options.partition), [*own, *options.overrides]))
            result = run.result()
            assert result is not None
            losses = [first_losses(run, seed) for seed in seeds]
        exact = exact or losses
        pairs = [pair for ours, theirs in zip(losses, exact, strict=True) for pair in zip(ours, theirs, strict=True)]
        worst = max(abs(ours - theirs) / abs(theirs) for ours, theirs in pairs)
        scores = [seed["best"]["test"] for seed in result["per_seed"]]
        deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
        print(f"{mode:32}{100 * statistics.mean(scores):8.2f}{100 * deviation:8.2f}{worst:14.1e}", flush=True)


if __name__ == "__main__":
    main()
