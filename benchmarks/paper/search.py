"""Settings for the tuned rows of the table: `nfdist tune` for every dataset and method, the same budget for each.

    NFDIST_DATA=FOLDER python benchmarks/paper/search.py [--minutes 10] [--jobs 2] [--only PATTERN ...] [--work DIR]

A search has so many minutes of one core, as the system counts them, whatever runs beside it. It begins with the
settings of `nfdist train PARTITION` for NodeFormer or a baseline's usual ones, and looks at the validation scores of
redrawn splits: of as many as have 10,000 nodes together, at most four. What it finds is
launch/tuned/DATASET-METHOD.toml; `run.py` trains these on five splits. A search whose file says that it has had its
minutes is not repeated. With more of them it goes on, if its study is still in the work folder; else the minutes that
are left go to a new study, which begins with what the file has. That one takes the last splits instead of the first,
so that it draws other settings than the first and trusts no split too much.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any

from children import RowError
from experiments import NO_GRAPH, ROOT, TUNED, Experiment, tuned_rows
from run import Workshop, environment, say
from sources import located_source
from table import results_folder

from nfdist import settings
from nfdist.api import configure
from nfdist.config import Config
from nfdist.fields import each_setting
from nfdist.files import replace_file
from nfdist.store.store import Store
from nfdist.tune.usual import needs_scaling, usual_config

SEARCHED_NODES, MOST_SEARCHED = 10_000, 4  # small graphs have few nodes to validate on, and short trainings
SEEDS = (0, 1, 2, 3, 4)
SPLIT = "random:0.5/0.25/0.25"
# Smoothing would bring the graph back.
WITHOUT_GRAPH = (
    *("relation.order=0", "relation.gate=none", "model.graph_layers=0", "train.edge_loss=0"),
    "evaluate.smoothing=none",
)
MANY = 100_000  # trials: the time decides
UNIT = "minutes of one core"
LEAST_MINUTES = 0.5  # that are worth another start


@dataclass(frozen=True)
class Search:
    """The study of one method on one dataset, in a folder of its own."""

    workshop: Workshop
    row: Experiment

    @property
    def folder(self) -> Path:
        return self.workshop.work / "searches" / self.row.id

    @property
    def path(self) -> Path:
        return ROOT / self.row.config

    def is_done(self, minutes: float) -> bool:
        """Whether what was found is there, by a search that was as long."""
        return self._said_minutes() >= minutes

    def _said_minutes(self) -> float:
        """How long the file says that it was searched for."""
        said = re.match(rf"# .*: (\S+) {UNIT}", self.path.read_text()) if self.path.exists() else None
        return 0.0 if said is None else float(said[1])

    def run(self, minutes: float) -> str:
        """Search for what is left of the minutes, write what was found, and say so."""
        source = located_source(self.row)
        assert source is not None
        partition = self.workshop.partition(self.row, source)
        self.folder.mkdir(parents=True, exist_ok=True)
        base, spent_file = self.folder / "base.toml", self.folder / "minutes.json"
        if not base.exists():
            replace_file(self._before, json.dumps(self._said_minutes()))
            replace_file(base, settings.dump(self._base(partition)))
        spent = _number(spent_file, otherwise=_number(self._before))
        while minutes - spent > LEAST_MINUTES:
            spent += self._tune(base, minutes - spent)
            replace_file(spent_file, json.dumps(spent))
        return self._write(minutes)

    @property
    def _before(self) -> Path:
        """Has the minutes of earlier studies, with whose find this one begins."""
        return self.folder / "before.json"

    def _base(self, partition: Path) -> Config:
        """Where the search begins."""
        store = Store.open(partition)
        splits = min(MOST_SEARCHED, -(-SEARCHED_NODES // store.num_nodes))
        if self.path.exists():
            found = settings.load(self.path)
            chosen = replace(
                found,
                data=replace(found.data, partition=str(partition)),
                train=replace(found.train, seeds=SEEDS[::-1][:splits]),
            )
        else:
            chosen = self._usual(partition, store, splits)
        return replace(chosen, run=replace(chosen.run, dir=str(self.folder / "run"), device="cpu"))

    def _usual(self, partition: Path, store: Store, splits: int) -> Config:
        """The settings of a training without any, or a baseline's usual ones."""
        method = self.row.id.rpartition("-")[2]
        overrides = [f"data.split={SPLIT}", f"train.seeds={list(SEEDS[:splits])}"]
        own = configure(str(partition), [*overrides, *(WITHOUT_GRAPH if self.row.dataset == NO_GRAPH else ())], {})
        if method != "nodeformer":
            return usual_config(own, method, standardize=needs_scaling(store.manifest))
        return configure(own, [])

    def _tune(self, base: Path, minutes: float) -> float:
        """Search for so many minutes by the clock; how many of them a core was at work."""
        words = ["tune", str(base), "--out", str(self.folder / "study"), "--trials", str(MANY), "--json"]
        command = [sys.executable, "-m", "nfdist", *words, "--hours", str(minutes / 60)]
        log = self.workshop.work / "logs" / f"search-{self.row.id}"
        printed = self.workshop.children.run(command, environment(dict(os.environ)), log)
        return float(json.loads(printed.strip().splitlines()[-1])["core_seconds"]) / 60

    def _write(self, minutes: float) -> str:
        """The configuration of the best trial, as launch/tuned has it."""
        best = self.folder / "study" / "best.toml"
        found = settings.load(best)
        found = replace(
            found,
            data=replace(found.data, partition=f"partitions/{self.row.recipe}"),
            train=replace(found.train, seeds=SEEDS),
            run=Config().run,
        )
        trials = (self.folder / "study" / "trials.csv").read_text().splitlines()[1:]
        counts = {state: sum(f",{state}," in line for line in trials) for state in ("complete", "pruned", "failed")}
        tried = ", ".join(f"{count} {state}" for state, count in counts.items())
        first = best.read_text().splitlines()[0].removeprefix("# ")
        before = _number(self._before)
        later = f", the last {minutes - before:g} from what was found before" if before else ""
        head = f"# {self.row.method}: {minutes:g} {UNIT}{later}, trials: {tried}.\n# {first}"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, f"{head}\n{shown(found)}")
        return f"{self.row.id}: {first} ({tried})"


