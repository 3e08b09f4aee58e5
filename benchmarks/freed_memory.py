"""Page faults and processor seconds of a training step with and without `keep_freed_memory`.

    python benchmarks/freed_memory.py [--nodes 100000] [--steps 6] [--turns 3]

The step is that of benchmarks/attention.py, on one thread. The sides take turns in processes of their own, since how
glibc allocates stays as it was set. Figures are medians over all steps but the first two of a process.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys

import torch
from attention import Setting

from nfdist.memory import keep_freed_memory

WARM_UP = 2
SIDES = ("as glibc does", "kept")
FIGURES = {"faults": "page faults", "kernel": "s in the kernel", "processor": "s of the processor"}


def steps(side: str, nodes: int, count: int) -> list[dict[str, float]]:
    """What every step of this process takes."""
    torch.set_num_threads(1)
    if side == "kept":
        assert keep_freed_memory(), "this is not glibc"
    setting, found = Setting(nodes), []
    for _ in range(WARM_UP + count):
        before = resource.getrusage(resource.RUSAGE_SELF)
        setting.step()
        after = resource.getrusage(resource.RUSAGE_SELF)
        kernel, own = after.ru_stime - before.ru_stime, after.ru_utime - before.ru_utime
        found.append({"faults": after.ru_minflt - before.ru_minflt, "kernel": kernel, "processor": kernel + own})
    return found[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=6, help="of each side in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(steps(options.side, options.nodes, options.steps)))
        return
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(options.turns):
        for side in SIDES:
            words = [sys.executable, __file__, "--side", side, *("--nodes", str(options.nodes))]
            done = subprocess.run(
                [*words, "--steps", str(options.steps)], check=True, stdout=subprocess.PIPE, text=True
            )
            found[side] += json.loads(done.stdout)
    print(f"{'a step':20}" + "".join(f"{side:>16}" for side in SIDES) + f"{'ratio':>8}")
    for key, what in FIGURES.items():
        other, kept = (statistics.median(step[key] for step in found[side]) for side in SIDES)
        print(f"{what:20}{other:16,.3f}{kept:16,.3f}{kept / other if other else 1:8.2f}")


if __name__ == "__main__":
    main()
