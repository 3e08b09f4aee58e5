"""The scoreboard: what a user would do, at sizes a user has, beside what else there is; writes benchmarks/RESULTS.md.

    NFDIST_DATA=FOLDER python benchmarks/scoreboard/make_scoreboard.py [--quick] [--only JOB ...] [--work DIR]

Three jobs: a graph of Amazon2M's shape, NCBI's taxonomy if $NFDIST_DATA has it, and a graph of ogbn-papers100M's shape
at a quarter, 28 million nodes. Each is partitioned, trained, evaluated and asked for new nodes, and trained by its
contenders for as long, on the same graph, split and threads. Stages run one at a time, each in a process of its own
with a limit of time and memory; what became of it is kept in the work folder, and the same command goes on where it
was stopped. What fails says why and stays so: --retry tries it again. --quick is the same at small scales.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs import Job, jobs, prepare, stages
from machine import GIB, code_version, commit, describe_machine
from scoreboard_page import count_states, page
from stage import ABSENT, DONE, ROOT, Facts, Stage, Workshop, discard

from nfdist.files import replace_file
from nfdist.memory import host_bytes, parse_bytes

SHARE = 0.85  # of the machine's memory that a process may hold


def run_job(job: Job, planned: Sequence[Stage], workshop: Workshop, retry: bool) -> dict[str, Facts]:
    """The facts of all stages, those of earlier starts where there are any."""
    found: dict[str, Facts] = {}
    for stage in planned:
        known = workshop.known(stage)
        if known and (known.done or not retry):
            found[stage.name] = known
    pending = to_run(planned, found)
    if pending:
        prepare(job)
    for stage in planned:
        if stage.name not in pending:
            continue
        say(f"{job.name}, {stage.name}: at most {stage.limit_seconds / 60:.0f} minutes")
        facts = found[stage.name] = workshop.make(stage, found)
        say(f"{job.name}, {stage.name}: {facts.state} {facts.why} ({facts.seconds:.0f} s)")
    return found


def to_run(planned: Sequence[Stage], found: Mapping[str, Facts]) -> set[str]:
    """The stages without facts, and those again that they need and whose files are gone."""
    pending: set[str] = set()
    for stage in reversed(planned):
        needed = any(stage.name in other.needs for other in planned if other.name in pending)
        known = found.get(stage.name)
        if known is None or (needed and known.done and not all(path.exists() for path in stage.out)):
            pending.add(stage.name)
    return pending


def say(line: str) -> None:
    print(f"scoreboard: {line}", file=sys.stderr, flush=True)


def environment() -> dict[str, str]:
    """This code before any installed one, and all threads."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONWARNINGS": "ignore"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small scales and seconds: minutes")
    parser.add_argument("--only", nargs="+", default=[], metavar="JOB", help="amazon2m, taxonomy, papers100m")
    parser.add_argument("--work", type=Path, help="for graphs, runs, logs and facts (default runs/scoreboard)")
    parser.add_argument("--out", type=Path, help="the page (default benchmarks/RESULTS.md or RESULTS-quick.md)")
    parser.add_argument("--memory", metavar="SIZE", help=f"of a process (default {SHARE:.0%} of the machine's)")
    parser.add_argument("--retry", action="store_true", help="try again what has failed")
    parser.add_argument("--keep", action="store_true", help="leave graphs and runs in the work folder")
    parser.add_argument("--page", action="store_true", help="write the page from the facts there are, and run nothing")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    suffix = "-quick" if options.quick else ""
    work = (options.work or ROOT / "runs" / f"scoreboard{suffix}").absolute()
    out = options.out or ROOT / "benchmarks" / f"RESULTS{suffix}.md"
    every = jobs(options.quick, work)
    unknown = sorted(set(options.only) - {job.name for job in every})
    if unknown:
        say(f"there is no job {', '.join(unknown)}: choose among {', '.join(job.name for job in every)}")
        return 2
    memory = parse_bytes("--memory", options.memory) if options.memory else int(SHARE * host_bytes())
    work.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    workshop = Workshop(work, memory, commit(), code_version(), environment())
    planned = [(job, stages(job, work)) for job in every]
    facts: dict[tuple[str, str], Facts] = {}
    command = "make scoreboard" + suffix
    machine = {**describe_machine(), "limit": f"{memory / GIB:.1f} GiB"}
    try:
        for job, own in planned:
            chosen = not options.page and (not options.only or job.name in options.only)
            if chosen:
                found = run_job(job, own, workshop, options.retry)
            else:
                found = {stage.name: known for stage in own if (known := workshop.known(stage))}
            facts |= {(job.name, name): one for name, one in found.items()}
            replace_file(out, page(planned, facts, machine, command))
            if chosen and not options.keep:
                discard(work / job.name)
    except KeyboardInterrupt:
        say("stopped: the same command goes on from here")
        return 130
    say(f"{out.name}: {count_states(facts.values())}")
    broken = [one for one in facts.values() if one.state not in (DONE, ABSENT) and one.stage not in contenders(every)]
    return 1 if broken else 0


def contenders(every: Sequence[Job]) -> set[str]:
    """Who may fail: that is a result, too."""
    return {name for job in every for name in job.contenders}


if __name__ == "__main__":
    sys.exit(main())
