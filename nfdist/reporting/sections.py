"""The sections of the page of one run: what its facts are, in charts, tables and sentences."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nfdist.reporting import charts
from nfdist.reporting.course import SPLITS, Course
from nfdist.reporting.explanations import answers_section, attention_section, map_section, mistakes_section
from nfdist.reporting.markup import Section, card, code, details, note, table, tile
from nfdist.reporting.run_facts import RunFacts
from nfdist.reporting.words import amount, counted, duration, number, percent, score

SPLIT_COLORS = dict(zip(SPLITS, (charts.COLORS[1], charts.COLORS[0], charts.COLORS[2]), strict=True))


def sections(facts: RunFacts) -> list[Section]:
    """Everything that is told of one run."""
    makers: tuple[tuple[str, str, Callable[[RunFacts], str]], ...] = (
        ("Scores", "Scores", _scores),
        ("Training", "Training", _training),
        ("Costs", "Time, memory and throughput", _cost),
        ("Answers", "Answers by class", answers_section),
        ("Mistakes", "Surest mistakes", mistakes_section),
        ("Map", "Map of embeddings", map_section),
        ("Attention", "Attention, the input graph and the classes", attention_section),
        ("Partition", "Partition", _partition),
        ("Settings", "Settings, versions, and the same again", _provenance),
    )
    return [Section(short.lower(), short, title, make(facts)) for short, title, make in makers]


def tiles(facts: RunFacts) -> str:
    """The few numbers to begin with."""
    course, found = facts.course, []
    bests = [one.best for one in course.seeds if one.best]
    if course.finished and bests:
        tests = [best["test"] for best in bests if best["test"] is not None]
        smoothed = [one.smoothed["test"] for one in course.seeds if one.smoothed and one.smoothed["test"] is not None]
        mean = float(np.mean(tests)) if tests else None
        seeds = f"mean of {len(tests)} seeds" if len(tests) > 1 else f"after epoch {bests[0]['epoch']}"
        found.append(tile(score(mean), f"test {course.metric}", seeds))
        if smoothed:
            found.append(tile(score(float(np.mean(smoothed))), f"test {course.metric}, smoothed", "same epoch"))
    else:
        at = max((one.epoch for one in course.seeds), default=0)
        found.append(tile(f"{at} of {facts.run.config.train.epochs}", "epochs so far", "not finished"))
    found.append(tile(duration(sum(course.seconds.values())), "training", counted(len(course.seeds), "seed")))
    if course.nodes_per_second:
        workers = counted(facts.provenance.world_size, "worker")
        found.append(tile(number(course.nodes_per_second), "nodes a second", workers))
    if course.peak_memory_bytes:
        found.append(tile(amount(course.peak_memory_bytes), "peak memory", "of one worker"))
    if facts.store is not None:
        found.append(tile(number(facts.store.num_nodes), "nodes", f"{number(facts.store.num_edges)} edges"))
    return f'<div class="tiles">{"".join(found)}</div>'


def _scores(facts: RunFacts) -> str:
    course = facts.course
    told: list[tuple[str, Mapping[str, Any]]] = []
    for one in course.seeds:
        told += [("best epoch, raw", one.best | {"seed": one.seed})] if one.best else []
        told += [("best epoch, smoothed", one.smoothed | {"seed": one.seed})] if one.smoothed else []
    outcome = facts.record.outcome if facts.record is not None else {}
    if outcome:
        at = {name: outcome.get(name) for name in ("seed", "epoch")}
        told.append(("last evaluation, raw", outcome))
        told += [("last evaluation, smoothed", outcome["smoothed"] | at)] if outcome.get("smoothed") else []
    rows = [[str(one.get("seed")), which, str(one.get("epoch")), *_three(one)] for which, one in told]
    parts = [note(facts.absent["result"])] if "result" in facts.absent else []
    if rows:
        parts.append(table(["seed", "which", "epoch", *SPLITS], rows, numeric=(2, 3, 4, 5)))
        parts.append(
            note(
                f"The score is {course.metric}. Smoothed answers take the training labels nearby into account, with "
                "strengths that validation nodes chose; scores of both kinds are never mixed."
            )
        )
    elif not facts.absent.get("result"):
        parts.append(note("There are no scores: no labeled nodes to validate on, or train.evaluate_every is 0."))
    return card("", "".join(parts), wide=True)


def _three(scores: Mapping[str, float | None]) -> list[str]:
    return [score(scores.get(split)) for split in SPLITS]


def _training(facts: RunFacts) -> str:
    course = facts.course
    if not any(one.num_steps for one in course.seeds):
        return card("", note("The training has made no step yet."), wide=True)
    found = [card("Loss of the training steps", _by_seed(course, "loss", "loss of every step"))]
    if any(one.scores[split] for one in course.seeds for split in SPLITS):
        found.append(card(f"Scores by epoch, {course.metric}", _score_lines(course)))
        losses = [
            charts.Series(split, one.losses[split], SPLIT_COLORS[split], whose=_whose(one.seed, course))
            for split in SPLITS
            for one in course.seeds
        ]
        if any(one.points for one in losses):
            found.append(card("Loss of the evaluations", charts.lines(losses, "epoch", "loss of each split by epoch")))
    else:
        words = (
            f"No evaluation is in the metrics: `nfdist evaluate {facts.run.path} --follow --until-done` scores every"
        )
        found.append(card("Scores by epoch", note(f"{words} checkpoint, or set train.evaluate_every.")))
    if any(one.steps["gradient_norm"] for one in course.seeds):
        found.append(card("Length of the gradient", _by_seed(course, "gradient_norm", "length of the gradient")))
    most = max(one.num_steps for one in course.seeds)
    if most > charts.MOST_POINTS:
        found.append(note(f"Lines of more than {charts.MOST_POINTS} points show means of equal runs of steps."))
    return "".join(found)


def _whose(seed: int, course: Course) -> str:
    return "" if len(course.seeds) == 1 else f", seed {seed}"


def _by_seed(course: Course, name: str, label: str, zero: bool = False, divisor: int = 1) -> str:
    """A line a seed, by its steps."""
    series = []
    for place, one in enumerate(course.seeds):
        points = [(step, value / divisor) for step, value in one.steps[name]]
        series.append(charts.Series(f"seed {one.seed}", points, charts.COLORS[place % len(charts.COLORS)]))
    return charts.lines(series, "step", label, zero=zero)


def _score_lines(course: Course) -> str:
    """A line a split and seed; of smoothed answers there is the best epoch alone."""
    series = []
    for split in SPLITS:
        for one in course.seeds:
            points, color = one.scores[split], SPLIT_COLORS[split]
            marks = len(points) < 30
            series.append(charts.Series(split, points, color, marks=marks, whose=_whose(one.seed, course)))
    for split in SPLITS[1:]:
        for one in course.seeds:
            if one.smoothed and one.smoothed.get(split) is not None:
                points = ((float(one.smoothed["epoch"]), float(one.smoothed[split])),)
                name, whose = f"{split}, smoothed", _whose(one.seed, course)
                series.append(charts.Series(name, points, SPLIT_COLORS[split], marks=True, alone=True, whose=whose))
    return charts.lines(series, "epoch", f"{course.metric} of each split by epoch", lambda value: f"{value:.3g}")


def _cost(facts: RunFacts) -> str:
    course, found = facts.course, []
    seconds = {phase: spent for phase, spent in course.seconds.items() if spent > 0}
    if not seconds:
        return card("", note("No time was recorded yet."), wide=True)
    total = sum(seconds.values())
    rows = [
        (phase, spent, f"{duration(spent)} ({percent(spent / total)})", charts.COLORS[place])
        for place, (phase, spent) in enumerate(seconds.items())
    ]
    found.append(card("Time by phase, of rank 0", charts.bars(rows, "seconds by phase")))
    found.append(card("Work by rank", _ranks(course)))
    flow = _by_seed(course, "nodes_per_second", "nodes a second by step", zero=True)
    found.append(card("Nodes a second", flow))
    unit, factor = ("GiB", 2**30) if course.peak_memory_bytes >= 2**30 else ("MiB", 2**20)
    peaks = _by_seed(course, "peak_memory_bytes", "peak memory of rank 0 by step", zero=True, divisor=factor)
    found.append(card(f"Peak memory of rank 0, {unit}", peaks))
    return "".join(found)


def _ranks(course: Course) -> str:
    told = []
    if course.sent_bytes:
        told.append(f"A worker sent {amount(course.sent_bytes)} a step.")
    if not course.rank_seconds:
        if course.finished:
            return note("The run is of an nfdist that did not record the time of each rank.")
        return note("The time of each rank is written when a seed ends.")
    if len(course.rank_seconds) == 1:
        return note("One worker made the whole training.")
    told.append(
        f"In a step the slowest rank worked {duration(course.straggler_gap_seconds or 0)} longer than the fastest."
    )
    rows = [
        (f"rank {rank}", spent, duration(spent), charts.COLORS[0])
        for rank, spent in enumerate(course.rank_seconds[:64])
    ]
    if len(course.rank_seconds) > 64:
        told.append("The first 64 ranks are shown.")
    return charts.bars(rows, "seconds of work by rank") + note(
        "Without what ranks wait for each other. " + " ".join(told)
    )


def _partition(facts: RunFacts) -> str:
    if facts.store is None:
        return card("", note(facts.absent["graph"]), wide=True)
    manifest = facts.store.manifest
    parts = manifest.parts
    shown = parts[:256]
    names = [str(place) for place in range(len(shown))]
    groups = [
        ("nodes", charts.COLORS[0], [float(part.num_nodes) for part in shown]),
        ("edges", charts.COLORS[1], [float(part.edges) for part in shown]),
        ("cut edges", charts.COLORS[6], [float(part.cut_edges) for part in shown]),
        ("halo nodes", charts.COLORS[5], [float(part.halo_nodes) for part in shown]),
    ]
    balance = [
        max(sizes) * len(sizes) / max(sum(sizes), 1)
        for sizes in ([part.num_nodes for part in parts], [part.edges for part in parts])
    ]
    method = str(manifest.recipe.get("method", "unknown"))
    rows = [
        ["graph", f"{manifest.name}, {manifest.task} task of {counted(manifest.num_classes, 'class', 'classes')}"],
        ["nodes and edges", f"{manifest.num_nodes:,} and {manifest.num_edges:,}"],
        ["split", ", ".join(f"{name} {count:,}" for name, count in manifest.split_counts.items())],
        ["divided by", f"{method} into {counted(len(parts), 'part')}"],
        ["cut edges", f"{manifest.edge_cut:,} ({percent(manifest.edge_cut / max(manifest.num_edges, 1))})"],
        ["largest part", f"{balance[0]:.2f} times the mean of nodes, {balance[1]:.2f} times that of edges"],
    ]
    chart = charts.grouped(names, groups, "nodes, edges, cut edges and halo nodes of each part")
    more = " The first 256 parts are shown." if len(parts) > 256 else ""
    words = f"Columns of one color are in proportion to each other.{more}"
    return card("Balance of the parts", chart + note(words)) + card("Graph", table([], rows))


def _provenance(facts: RunFacts) -> str:
    known = facts.provenance
    own = [[one.name, one.value, one.default] for one in known.settings if one.differs]
    rest = [[one.name, one.value, one.meaning] for one in known.settings if not one.differs]
    versions = [[name, value] for name, value in known.versions.items()]
    said = note(
        "In a new run directory; on the same workers, threads and processor the numbers are the same to the bit."
    )
    graph = facts.run.config.data.partition
    return (
        card("The command that repeats the run", code(known.command) + said, wide=True)
        + card("Settings that differ from the defaults", table(["setting", "value", "default"], own, mono=(0, 1, 2)))
        + card("Versions", table([], versions) if versions else note("Versions are written with the first checkpoint."))
        + card(
            "",
            details(
                f"The {len(rest)} settings with their defaults",
                table(["setting", "value", "meaning"], rest, mono=(0, 1)),
            )
            + note(f"The graph is `{graph}`."),
            wide=True,
        )
    )
