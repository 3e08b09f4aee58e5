"""The paper's results: trains every row of experiments.py that has no result yet, and writes the table.

    NFDIST_DATA=FOLDER python benchmarks/paper/run.py [--quick] [--only PATTERN ...] [--jobs 2] [--work DIR] [--list]

A row is trained by a process of its own with one thread, from a partition that is made once in the work folder. Its
result is results/ID.json; as long as configuration and data stay the same it is not trained again. A row that was cut
short goes on from its last checkpoint, a row that failed is tried again. --quick is one seed and 60 epochs of a few
rows, in minutes, for results-quick/ and RESULTS-quick.md.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import table
from children import Children, RowError
from experiments import PAIRWISE, ROOT, Experiment, chosen_rows
from results import Result, read_result, run_folder, seed_scores, total_seconds
from sources import (
    located_source,
    partition_environment,
    partition_folder,
    recipe_path,
    row_digest,
)

from nfdist import settings
from nfdist.config import Config
from nfdist.errors import NfdistError
from nfdist.partitioning.sources.formats.source_format import Located

HERE = Path(__file__).parent
SCALING_ROW = "20news-k5"
# Only the best and the last checkpoint are wanted, and no port.
PLUMBING = ("train.checkpoint_every=0", "train.keep=1", "observe.port=0", "run.device=cpu")


@dataclass(frozen=True)
class Workshop:
    """Where rows are made: the folder of partitions and runs, the folder of results, and the processes."""

    work: Path
    results: Path
    children: Children = field(default_factory=Children)
    partitioning: threading.Lock = field(default_factory=threading.Lock)

    def is_done(self, row: Experiment) -> bool:
        """Whether the row has a result of this very configuration and data."""
        result, source = read_result(self.results, row.id), located_source(row)
        return bool(result and source and not result.failed and result.digest == row_digest(row, source))

    def make(self, row: Experiment) -> Result:
        """Train a row and keep its result, or the line with which it failed."""
        source = located_source(row)
        assert source is not None
        digest = row_digest(row, source)
        result = Result(row.id, digest, "", 0, commit(), "")
        try:
            config = settings.load(ROOT / row.config, row.overrides)
            metric, epochs = config.evaluate.metric, config.train.epochs
            result = replace(result, metric=metric, epochs=epochs, command=shown_command(row, config))
            outcome = self._train(row, source, digest)
            result = replace(
                result,
                metric=outcome.get("metric", metric),  # which one "auto" is
                per_seed=seed_scores(outcome),
                seconds=round(total_seconds(outcome), 1),
                peak_memory_bytes=outcome["peak_memory_bytes"],
            )
        except (RowError, NfdistError) as error:
            result = replace(result, failed=self._without_paths(str(error)))
        result.write(self.results)
        return result

    def _train(self, row: Experiment, source: Located, digest: str) -> dict[str, Any]:
        partition = self.partition(row, source)
        run = run_folder(self.work, row.id, digest)
        log = self.work / "logs" / row.id
        printed = self.children.run(command(row, partition, run), environment(dict(os.environ)), log)
        try:
            outcome: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise RowError("ended without a result") from None
        return outcome

    def partition(self, row: Experiment, source: Located) -> Path:
        folder = partition_folder(row, source, self.work)
        with self.partitioning:
            if not folder.exists():
                words = [sys.executable, "-m", "nfdist", "partition", str(recipe_path(row)), "--out", str(folder)]
                variables = environment(self._source_environment(row, source))
                self.children.run(words, variables, self.work / "logs" / f"partition-{row.recipe}")
        return folder

    def _source_environment(self, row: Experiment, source: Located) -> dict[str, str]:
        """The environment in which a recipe finds its source; features of images are made first."""
        variables = partition_environment(row, source, self.work)
        if not row.image_features:
            return variables
        assert source.path is not None
        pixels, made = Path(variables["NFDIST_DATA"]), self.work / "sources" / f"{source.path.stem}-{row.rows}-features"
        if not (made / source.path.name).exists():
            made.mkdir(parents=True, exist_ok=True)
            files = [str(pixels / source.path.name), "--out", str(made / source.path.name)]
            words = [sys.executable, str(HERE / "image_features.py"), *files]
            self.children.run(words, environment(variables), self.work / "logs" / "image-features")
        return {**variables, "NFDIST_DATA": str(made)}

    def measure_scaling(self, row: Experiment) -> None:
        """Time and memory against the number of nodes, for the figure of that name, unless it was measured before."""
        source, out = located_source(row), self.results / table.SCALING_FILE
        if source is None or out.exists():
            return
        say("scaling: measuring one epoch of each method on more and more nodes")
        words = [sys.executable, str(HERE / "scaling.py"), "--partition", str(self.partition(row, source))]
        try:
            self.children.run(
                [*words, "--out", str(out)], environment(dict(os.environ)), self.work / "logs" / "scaling"
            )
        except RowError as error:
            say(f"scaling: failed, {error}")

    def _without_paths(self, text: str) -> str:
        """A message as it may be published: without this machine's folders."""
        folders = {str(self.work): "WORK", os.environ.get("NFDIST_DATA", ""): "$NFDIST_DATA", f"{ROOT}/": ""}
        for folder, name in folders.items():
            text = text.replace(folder, name) if folder else text
        return text