def _number(path: Path, otherwise: float = 0.0) -> float:
    return float(json.loads(path.read_text())) if path.exists() else otherwise


def shown(config: Config) -> str:
    """The settings that are not as by default."""
    sections: dict[str, list[str]] = {}
    for name, field in each_setting(Config):
        value: Any = attrgetter(name)(config)
        if value != field.default and name != "observe.port":
            section, _, key = name.rpartition(".")
            sections.setdefault(section, []).append(f"{key} = {settings.emit(value)}")
    return "".join(f"\n[{section}]\n" + "".join(f"{line}\n" for line in lines) for section, lines in sections.items())


def searches(workshop: Workshop, patterns: Sequence[str]) -> Iterator[Search]:
    for row in tuned_rows():
        if not patterns or any(fnmatchcase(row.id, pattern) for pattern in patterns):
            yield Search(workshop, row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of one core, for each search (default 10)")
    parser.add_argument("--jobs", type=int, default=2, help="searches side by side (default 2)")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN", help='ids of rows, such as "cora-*"')
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "paper", help="for partitions, studies and logs")
    options = parser.parse_args()
    if not os.environ.get("NFDIST_DATA"):
        say("NFDIST_DATA is not set: name the folder that has cora.npz and the other datasets")
        return 2
    workshop = Workshop(options.work.absolute(), results_folder(False))
    here = [one for one in searches(workshop, options.only) if located_source(one.row) is not None]
    wanted = [one for one in here if not one.is_done(options.minutes)]
    say(
        f"{len(wanted)} searches of {options.minutes:g} minutes for {TUNED.relative_to(ROOT)}, {options.jobs} at a time"
    )
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            for one in [pool.submit(search.run, options.minutes) for search in wanted]:
                try:
                    say(one.result())
                except RowError as error:
                    failed += 1
                    say(f"failed, {error}")
        except KeyboardInterrupt:
            workshop.children.stop()
            pool.shutdown(cancel_futures=True)
            return 130
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
