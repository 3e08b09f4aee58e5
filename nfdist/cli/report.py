"""nfdist report: one page that explains a run, or several side by side."""

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nfdist.reporting.run_facts import RunFacts

LOADS = ("nfdist.reporting.page",)
EXAMPLES = (
    ("nfdist report runs/cora", "runs/cora/report.html"),
    ("nfdist report runs/cora runs/cora-wide --out both.html", "two runs side by side"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dirs", nargs="+", metavar="RUN_DIR", help="a run; of several, a comparison is made")
    parser.add_argument(
        "--out", metavar="FILE", help="the page (default: report.html in the run, or in the folder above several)"
    )
    parser.add_argument("--partition", metavar="DIR", help="where the run's graph is, if no longer in data.partition")
    parser.add_argument("--json", action="store_true", help="print what was found as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    from nfdist.reporting.page import write_report

    started = time.perf_counter()
    place, facts = write_report(options.run_dirs, options.out, options.partition)
    seconds = time.perf_counter() - started
    size_bytes = place.stat().st_size
    print(f"{place}: {size_bytes / 2**20:.1f} MiB, in {seconds:.1f} s; open it in a browser")
    if options.json:
        found = {"out": str(place.absolute()), "bytes": size_bytes, "seconds": seconds}
        print(json.dumps({**found, "runs": [_summary(one) for one in facts]}))
    return 0


def _summary(facts: "RunFacts") -> dict[str, Any]:
    answers = facts.answers
    return {
        "run": str(facts.run.path),
        "finished": facts.course.finished,
        "accuracy": None if answers is None else answers.accuracy,
        "split": None if answers is None else answers.split,
        "absent": facts.absent,
    }
