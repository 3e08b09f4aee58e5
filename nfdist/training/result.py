"""What a run comes to: the best and the final scores of every seed, and what they cost."""

import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import torch

from nfdist import __version__
from nfdist.devices import describe, peak_bytes
from nfdist.memory import peak_resident_bytes
from nfdist.runs.ranking import rank

PHASES = ("train", "wait", "evaluate", "checkpoint")


def summarize_seeds(per_seed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The best seed by validation score, the last seed's final scores, and mean and deviation of the tests, raw and
    smoothed.

    Seconds are of rank 0; those of "wait", for batches, are part of "train".
    """
    tests = [seed["best"]["test"] for seed in per_seed if seed["best"] and seed["best"]["test"] is not None]
    smoothed = [seed["smoothed"]["test"] for seed in per_seed if seed.get("smoothed")]
    smoothed = [test for test in smoothed if test is not None]
    ranked = [seed["best"] for seed in per_seed if seed["best"]]
    return {
        "best": max(ranked, key=rank, default=None),
        "final": per_seed[-1]["final"],
        "per_seed": list(per_seed),
        "test_mean": statistics.fmean(tests) if tests else None,
        "test_std": statistics.stdev(tests) if len(tests) > 1 else None,
        "smoothed_test_mean": statistics.fmean(smoothed) if smoothed else None,
        "smoothed_test_std": statistics.stdev(smoothed) if len(smoothed) > 1 else None,
        "seconds": {phase: sum(seed["seconds"].get(phase, 0.0) for seed in per_seed) for phase in PHASES},
    }


def peak_memory_bytes(device: torch.device) -> int:
    """The most that tensors took on a GPU, and on the CPU the largest resident set of this process."""
    peak = peak_bytes(device)
    return peak_resident_bytes() if peak is None else peak


def versions(device: torch.device) -> dict[str, str]:
    """What must be the same for a run on a device to be repeated to the bit."""
    return {
        "nfdist": __version__,
        "torch": torch.__version__,
        "numpy": metadata.version("numpy"),
        "python": platform.python_version(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        **describe(device),
    }
