"""The paper's figures from result files and trained runs; what has no input yet is left out with a line.

python benchmarks/paper/figures.py [--work DIR] [--results DIR] [--out DIR]
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from experiments import FEATURES, NAMES, ROOT, TEMPERATURES, experiments
from matplotlib.figure import Figure
from pictures import EvaluatedRun, draw_embeddings, draw_structure, evaluated_run
from results import Result, read_result, run_folder
from table import FIGURES, SCALING_FILE, results_folder

TRANSDUCTIVE = ("cora", "citeseer", "deezer-europe", "actor")


class MissingInputError(Exception):
    """What a figure is made of is not there yet."""


def draw_transductive(results: Path) -> Figure:
    """Bars of every method on every dataset, with deviations."""
    found = _means(results, ("nodeformer", "best", "baseline", "structure"), TRANSDUCTIVE)
    methods = list(dict.fromkeys(method for _, method in found))
    if len(methods) < 2:
        raise MissingInputError("result files of NodeFormer and baselines")
    figure, panels = plt.subplots(1, len(TRANSDUCTIVE), figsize=(14, 3.2), constrained_layout=True)
    for panel, dataset in zip(panels, TRANSDUCTIVE, strict=True):
        shown = [(method, found[dataset, method]) for method in methods if (dataset, method) in found]
        for place, (method, result) in enumerate(shown):
            color = "C3" if method.startswith("NodeFormer") else "C0"
            panel.bar(place, result.mean, yerr=result.deviation or 0, color=color, capsize=2)
        panel.set_xticks(range(len(shown)), [method for method, _ in shown], rotation=60, ha="right", fontsize=8)
        means = [result.mean for _, result in shown]
        if means:
            margin = max(2.0, 0.3 * (max(means) - min(means)))
            panel.set_ylim(min(means) - margin, max(means) + margin)
            panel.set_ylabel("ROC-AUC, %" if shown[0][1].metric == "roc_auc" else "accuracy, %")
        panel.set_title(NAMES[dataset])
    return figure


def draw_grid(results: Path) -> Figure:
    """A curve over the numbers of random features for each temperature."""
    figure, panel = plt.subplots(figsize=(5.5, 3.6), constrained_layout=True)
    curves = 0
    for temperature in TEMPERATURES:
        known = [(m, read_result(results, f"grid-tau{temperature}-m{m}")) for m in FEATURES]
        points = [(m, result.mean) for m, result in known if result is not None and not result.failed]
        if points:
            panel.plot(*zip(*points, strict=True), marker="o", label=f"temperature {temperature}")
            curves += 1
    if not curves:
        raise MissingInputError("result files of the grid")
    panel.set_xlabel("random features")
    panel.set_ylabel("accuracy on Cora, %")
    panel.legend(fontsize=8)
    return figure


def draw_scaling(results: Path) -> Figure:
    """Time and memory of an epoch against the number of nodes, a curve a method."""
    path = results / SCALING_FILE
    if not path.exists():
        raise MissingInputError(f"{SCALING_FILE}, which benchmarks/paper/scaling.py --out writes")
    curves = scaling_curves(json.loads(path.read_text()))
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
    for panel, key, label, unit in (
        (panels[0], "seconds", "seconds an epoch", 1),
        (panels[1], "peak_bytes", "growth of peak memory, GiB", 2**30),
    ):
        for method, points in curves.items():
            sizes = [point["nodes"] for point in points]
            panel.plot(sizes, [point[key] / unit for point in points], marker="o", label=method)
        panel.set_xlabel("nodes")
        panel.set_ylabel(label)
        panel.set_xscale("log")
        panel.set_yscale("log")
    panels[0].legend(fontsize=8)
    return figure


def scaling_curves(content: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The measured points of each method, by size."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for point in sorted(content["points"], key=lambda point: point["nodes"]):
        curves.setdefault(point["method"], []).append(point)
    return curves


def _means(results: Path, groups: tuple[str, ...], datasets: tuple[str, ...]) -> dict[tuple[str, str], Result]:
    """Results by dataset and method."""
    found = {}
    for row in experiments():
        result = read_result(results, row.id) if row.group in groups and row.dataset in datasets else None
        if result is not None and not result.failed:
            found[row.dataset, row.method] = result
    return found


def _picture(draw: Callable[[EvaluatedRun], Figure], row_id: str, results: Path, work: Path, count: int) -> Figure:
    """A picture of a trained run, which is evaluated first."""
    result = read_result(results, row_id)
    run = None if result is None else run_folder(work, row_id, result.digest)
    if run is None or not (run / "result.json").exists():
        raise MissingInputError(f"the run of {row_id} in {work}")
    return draw(evaluated_run(run, count))


def drawings(results: Path, work: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn, by the name of its file."""
    return {
        "transductive.svg": lambda: draw_transductive(results),
        "grid.svg": lambda: draw_grid(results),
        "scaling.svg": lambda: draw_scaling(results),
        "embeddings-20news.png": lambda: _picture(draw_embeddings, "20news-k5", results, work, 20),
        "embeddings-digits.png": lambda: _picture(draw_embeddings, "digits-k5", results, work, 20),
        **{f"structure-{name}.png": partial(_picture, draw_structure, name, results, work, 0) for name in TRANSDUCTIVE},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "paper", help="where run.py left its runs")
    parser.add_argument("--results", type=Path, default=results_folder(quick=False))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "figures")
    options = parser.parse_args()
    plt.switch_backend("agg")
    matplotlib.rcParams["svg.hashsalt"] = "nfdist"  # the same figure is the same file
    options.out.mkdir(parents=True, exist_ok=True)
    draw = drawings(options.results, options.work.absolute())
    for name in FIGURES:
        try:
            figure = draw[name]()
        except MissingInputError as missing:
            print(f"{name}: left out, it needs {missing}", file=sys.stderr)
            continue
        figure.savefig(options.out / name, dpi=90, metadata={"Date": None} if name.endswith(".svg") else None)
        plt.close(figure)
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
