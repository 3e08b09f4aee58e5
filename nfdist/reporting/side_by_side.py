"""The sections of a page of several runs: a table, curves over each other, and what differs between them."""

import math
from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from nfdist.reporting import charts
from nfdist.reporting.course import Points, SeedCourse
from nfdist.reporting.markup import Section, card, code, note, table
from nfdist.reporting.run_facts import RunFacts
from nfdist.reporting.words import amount, duration, number, score

MOST_COLORS = len(charts.COLORS)


def compared_sections(facts: Sequence[RunFacts]) -> list[Section]:
    """Everything that is told of several runs."""
    names = run_names(facts)
    return [
        Section("table", "Scores", "Side by side", _table(facts, names)),
        Section("curves", "Curves", "Curves", _curves(facts, names)),
        Section("costs", "Costs", "Costs", _costs(facts, names)),
        Section("settings", "Settings", "Settings that differ", _settings(facts, names)),
        Section("commands", "Commands", "The commands that repeat them", _commands(facts, names)),
    ]


def run_names(facts: Sequence[RunFacts]) -> list[str]:
    """What each run is called: its folder, with those above it where two have the same."""
    paths = [one.run.path.absolute() for one in facts]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def tests_of(one: RunFacts, smoothed: bool) -> list[float]:
    """The test score of each seed's best epoch, raw or smoothed."""
    entries = [seed.smoothed if smoothed else seed.best for seed in one.course.seeds]
    return [float(entry["test"]) for entry in entries if entry and entry["test"] is not None]


def mean_and_deviation(values: Sequence[float]) -> str:
    """As in 0.8123 ± 0.0045."""
    if not values:
        return "–"
    return score(float(np.mean(values))) + (f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else "")


def _table(facts: Sequence[RunFacts], names: Sequence[str]) -> str:
    heads = ["run", "model", "score", "test", "test, smoothed", "valid", "seeds", "epochs", "time", "peak memory"]
    rows = []
    for one, name in zip(facts, names, strict=True):
        course = one.course
        valids = [float(seed.best["valid"]) for seed in course.seeds if seed.best and seed.best["valid"] is not None]
        epochs = ", ".join(str(seed.epoch) for seed in course.seeds) or "0"
        rows.append(
            [
                *(name, one.run.config.model.name, course.metric),
                *(
                    mean_and_deviation(tests_of(one, False)),
                    mean_and_deviation(tests_of(one, True)),
                    mean_and_deviation(valids),
                ),
                *(str(len(course.seeds)), epochs if course.finished else f"{epochs}, not finished"),
                *(duration(sum(course.seconds.values())), amount(course.peak_memory_bytes)),
            ]
        )
    words = "Scores are means over the seeds, with their standard deviation, at each seed's best epoch by validation."
    found = [card("", table(heads, rows, numeric=(3, 4, 5, 6, 8, 9)) + note(words), wide=True)]
    metrics = {one.course.metric for one in facts if one.course.seeds}
    graphs = {one.run.config.data.partition for one in facts}
    for what, differing in (("scores", metrics), ("graphs", graphs)):
        if len(differing) > 1:
            found.append(note(f"These runs have different {what}, {', '.join(sorted(differing))}: compare with care."))
    found += [
        note(f"{name}: {one.absent['result']}")
        for one, name in zip(facts, names, strict=True)
        if "result" in one.absent
    ]
    return "".join(found)


def _overlaid(facts: Sequence[RunFacts], names: Sequence[str], which: str, across: str, label: str) -> str:
    """One curve a seed, all seeds of a run in one color."""

    def points(seed: SeedCourse) -> Points:
        return seed.steps["loss"] if which == "loss" else seed.scores[which]

    series = [
        charts.Series(name, points(seed), _color(place), whose=f", seed {seed.seed}")
        for place, (one, name) in enumerate(zip(facts, names, strict=True))
        for seed in one.course.seeds
    ]
    if not any(one.points for one in series):
        return note("None of the runs has any.")
    return charts.lines(series, across, label)


def _curves(facts: Sequence[RunFacts], names: Sequence[str]) -> str:
    found = [card("Loss of the training steps", _overlaid(facts, names, "loss", "step", "loss by step"))]
    for split in ("valid", "test"):
        label = f"{split} score by epoch"
        found.append(card(f"Score of the {split} nodes, raw", _overlaid(facts, names, split, "epoch", label)))
    rows = []
    for place, (one, name) in enumerate(zip(facts, names, strict=True)):
        tests = tests_of(one, False)
        if tests and math.isfinite(sum(tests)):
            rows.append((name, float(np.mean(tests)), mean_and_deviation(tests), _color(place)))
    if rows:
        found.append(card("Test score at the best epoch, raw", charts.bars(rows, "test score of each run")))
    return "".join(found)


def _costs(facts: Sequence[RunFacts], names: Sequence[str]) -> str:
    pairs = list(zip(facts, names, strict=True))
    seconds = [
        (name, spent, duration(spent), _color(place))
        for place, (one, name) in enumerate(pairs)
        if (spent := sum(one.course.seconds.values()))
    ]
    peaks = [
        (name, float(peak), amount(peak), _color(place))
        for place, (one, name) in enumerate(pairs)
        if (peak := one.course.peak_memory_bytes)
    ]
    flows = [
        (name, flow, number(flow), _color(place))
        for place, (one, name) in enumerate(pairs)
        if (flow := one.course.nodes_per_second)
    ]
    shown = (("Time of the training", seconds), ("Peak memory of a worker", peaks), ("Nodes a second", flows))
    return "".join(card(title, charts.bars(rows, title)) for title, rows in shown if rows)


def _settings(facts: Sequence[RunFacts], names: Sequence[str]) -> str:
    by_name = [{one.name: one.value for one in run.provenance.settings} for run in facts]
    differing = [name for name in by_name[0] if len({values[name] for values in by_name}) > 1]
    rows = [[name, *(values[name] for values in by_name)] for name in sorted(differing)]
    if not rows:
        return card("", note("The runs have the same settings."), wide=True)
    return card("", table(["setting", *names], rows, mono=range(len(names) + 1)), wide=True)


def _commands(facts: Sequence[RunFacts], names: Sequence[str]) -> str:
    commands = map(attrgetter("provenance.command"), facts)
    return "".join(card(name, code(command), wide=True) for name, command in zip(names, commands, strict=True))


def _color(place: int) -> str:
    return charts.COLORS[place % MOST_COLORS]
