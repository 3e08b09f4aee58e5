"""The sections of the page of one run: what its facts are, in charts, tables and sentences."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from nfdist.reporting import charts, pictures
from nfdist.reporting.course import SPLITS, Course
from nfdist.reporting.markup import Section, card, code, details, note, table, tile
from nfdist.reporting.run_facts import ExplainedMistake, Neighbor, RunFacts
from nfdist.reporting.structure import LayerAttention, Structure
from nfdist.reporting.words import amount, duration, escaped, kind, number, percent, score

SPLIT_COLORS = dict(zip(SPLITS, (charts.COLORS[1], charts.COLORS[0], charts.COLORS[2]), strict=True))
MOST_IN_HEAT = 60


def sections(facts: RunFacts) -> list[Section]:
    """Everything that is told of one run."""
    makers: tuple[tuple[str, str, Callable[[RunFacts], str]], ...] = (
        ("Scores", "Scores", _scores),
        ("Training", "Training", _training),
        ("Costs", "Time, memory and throughput", _cost),
        ("Answers", "Answers by class", _answers),
        ("Mistakes", "Surest mistakes", _mistakes),
        ("Map", "Map of embeddings", _map),
        ("Attention", "Attention, the input graph and the classes", _attention),
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
    found.append(tile(duration(sum(course.seconds.values())), "training", _count(len(course.seeds), "seed")))
    if course.nodes_per_second:
        workers = _count(facts.provenance.world_size, "worker")
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
        found.append(card(f"{course.metric} by epoch", _score_lines(course)))
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


def _answers(facts: RunFacts) -> str:
    answers = facts.answers
    if answers is None:
        return card("", note(facts.absent["answers"]), wide=True)
    kind = "smoothed" if answers.smoothed else "raw"
    by = facts.answered_by
    which = f" by the checkpoint of seed {by.get('seed')}, step {by.get('step')}" if by else ""
    said = f"The {kind} answers for the {answers.labeled:,} labeled {answers.split} nodes{which}."
    if answers.accuracy is not None:
        said += f" {percent(answers.accuracy)} are right."
    found = [note(said)]
    if "checksum" in facts.absent:
        found.append(note(facts.absent["checksum"]))
    shown = [one for one in answers.classes if one.support or one.answered]
    if answers.confusion is None:
        found.append(note("A node has several answers here, so that there is no confusion of one class with another."))
    elif len(shown) > MOST_IN_HEAT:
        found.append(card("Confusion", _confused_pairs(facts)))
    else:
        places = [place for place, one in enumerate(answers.classes) if one.support or one.answered]
        counts = answers.confusion[np.ix_(places, places)].tolist()
        names = [answers.classes[place].name for place in places]
        found.append(
            card("Confusion, by share of the true class", pictures.heat(counts, names, "confusion matrix"), high=True)
        )
    title = "Questions" if answers.confusion is None else "Classes"
    rows = [
        [one.name, *(_meter(value) for value in (one.precision, one.recall, one.f1)), f"{one.support:,}"]
        for one in sorted(shown, key=lambda one: -one.support)
    ]
    heads = ["class", "precision", "recall", "F1", "support"]
    found.append(card(title, table(heads, rows, numeric=(1, 2, 3, 4), html=(1, 2, 3), tall=True)))
    if answers.bins:
        most = max(one.count for one in answers.bins)
        points = [
            (one.probability, one.accuracy, one.count / most, _bin_tip(one.count, one.probability, one.accuracy))
            for one in answers.bins
        ]
        words = (
            f"Off the diagonal by {percent(answers.calibration_error)} on average; larger dots stand for more answers."
        )
        chart = pictures.calibration(points, "share of right answers by their probability")
        found.append(card("Share of right answers by their probability", chart + note(words)))
    return "".join(found)


def _bin_tip(count: int, probability: float, accuracy: float) -> str:
    return f"{count:,} answers\nprobability {percent(probability)}\nright {percent(accuracy)}"


def _confused_pairs(facts: RunFacts) -> str:
    """Instead of a square that nobody could read: the pairs of classes that are confused most often."""
    assert facts.answers is not None
    assert facts.answers.confusion is not None
    counts, classes = facts.answers.confusion.copy(), facts.answers.classes
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:20]
    pairs = [divmod(int(place), len(classes)) for place in order]
    rows = [[classes[one].name, classes[two].name, f"{counts[one, two]:,}"] for one, two in pairs if counts[one, two]]
    words = f"With {len(classes)} classes the most frequent confusions are listed."
    return note(words) + table(["truth", "answer", "nodes"], rows, numeric=(2,))


def _meter(value: float | None) -> str:
    """A fraction with a bar behind it."""
    if value is None:
        return "–"
    return f'<span class="meter" style="--share:{100 * value:.1f}%">{value:.3f}</span>'


def _mistakes(facts: RunFacts) -> str:
    if facts.answers is None:
        return card("", note(facts.absent["answers"]), wide=True)
    if facts.answers.confusion is None:
        return card("", note("A node has several answers here, none of which is the one that is wrong."), wide=True)
    if not facts.answers.mistakes:
        return card("", note(f"All labeled {facts.answers.split} nodes are answered right."), wide=True)
    if not facts.mistakes:
        rows = [[one.original_id, one.truth, one.answer, percent(one.probability)] for one in facts.answers.mistakes]
        listed = table(["node", "truth", "answer", "probability"], rows, numeric=(3,))
        return card("", listed + note(facts.absent["graph"]), wide=True)
    attends = any(one.attended for one in facts.mistakes)
    words = (
        "Of each node its id, its true class, and its share of the attention in the last layer, averaged over the "
        "heads. Of the neighbors the strongest are listed."
    )
    why = "" if attends else note(facts.absent.get("attention", "The answers are those of another checkpoint."))
    blocks = "".join(_mistake(one) for one in facts.mistakes)
    return card("", f'<div class="mistakes">{blocks}</div>{note(words) if attends else why}', wide=True)


def _mistake(one: ExplainedMistake) -> str:
    wrong = one.mistake
    of_answer, of_truth = (one.heard_classes.get(name, 0) for name in (wrong.answer, wrong.truth))
    around = (
        f"Of {_count(one.num_heard, 'neighbor')}, {of_answer:,} are of the class that was answered and {of_truth:,} "
        "of the true one."
        if one.num_heard
        else "It has no neighbors."
    )
    told = f"<b>{escaped(kind(wrong.answer))}</b> at {percent(wrong.probability)}, but it is"
    lists = _listed("attends most to", one.attended) + _listed("neighbors in the input graph", one.heard)
    return (
        f'<div class="mistake"><h4>{escaped(wrong.original_id)}</h4>'
        f"<p>{told} <b>{escaped(kind(wrong.truth))}</b>. {around}</p>{lists}</div>"
    )


def _listed(title: str, neighbors: Sequence[Neighbor]) -> str:
    if not neighbors:
        return ""
    items = "".join(
        f"<li><span>{escaped(one.original_id)}</span><span>{escaped(kind(one.label))}</span>"
        f"<span>{'' if one.weight is None else percent(one.weight)}</span></li>"
        for one in neighbors
    )
    return f"<h5>{title}</h5><ol>{items}</ol>"


def _map(facts: RunFacts) -> str:
    found, store = facts.map, facts.store
    if found is None or store is None:
        return card("", note(facts.absent["map"]), wide=True)
    labels = facts.labels if facts.labels is not None else np.full(len(found.node_ids), -1)
    counted = np.bincount(labels[labels >= 0], minlength=1)
    common = [int(one) for one in np.argsort(-counted, kind="stable")[: len(charts.COLORS)] if counted[one]]
    color = {label: place for place, label in enumerate(common)}
    names = [str(name) for name in store.manifest.schema.names_of(range(store.num_classes))]
    ids = store.original_ids(torch.from_numpy(found.node_ids)).tolist()
    dots = [
        pictures.Dot(x, y, color.get(label, -1), f"{own}\n{kind(names[label]) if label >= 0 else 'no single label'}")
        for (x, y), label, own in zip(found.places.tolist(), labels.tolist(), ids, strict=True)
    ]
    entries = [(kind(names[label]), charts.COLORS[place], place) for label, place in color.items()]
    if any(dot.color < 0 for dot in dots):
        entries.append(("other classes" if facts.labels is not None else "nodes", charts.OTHER, -1))
    drawn = pictures.scatter(dots, found.links, "map of embeddings")
    said = f"{found.method} of the embeddings of {len(dots):,} of {store.num_nodes:,} nodes, drawn by a fixed seed."
    if found.links:
        said += f" The {len(found.links)} strongest attentions among them in the last layer are lines."
    elif "attention" in facts.absent:
        said += f" No lines of attention are drawn: {facts.absent['attention']}"
    return card("", f'<div class="map">{pictures.groups(entries)}{drawn}</div>{note(said)}', wide=True)


def _attention(facts: RunFacts) -> str:
    structure = facts.structure
    if structure is None:
        return card("", note(facts.absent.get("attention", facts.absent.get("graph", ""))), wide=True)
    size, rows = structure.num_nodes, []
    for one in structure.layers:
        low, middle, high = np.quantile(np.exp(one.entropy), [0.1, 0.5, 0.9]).tolist()
        tip = (
            f"layer {one.layer}: entropy {one.entropy.mean():.2f} of {np.log(size):.2f} nats\n"
            f"as if {number(low)} to {number(high)} nodes, half below {number(middle)}"
        )
        rows.append(charts.Span(f"layer {one.layer}", low, middle, high, tip))
    wide = charts.spans(rows, size, "nodes attended to, by the entropy", "entropy of the attention")
    said = (
        f"exp(entropy) of the attention of {_count(len(structure.sample), 'node')}, drawn by a fixed seed: the median, "
        f"and where 8 of 10 lie. The line on the right is all {size:,} nodes."
    )
    if structure.sampled_keys is not None:
        said += f" Entropies are estimated from {structure.sampled_keys:,} sampled keys by exact weights."
    chance = charts.legend([(name, color, False) for name, color in _KINDS]) + charts.beside_chance(
        [row for one in structure.layers for row in _lifts(one)], "attention beside chance"
    )
    return (
        card("How widely a layer attends", wide + note(said))
        + card("Attention beside the input graph and the classes", chance)
        + card("", _attention_table(structure), wide=True)
    )


_KINDS = (("on input edges", charts.COLORS[1]), ("within the class", charts.COLORS[2]))


def _lifts(one: LayerAttention) -> list[tuple[str, str, float, str]]:
    name, rows = f"layer {one.layer}", []
    if one.edge_chance > 0:
        tip = f"on input edges: {percent(one.on_edges)} of the attention, by chance {percent(one.edge_chance)}"
        rows.append((name, _KINDS[0][1], one.on_edges / one.edge_chance, tip))
    if one.same_class is not None and one.class_chance:
        tip = f"within the class: {percent(one.same_class)} of the attention, by chance {percent(one.class_chance)}"
        rows.append((name, _KINDS[1][1], one.same_class / one.class_chance, tip))
    return rows


def _attention_table(structure: Structure) -> str:
    heads = [
        *("layer", "entropy, nats", "on itself", "on input edges", "by chance", "within the class", "by chance"),
        *("top on edges", "top within class", "different in the top"),
    ]
    rows = []
    for one in structure.layers:
        per_head = ", ".join(f"{head:.2f}" for head in one.head_entropy)
        entropy = f"{one.entropy.mean():.3f}" + (f" ({per_head})" if len(one.head_entropy) > 1 else "")
        shares = (one.on_itself, one.on_edges, one.edge_chance, one.same_class, one.class_chance)
        tops = (one.top_on_edges, one.top_same_class)
        distinct = f"{one.distinct_top:,} of {one.num_top:,}"
        rows.append([str(one.layer), entropy, *map(percent, (*shares, *tops)), distinct])
    words = (
        "Shares are of attention weight, averaged over the sample and the heads. The top are the ten strongest nodes "
        "of each node of the sample, itself left out: few different ones mean that all look at the same nodes."
    )
    return table(heads, rows, numeric=tuple(range(1, 10))) + note(words)


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
        ["graph", f"{manifest.name}, {manifest.task} task of {_count(manifest.num_classes, 'class', 'classes')}"],
        ["nodes and edges", f"{manifest.num_nodes:,} and {manifest.num_edges:,}"],
        ["split", ", ".join(f"{name} {count:,}" for name, count in manifest.split_counts.items())],
        ["divided by", f"{method} into {_count(len(parts), 'part')}"],
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


def _count(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
