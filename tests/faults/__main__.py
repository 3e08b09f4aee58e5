"""python -m tests.faults --code DIR --seed 7 --cases 1000 [--only PATTERN] | --case NAME"""

import argparse
import fnmatch
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.cases import FAMILIES
from tests.faults.engine import Engine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--code", type=Path, default=Path.cwd(), help="a checkout with the nfdist to test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1000, help="how many")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these families")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of these cases, those whose names match")
    parser.add_argument("--case", action="append", metavar="NAME", help="this one alone")
    parser.add_argument("--folder", type=Path, help="where material and cases go, and stay")
    parser.add_argument("--workers", type=int, default=2, help="servers in parallel")
    parser.add_argument("--list", action="store_true", help="only tell the names")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nfdist-faults-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        started = time.monotonic()
        engine = Engine(options.code.resolve(), folder, options.seed, options.workers, keep=bool(options.folder))
        try:
            names = options.case or engine.table(options.cases, options.family or FAMILIES)
            names = [name for name in names if options.case or fnmatch.fnmatch(name, options.only)]
            if options.list:
                print("\n".join(names))
                return 0
            print(f"seed {options.seed}, {len(names)} cases on {options.code}", flush=True)
            report = engine.run(names, lambda text: print(text, flush=True))
        finally:
            engine.close()
        print(report.summary())
        print(
            f"{len(report.problems)} cases, {len(report.violations)} with violations, "
            f"seed {options.seed}, {time.monotonic() - started:.0f} s"
        )
        return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
