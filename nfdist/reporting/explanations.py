"""The sections that explain a model: its answers by class, its surest mistakes, a map, and its attention."""

from collections.abc import Sequence

import numpy as np
import torch

from nfdist.reporting import charts, pictures
from nfdist.reporting.answer_scores import AnswerScores
from nfdist.reporting.markup import card, note, table
from nfdist.reporting.roc import Roc
from nfdist.reporting.run_facts import ExplainedMistake, Neighbor, RunFacts
from nfdist.reporting.structure import LayerAttention, Structure
from nfdist.reporting.words import counted, escaped, kind, number, percent

MOST_IN_HEAT = 60
FEW_IN_HEAT = 3  # a square that is no higher than the chart beside it


def answers_section(facts: RunFacts) -> str:
    """Confusion, scores of the classes, and whether probabilities can be believed."""
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
        square = pictures.heat(counts, names, "confusion matrix")
        found.append(card("Confusion, by share of the true class", square, high=len(names) > FEW_IN_HEAT))
    title = "Questions" if answers.confusion is None else "Classes"
    rows = [
        [one.name, *(_meter(value) for value in (one.precision, one.recall, one.f1)), f"{one.support:,}"]
        for one in sorted(shown, key=lambda one: -one.support)
    ]
    heads = ["class", "precision", "recall", "F1", "support"]
    found.append(card(title, table(heads, rows, numeric=(1, 2, 3, 4), html=(1, 2, 3), tall=True)))
    if answers.bins:
        found.append(card("Share of right answers by their probability", _calibration(answers)))
    if answers.roc is not None:
        found.append(_roc(answers.roc))
    return "".join(found)


def _calibration(answers: AnswerScores) -> str:
    most = max(one.count for one in answers.bins)
    points = [
        (one.probability, one.accuracy, one.count / most, _bin_tip(one.count, one.probability, one.accuracy))
        for one in answers.bins
    ]
    error = percent(answers.calibration_error)
    chart = pictures.calibration(points, "share of right answers by their probability")
    return chart + note(f"Off the diagonal by {error} on average; larger dots stand for more answers.")


def _roc(curve: Roc) -> str:
    words = f"The area under the curve is {curve.area:.3f}: 0.5 is chance, 1 finds all of the class before any other."
    more = " Of so many nodes a part is shown." if curve.sampled else ""
    chart = pictures.roc(curve.points, "of the other class taken for it", f"ROC curve of {curve.name}")
    return card(f"ROC curve of {kind(curve.name)}", chart + note(words + more))


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


def mistakes_section(facts: RunFacts) -> str:
    """Wrong answers of high probability, each with whom the node attends to and hears."""
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
        f"Of {counted(one.num_heard, 'neighbor')}, {of_answer:,} are of the class that was answered and {of_truth:,} "
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


def map_section(facts: RunFacts) -> str:
    """Embeddings in two dimensions, colored by class, and the strongest attention among them."""
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


def attention_section(facts: RunFacts) -> str:
    """Entropy by layer, and how much of the attention follows the input graph and the classes."""
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
        f"exp(entropy) of the attention of {counted(len(structure.sample), 'node')}, drawn by a fixed seed: the "
        f"median, and where 8 of 10 lie. The line on the right is all {size:,} nodes."
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
