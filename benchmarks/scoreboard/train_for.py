"""`nfdist train` that is ended after so many seconds of its steps; prints what it came to as a line of JSON.

    python benchmarks/scoreboard/train_for.py SECONDS [--ranks 1] -- CONFIG.toml [section.key=value ...]

Evaluations are not counted. The run must be new, and keeps the checkpoint of its last step.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from whole_graph import Line, metrics, trained_seconds

SECONDS_BETWEEN_LOOKS = 0.1
STOPPED = 128 + signal.SIGTERM


def summarized(lines: Sequence[Line]) -> dict[str, Any]:
    """Steps, their seconds and bytes, and the scores of every evaluation after so many seconds of steps."""
    steps = [line for line in lines if line["kind"] == "step"]
    curve, seconds = [], 0.0
    for line in lines:
        seconds += line["seconds"] if line["kind"] == "step" else 0.0
        if line["kind"] == "evaluation":
            curve.append({"seconds": seconds, "valid": line["valid"], "test": line["test"]})
    evaluations = [line["seconds"] for line in lines if line["kind"] == "evaluation"]
    later = steps[2:] or steps  # the first wait for pages and libraries
    return {
        "steps": len(steps),
        "train_seconds": seconds,
        "nodes_per_second": sum(line["nodes"] for line in later) / sum(line["seconds"] for line in later),
        "sent_bytes_a_step": statistics.median(line["sent_bytes"] for line in steps),
        "loss": steps[-1]["loss"],
        "evaluate_seconds": statistics.median(evaluations) if evaluations else None,
        "curve": curve,
    }


def run_directory(words: Sequence[str]) -> Path:
    return next(Path(word.partition("=")[2]) for word in words if word.startswith("run.dir="))


def train(words: Sequence[str], seconds: float, ranks: int) -> list[Line]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    run = run_directory(words)
    with subprocess.Popen([sys.executable, *launcher, "-m", "nfdist", "train", *words], stdout=sys.stderr) as process:
        while process.poll() is None:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            if trained_seconds(run) >= seconds:
                process.terminate()
                process.wait()
    lines = metrics(run)
    stopped = bool(lines) and trained_seconds(run) >= seconds  # torchrun has an exit code of its own
    if process.returncode not in (0, STOPPED) and not stopped:
        sys.exit(process.returncode)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("words", nargs="+", metavar="ARGUMENT", help="of nfdist train, run.dir=DIR among them")
    options = parser.parse_args()
    lines = train(options.words, options.seconds, options.ranks)
    if not any(line["kind"] == "step" for line in lines):
        sys.exit(f"no step was made in {options.seconds:g} s")
    print(json.dumps(summarized(lines)))


if __name__ == "__main__":
    main()
