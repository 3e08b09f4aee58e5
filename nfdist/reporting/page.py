"""The page of one run, or of several side by side, as a file."""

import os
from collections.abc import Sequence
from pathlib import Path

from nfdist import files
from nfdist.errors import CheckpointError, ConfigError
from nfdist.model.loading import run_directory
from nfdist.remote import refuse_uri
from nfdist.reporting.markup import page
from nfdist.reporting.run_facts import RunFacts, gather, gather_course
from nfdist.reporting.sections import sections, tiles
from nfdist.reporting.side_by_side import compared_sections
from nfdist.runs.run import Run

REPORT_FILE = "report.html"


def write_report(
    runs: Sequence[Path | str], out: Path | str | None = None, partition: Path | str | None = None
) -> tuple[Path, list[RunFacts]]:
    """Write a page, by default into the run, of several runs into the folder above them; its place and its facts."""
    paths = [run_directory(run) for run in runs]
    if not paths:
        raise ConfigError("a report needs a run: give a RUN_DIR")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a run is given twice: name each once")
    if partition is not None and len(paths) > 1:
        raise ConfigError("--partition is for the report of one run: several are compared without their graph")
    for path in paths:
        Run.open(path)
    place = _place(paths, out)
    if len(paths) == 1:
        facts = [gather(paths[0], partition)]
        content = one_run(facts[0])
    else:
        facts = [gather_course(path) for path in paths]
        content = several_runs(facts)
    with files.disk_errors_as(CheckpointError, place):
        files.replace_file(place, content)
    return place, facts


def one_run(facts: RunFacts) -> str:
    """The page of a run."""
    config = facts.run.config
    under = f"{config.model.name} on {config.data.partition or 'a graph'}, in {facts.run.path}"
    return page(facts.name, under, tiles(facts), sections(facts))


def several_runs(facts: Sequence[RunFacts]) -> str:
    """The page of several runs."""
    under = ", ".join(str(one.run.path) for one in facts)
    return page(f"{len(facts)} runs", under, "", compared_sections(facts))


def _place(paths: Sequence[Path], out: Path | str | None) -> Path:
    if out is not None:
        refuse_uri("--out", out, "name a file here, and copy it there")
        place = Path(out)
    else:
        place = (paths[0] if len(paths) == 1 else _common_folder(paths)) / REPORT_FILE
    if place.is_dir() or not place.name:
        raise ConfigError(f"--out {place} is a directory: name a file in it")
    if not place.parent.is_dir():
        raise ConfigError(f"--out {place} would be in a folder that is not there: make it, or name another file")
    if place.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {place} would be a page by another name: name it {place.stem}.html")
    return place


def _common_folder(paths: Sequence[Path]) -> Path:
    """The folder that all runs are in."""
    return Path(os.path.commonpath([path.absolute().parent for path in paths]))
