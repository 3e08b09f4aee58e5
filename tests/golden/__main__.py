"""Facts of all golden cases by the code that is here.

    python -m tests.golden --precision float32 --out facts.json    # every number, to compare two commits
    python -m tests.golden --update                                # golden.json again

`--update` is only for a commit that means to change numbers, and that says so.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.facts import sampled
from tests.golden.running import run_cases

GOLDEN = Path(__file__).resolve().parent / "golden.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description="Facts of all golden cases.")
    parser.add_argument("--precision", choices=("float64", "float32"), default="float64")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", metavar="FILE", type=Path, help="write all numbers as JSON")
    target.add_argument("--update", action="store_true", help="rewrite golden.json, where numbers are meant to change")
    options = parser.parse_args()
    if options.update and options.precision != "float64":
        parser.error("golden.json is of float64")
    with tempfile.TemporaryDirectory() as folder:
        facts = run_cases(CASES, Path(folder), options.precision)
    if options.update:
        lines = [f"{json.dumps(name)}: {json.dumps(sampled(found), allow_nan=False)}" for name, found in facts.items()]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    else:
        options.out.write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
