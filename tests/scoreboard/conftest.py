"""The scripts of benchmarks/ import each other by their bare names, as they do when they are run."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(folder) for folder in (BENCHMARKS, BENCHMARKS / "scoreboard") if str(folder) not in sys.path]
