"""nfdist compare: the baselines and NodeFormer on one graph, split and seeds, resumable."""

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from nfdist import log
from nfdist.errors import ConfigError
from nfdist.runs.ownership import owning_directory
from nfdist.signals import exit_code

if TYPE_CHECKING:
    from nfdist.tune.comparison import Row

LOADS = ("nfdist.tune.comparison",)
EXAMPLES = (
    ("nfdist compare cora-partition", "every model with its usual settings"),
    ("nfdist compare cora.toml --models nodeformer,mlp,gcn train.seeds=[0,1,2]", "three models, three seeds each"),
    ("nfdist compare cora-partition --out runs/cora-compare --json", "the rows as one line, for scripts"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="CONFIG.toml|PARTITION", help="the graph, split and seeds, and its own model's settings"
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings that all models have")
    parser.add_argument("--models", metavar="NAMES", help="such as nodeformer,mlp,gcn (default: all)")
    parser.add_argument(
        "--out", metavar="DIR", help="the folder of the runs (default: run.dir with -compare behind it)"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    from nfdist.api import configure
    from nfdist.rendezvous import Place, choose_device
    from nfdist.tune.comparison import check_models, check_runs, compare, configurations, write_comparison

    if Place.read(os.environ).size > 1:
        raise ConfigError("nfdist compare runs alone: leave torchrun away, or train each model with nfdist train")
    names = check_models(options.models)
    if any(override.partition("=")[0].strip() == "model.name" for override in options.overrides):
        raise ConfigError("model.name cannot be overridden in a comparison: choose models with --models")
    base = configure(options.config, options.overrides)
    if base.run.mirror:
        raise ConfigError(f"run.mirror = {base.run.mirror} is for one run, and these are several: leave it out")
    if base.train.evaluate_every == 0:
        raise ConfigError("train.evaluate_every is 0, and models are ranked by validation scores: set it to 1")
    out = Path(options.out or f"{base.run.dir}-compare")
    device = choose_device(base.run.device, Place())
    configs = configurations(base, names, options.overrides, out)
    with ExitStack() as stack:
        stack.enter_context(owning_directory(out, "compare", "compared"))
        check_runs(configs)
        rows, stopped = compare(configs, device, lambda row: log.notice(_line(row)))
        write_comparison(rows, out)
    print(describe(out, rows))
    if stopped is not None:
        return exit_code(stopped)
    if options.json:
        print(json.dumps({"out": str(out), "rows": [asdict(row) for row in rows]}))
    return 0


def describe(out: Path, rows: "Sequence[Row]") -> str:
    """The rows as a table, the best validation score of answers first."""
    if not rows:
        return f"{out}: no model was trained to its end yet"
    metric = next((row.metric for row in rows if row.metric), "")
    smoothed = any(row.smoothed_valid is not None for row in rows)
    columns = f"{'test':>18}{'valid':>10}{'smoothed test':>15}{'valid':>10}{'seconds':>10}{'parameters':>12}"
    head = f"  {'model':12}{columns}"
    by = "by the validation score of smoothed answers" if smoothed else "by validation score"
    return "\n".join([f"{out}: {metric}, {by}", head, *(f"  {_line(row)}" for row in rows)])


def _line(row: "Row") -> str:
    if row.valid is None or row.seconds is None or row.parameters is None:
        return f"{row.model:12}not trained: {row.reason}"
    test = "-" if row.test is None else f"{row.test:.4f}"
    test += "" if row.test_std is None else f" ± {row.test_std:.4f}"
    smoothed_test, smoothed_valid = (
        "-" if score is None else f"{score:.4f}" for score in (row.smoothed_test, row.smoothed_valid)
    )
    costs = f"{row.seconds:>10.1f}{row.parameters:>12,}" + row.one_class * "  answers one class alone"
    return f"{row.model:12}{test:>18}{row.valid:>10.4f}{smoothed_test:>15}{smoothed_valid:>10}{costs}"