def command(row: Experiment, partition: Path, run: Path) -> list[str]:
    """What trains a row and prints its outcome as the last line."""
    if row.script in PAIRWISE:
        config, script = settings.load(ROOT / row.config, row.overrides), str(HERE / f"{row.script}.py")
        return [sys.executable, script, "--partition", str(partition), *pairwise_options(row, config), "--json"]
    trainer = ["-m", "nfdist", "train"] if row.script == "train" else [str(HERE / f"{row.script}.py")]
    places = (f"data.partition={json.dumps(str(partition))}", f"run.dir={json.dumps(str(run))}")
    return [sys.executable, *trainer, str(ROOT / row.config), *row.overrides, *PLUMBING, *places, "--resume", "--json"]


def pairwise_options(row: Experiment, config: Config) -> list[str]:
    """The settings that a learner of all pairs shares with the other rows, and its own."""
    seeds = ",".join(map(str, config.train.seeds))
    chosen = {
        "seeds": seeds,
        "epochs": config.train.epochs,
        "split": config.data.split,
        "metric": config.evaluate.metric,
    }
    return [*(word for name, value in chosen.items() for word in (f"--{name}", str(value))), *row.options]


def shown_command(row: Experiment, config: Config) -> str:
    """The same for people, without the folders."""
    changes = " ".join(f'"{change}"' if " " in change else change for change in row.overrides)
    if row.script in PAIRWISE:
        options = " ".join(pairwise_options(row, config))
        return f"python benchmarks/paper/{row.script}.py --partition partitions/{row.recipe} {options}"
    trainer = "nfdist train" if row.script == "train" else f"python benchmarks/paper/{row.script}.py"
    return f"{trainer} {row.config} {changes}".strip()


def environment(variables: dict[str, str]) -> dict[str, str]:
    """One thread a process, and the nfdist of this checkout."""
    paths = [str(ROOT), *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": os.pathsep.join(paths)}


def commit() -> str:
    """The commit of this checkout, with a plus if what trains was changed since."""
    try:
        name = subprocess.check_output(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, text=True).strip()
        changed = subprocess.check_output(["git", "status", "--porcelain", "nfdist", "launch"], cwd=ROOT, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}+" if changed.strip() else name


def run_rows(workshop: Workshop, rows: Sequence[Experiment], jobs: int, quick: bool) -> int:
    """Train the rows, `jobs` at a time and the first ones first; the table is written anew after each.

    Returns how many failed.
    """
    pending, num_failed = list(rows), 0
    running: dict[Future[Result], Experiment] = {}
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while pending or running:
                while pending and len(running) < jobs:
                    row = pending.pop(0)
                    say(f"{row.id}: training, {len(pending)} rows after it")
                    running[pool.submit(workshop.make, row)] = row
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    num_failed += bool(future.result().failed)
                    say(outcome_line(running.pop(future), future.result()))
                table.write_table(workshop.results, quick)
        except BaseException:
            workshop.children.stop()
            raise
    return num_failed


def outcome_line(row: Experiment, result: Result) -> str:
    if result.failed:
        return f"{row.id}: failed, {result.failed}"
    deviation = "" if result.deviation is None else f" ± {result.deviation:.2f}"
    return f"{row.id}: {result.metric} {result.mean:.2f}{deviation} in {result.seconds:.0f} s"


def state_of(workshop: Workshop, row: Experiment) -> str:
    if located_source(row) is None:
        return "no data"
    if workshop.is_done(row):
        return "done"
    result = read_result(workshop.results, row.id)
    if result is None:
        return "not run yet"
    return "failed" if result.failed else "changed"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed and few epochs of a few rows")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN", help='ids of rows, such as "cora*"')
    parser.add_argument("--jobs", type=int, default=2, help="rows at a time, a thread each (default 2)")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "paper", help="for partitions, runs and logs")
    parser.add_argument("--results", type=Path, help="for result files (default results/ or results-quick/ here)")
    parser.add_argument("--list", action="store_true", help="show the rows and their state, and run nothing")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    rows = chosen_rows(options.quick, options.only)
    workshop = Workshop(options.work.absolute(), options.results or table.results_folder(options.quick))
    if not rows:
        say(f"no row matches {' '.join(options.only)}: --list shows their ids")
        return 2
    if options.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may leave early
        for row in rows:
            print(f"{row.id:28} {row.group:12} {state_of(workshop, row)}")
        return 0
    if not os.environ.get("NFDIST_DATA"):
        say("NFDIST_DATA is not set: name the folder that has cora.npz and the other datasets")
        return 2
    if not Path(os.environ["NFDIST_DATA"]).is_dir():
        say(f"NFDIST_DATA names {os.environ['NFDIST_DATA']}, which is not a folder")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    here = [row for row in rows if located_source(row) is not None]
    pending = [row for row in here if not workshop.is_done(row)]
    done, absent = len(here) - len(pending), len(rows) - len(here)
    say(f"{len(rows)} rows: {done} done, {len(pending)} to run, {absent} without data")
    try:
        num_failed = run_rows(workshop, pending, max(options.jobs, 1), options.quick)
        if not options.quick and not options.only:
            workshop.measure_scaling(next(row for row in rows if row.id == SCALING_ROW))
    except KeyboardInterrupt:
        say("stopped: the same command goes on from here")
        return 130
    table.write_table(workshop.results, options.quick)
    if num_failed:
        say(f"{num_failed} of {len(pending)} rows failed: the same command tries them again")
    return min(num_failed, 1)


if __name__ == "__main__":
    sys.exit(main())
