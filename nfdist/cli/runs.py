"""nfdist runs: the runs of a folder in a table, what was written last first."""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from nfdist.memory import format_bytes
from nfdist.runs.overview import RunFacts, runs_below

LOADS = ()
EXAMPLES = (
    ("nfdist runs", "the runs below this folder"),
    ("nfdist runs runs/cora-compare", "those of a comparison, one for each model"),
    ("nfdist runs /data/runs --json", "all facts as one line, for scripts"),
)
_COLUMNS = ("state", "model", "graph", "epoch", "valid", "test", "age", "size", "run")
_RIGHT = ("epoch", "valid", "test", "age", "size")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", nargs="?", default=".", help="where to look (default: here)")
    parser.add_argument("--json", action="store_true", help="print everything as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    top = Path(options.directory)
    found, now = runs_below(top), time.time()
    print(describe(top, found, now))
    if options.json:
        print(json.dumps({"directory": str(top), "runs": [facts.as_dict(now) for facts in found]}))
    return 0


def describe(top: Path, found: Sequence[RunFacts], now: float) -> str:
    """The runs as a table, and under a run what is wrong with it or who else is at work in it."""
    if not found:
        return f"{top}: no runs"
    rows = [_row(top, facts, now) for facts in found]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in _COLUMNS[:-1]}
    lines = [_line(dict(zip(_COLUMNS, _COLUMNS, strict=True)), widths)]
    for facts, row in zip(found, rows, strict=True):
        lines.append(_line(row, widths))
        lines += [f"    {note}" for note in ([facts.problem] if facts.problem else [])]
        lines += [f"    being {deed}" for deed in facts.at_work if not deed.startswith("trained")]
    return "\n".join(lines)


def _row(top: Path, facts: RunFacts, now: float) -> dict[str, str]:
    epoch = "-" if facts.epochs is None else f"{facts.epoch or 0}/{facts.epochs}"
    if facts.seeds > 1 and facts.epochs is not None:
        epoch += f" seed {min(facts.seeds_done + 1, facts.seeds)}/{facts.seeds}"
    metric = f" {facts.metric}" if facts.metric and facts.valid is not None else ""
    return {
        "state": facts.state,
        "model": facts.model or "-",
        "graph": Path(facts.graph).name or "-",
        "epoch": epoch,
        "valid": f"{_score(facts.valid)}{metric}",
        "test": _score(facts.test),
        "age": age_text(now - facts.written) if facts.written else "-",
        "size": format_bytes(facts.size_bytes),
        "run": str(facts.path.relative_to(top)) if facts.path != top else str(facts.path),
    }


def _line(row: dict[str, str], widths: dict[str, int]) -> str:
    cells = [f"{row[name]:>{width}}" if name in _RIGHT else f"{row[name]:{width}}" for name, width in widths.items()]
    return "  ".join([*cells, row["run"]])


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def age_text(seconds: float) -> str:
    """How long ago something was, in its largest unit; a clock that goes ahead makes that now."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"
