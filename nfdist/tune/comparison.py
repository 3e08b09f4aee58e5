"""Models side by side on one graph, split and seeds, each in a run directory of its own."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from signal import Signals
from typing import Any

import torch

from nfdist import files, log
from nfdist.config import Config
from nfdist.errors import CheckpointError, ConfigError, NfdistError, PartitionError, WorldError
from nfdist.memory import is_shortage
from nfdist.model.build import MODELS, build_model, model_class
from nfdist.rendezvous import Place
from nfdist.runs.ranking import rank
from nfdist.runs.run import Run
from nfdist.store.store import Store
from nfdist.svg import ACCENT, GRID, PALE, Drawing, Scale
from nfdist.training.job import OWN_TO_HOST, flat, train
from nfdist.tune.search import first_line
from nfdist.tune.usual import needs_scaling, usual_config
from nfdist.world import World

TABLE_FILE, PICTURE_FILE = "compare.csv", "compare.svg"
MAY_DIFFER = (*OWN_TO_HOST, "run.timeout_seconds", "run.device")


@dataclass(frozen=True)
class Row:
    """What a model came to: mean and deviation over the seeds at each seed's best validation score, or the `reason`.

    Smoothed scores are those of the same epochs, with the training labels nearby taken into account.
    """

    model: str
    metric: str = ""
    valid: float | None = None
    test: float | None = None
    test_std: float | None = None
    smoothed_valid: float | None = None
    smoothed_test: float | None = None
    seconds: float | None = None
    parameters: int | None = None
    larger_is_better: bool = True
    reason: str = ""
    one_class: bool = False  # is all that its best epoch answers, for some seed

    @property
    def answer(self) -> dict[str, Any]:
        """The validation score of what an evaluation answers, as scores are ranked."""
        valid = self.valid if self.smoothed_valid is None else self.smoothed_valid
        return {"valid": valid, "larger_is_better": self.larger_is_better}


def configurations(base: Config, names: Sequence[str], overrides: Sequence[str], out: Path) -> dict[str, Config]:
    """The settings of every model: those of `base` for its own model, else its usual ones, with overrides on top."""
    found, scaled = {}, needs_scaling(Store.open(base.data.partition).manifest)
    for name in names:
        model_class(name)
        config = base if name == base.model.name else usual_config(base, name, overrides, standardize=scaled)
        place = replace(config.run, dir=str(out / name))
        found[name] = replace(config, run=place, observe=replace(config.observe, port=0))
    return found


def check_runs(configs: Mapping[str, Config]) -> None:
    """Refuse a run directory that holds a training with other settings, before anything is trained."""
    for config in configs.values():
        path = Path(config.run.dir)
        if not Run.holds_run(path):
            continue
        before, now = flat(Run.open(path).config), flat(config)
        for name, value in now.items():
            if name not in MAY_DIFFER and before[name] != value:
                raise CheckpointError(
                    f"{path} holds a run with {name} = {before[name]}, not {value}: choose another --out, or remove it"
                )


def compare(
    configs: Mapping[str, Config], device: torch.device, told: Callable[[Row], None]
) -> tuple[list[Row], Signals | None]:
    """Train every model, or take the run that is there; the rows in the order of validation scores.

    A model that cannot be trained has a row with the reason. `told` gets every row as it comes.
    """
    rows: list[Row] = []
    for name, config in configs.items():
        row, stopped = _row(name, config, device)
        if stopped is not None:
            return _ranked(rows), stopped
        assert row is not None
        rows.append(row)
        told(row)
    return _ranked(rows), None


def write_comparison(rows: Sequence[Row], out: Path) -> None:
    """The table and the picture, from any rows that have a score."""
    with files.disk_errors_as(CheckpointError, out):
        out.mkdir(parents=True, exist_ok=True)
        files.replace_file(out / TABLE_FILE, _table(rows))
        if any(row.valid is not None for row in rows):
            files.replace_file(out / PICTURE_FILE, _picture(rows))


def _row(name: str, config: Config, device: torch.device) -> tuple[Row | None, Signals | None]:
    result, stopped = _finished(config), None
    try:
        if result is None:
            log.notice(f"{name}:")
            result, stopped = train(config, Place(), World(), device, True, goes_on="the same command goes on")
    except (PartitionError, WorldError, CheckpointError):
        raise
    except (NfdistError, MemoryError, RuntimeError) as error:
        if not isinstance(error, NfdistError) and not is_shortage(error):
            raise
        return Row(name, reason=first_line(error)), None
    if result is None:
        return None, stopped
    bests = [seed["best"] for seed in result["per_seed"] if seed["best"]]
    valids = [best["valid"] for best in bests if best["valid"] is not None]
    if len(valids) < len(result["per_seed"]):
        raise ConfigError(
            f"no labeled nodes to validate on, or {result['metric']} is undefined there, so there is nothing to rank "
            "by: give data.split, such as random:0.5/0.25/0.25, or another evaluate.metric"
        )
    smoothed = [seed["smoothed"]["valid"] for seed in result["per_seed"] if seed.get("smoothed")]
    store = Store.open(config.data.partition)
    model = build_model(config, store.num_features, store.num_classes, num_nodes=store.num_nodes)
    row = Row(
        name,
        result["metric"],
        statistics.fmean(valids),
        result["test_mean"],
        result["test_std"],
        statistics.fmean(smoothed) if len(smoothed) == len(valids) else None,
        result["smoothed_test_mean"],
        sum(result["seconds"][phase] for phase in ("train", "evaluate", "checkpoint")),
        sum(parameter.numel() for parameter in model.parameters()),
        all(best.get("larger_is_better", True) for best in bests),
        one_class=any(best.get("predicted_classes") == 1 for best in bests),
    )
    return row, None


def _finished(config: Config) -> dict[str, Any] | None:
    """The result of a run that is there and came to its end, on this graph; its settings were compared before."""
    path = Path(config.run.dir)
    run = Run.open(path) if Run.holds_run(path) else None
    result = run.result() if run is not None else None
    last = run.last_checkpoint(config.train.seeds) if run is not None and result is not None else None
    if last is None or last.state["partition"] != Store.open(config.data.partition).fingerprint():
        return None  # a training that goes on says what is wrong
    return result


def _ranked(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -rank(row.answer) if row.valid is not None else math.inf)


def _table(rows: Sequence[Row]) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    names = [name for name in asdict(Row("")) if name != "larger_is_better"]
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if (cell := getattr(row, name)) is None else cell for name in names])
    return written.getvalue()


def _picture(rows: Sequence[Row]) -> str:
    """A line a model: the mean test score with its deviation, and the validation score as a hollow dot."""
    scored = [row for row in rows if row.valid is not None]
    drawing = Drawing(720, 100 + 30 * len(scored))
    ends = [row.test + side * (row.test_std or 0.0) for row in scored if row.test is not None for side in (-1, 1)]
    across = Scale.around([*ends, *(row.valid for row in scored if row.valid is not None)], 140, 690)
    drawing.text(20, 28, f"{scored[0].metric}: test (filled, ± deviation over seeds) and validation (hollow)", size=14)
    bottom = 56 + 30 * len(scored)
    for tick in across.ticks():
        drawing.line(across.place(tick), 44, across.place(tick), bottom, GRID)
        drawing.text(across.place(tick), bottom + 18, f"{tick:.4g}", "middle", PALE)
    for place, row in enumerate(scored):
        y = 62 + 30 * place
        drawing.text(124, y + 4, row.model, "end")
        if row.valid is not None:
            drawing.dot(across.place(row.valid), y, PALE, filled=False)
        if row.test is not None:
            spread = row.test_std or 0.0
            drawing.line(across.place(row.test - spread), y, across.place(row.test + spread), y, ACCENT, 2)
            drawing.dot(across.place(row.test), y)
    return drawing.render()


def check_models(text: str | None) -> list[str]:
    """The models of `--models mlp,gcn`; all of them without it."""
    names = list(MODELS) if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        model_class(name)
    if len(set(names)) < len(names):
        raise ConfigError(f"--models names a model twice: {text}")
    return names
