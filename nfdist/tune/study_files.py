"""What a study leaves behind: best.toml, trials.csv, and a picture of what mattered."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nfdist import files, settings
from nfdist.config import Config
from nfdist.errors import CheckpointError
from nfdist.svg import ACCENT, GRID, PALE, Drawing, Scale
from nfdist.tune.search_space import with_values
from nfdist.tune.study import Study, Trial

BEST_FILE, TRIALS_FILE, PICTURE_FILE = "best.toml", "trials.csv", "importance.svg"


def write_outputs(study: Study, config: Config) -> dict[str, Any]:
    """Write all of them, and sum up the study; without a trial that has a score there is nothing to write but trials.

    `config` is that of the command, with the user's own port and paths.
    """
    trials, best = study.trials(), study.best()
    counts = {state: sum(1 for one in trials if one.state == state) for state in ("complete", "pruned", "failed")}
    summary: dict[str, Any] = {
        "out": str(study.folder),
        "metric": study.purpose.metric,
        "trials": counts,
        "best": None,
        "importances": {},
    }
    with files.disk_errors_as(CheckpointError, study.folder):
        files.replace_file(study.folder / TRIALS_FILE, _trials_table(trials, list(study.purpose.space)))
        if best is None:
            return summary
        importances = study.importances()
        files.replace_file(study.folder / PICTURE_FILE, _picture(study, importances))
        files.replace_file(study.folder / BEST_FILE, _best_toml(study, best, config))
    summary["best"] = {"trial": best.number, "valid": best.score, "settings": dict(best.values)}
    summary["importances"] = importances
    return summary


def _best_toml(study: Study, best: Trial, config: Config) -> str:
    """A whole configuration, to be trained in a run directory of its own."""
    found = with_values(config, best.values)
    found = replace(found, run=replace(found.run, dir=str(study.folder / "best"), mirror=""))
    seeds = ", ".join(map(str, config.train.seeds))
    head = f"# Trial {best.number}: validation {study.purpose.metric} {best.score:.4f}, the mean of seeds {seeds}."
    return f"{head}\n\n{settings.dump(found)}"


def _trials_table(trials: Sequence[Trial], names: Sequence[str]) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["trial", "state", "valid", "last_valid", "seconds", *names, "reason"])
    for one in trials:
        values = [one.values.get(name, "") for name in names]
        facts = [one.number, one.state, one.score, one.last, one.seconds]
        writer.writerow(["" if cell is None else cell for cell in (*facts, *values, one.reason)])
    return written.getvalue()


def _picture(study: Study, importances: Mapping[str, float]) -> str:
    """Importances on the left, scores in the order of trials on the right."""
    rows = max(len(importances), 8)
    drawing = Drawing(960, 90 + 24 * rows)
    _draw_importances(drawing, importances)
    _draw_course(drawing, study)
    return drawing.render()


def _draw_importances(drawing: Drawing, importances: Mapping[str, float]) -> None:
    drawing.text(20, 28, "What mattered: share of the variance of validation scores", size=14)
    if not importances:
        drawing.text(20, 60, "too few trials to tell", color=PALE)
    for row, (name, share) in enumerate(importances.items()):
        y = 56 + 24 * row
        drawing.text(200, y + 4, name, "end")
        drawing.bar(210, y - 8, 190 * share, 16)
        drawing.text(216 + 190 * share, y + 4, f"{100 * share:.0f} %", color=PALE)


def _draw_course(drawing: Drawing, study: Study) -> None:
    drawing.text(500, 28, f"Validation {study.purpose.metric} of the trials, and the best so far", size=14)
    trials = [(one, one.score if one.score is not None else one.last) for one in study.trials()]
    known = [(one, score) for one, score in trials if score is not None and one.state in ("complete", "pruned")]
    bottom = drawing.height - 40
    across = Scale(0, max(max(one.number for one, _ in known), 1), 560, 930)
    up = Scale.around([score for _, score in known], bottom, 50)
    for tick in up.ticks():
        drawing.line(550, up.place(tick), 940, up.place(tick), GRID)
        drawing.text(544, up.place(tick) + 4, f"{tick:.4g}", "end", PALE)
    drawing.text(745, bottom + 28, "trial (hollow: pruned)", "middle", PALE)
    better = max if study.purpose.larger_is_better else min
    best: float | None = None
    steps: list[tuple[float, float]] = []
    for one, score in known:
        x = across.place(one.number)
        drawing.dot(x, up.place(score), PALE if one.state == "pruned" else ACCENT, one.state == "complete")
        if one.state == "complete":
            steps += [(x, up.place(best))] if best is not None else []
            best = score if best is None else better(best, score)
            steps.append((x, up.place(best)))
    drawing.path(steps)
