"""What explains a model names its classes, its mistakes and the shares of its attention."""

from dataclasses import replace

import numpy as np

from nfdist.reporting.answer_scores import ClassScore
from nfdist.reporting.explanations import answers_section, attention_section, map_section, mistakes_section
from nfdist.reporting.words import percent
from tests.reporting.drawn import drawings, text_of
from tests.reporting.explained import Explained


def test_every_class_has_its_numbers(explained: Explained) -> None:
    answers = explained.facts.answers
    assert answers is not None
    seen = " ".join(text_of(answers_section(explained.facts)).split())
    for one in answers.classes:
        numbers = ["–" if value is None else f"{value:.3f}" for value in (one.precision, one.recall, one.f1)]
        assert f"{one.name} {' '.join(numbers)} {one.support}" in seen


def test_of_very_many_classes_the_confused_pairs_are_listed(explained: Explained) -> None:
    answers = explained.facts.answers
    assert answers is not None
    classes = tuple(ClassScore(f"kind-{number}", 1.0, 1.0, 1.0, 2, 2) for number in range(70))
    confusion = np.eye(70, dtype=np.int64) * 9
    confusion[3, 41] = 5
    seen = text_of(
        answers_section(replace(explained.facts, answers=replace(answers, classes=classes, confusion=confusion)))
    )
    assert "With 70 classes the most frequent confusions are listed." in seen
    assert " ".join(seen.split()).count("kind-3 kind-41 5") == 1


def test_a_mistake_tells_both_classes_its_probability_and_its_neighbors(explained: Explained) -> None:
    first = explained.facts.mistakes[0]
    seen = " ".join(text_of(mistakes_section(explained.facts)).split())
    assert f"{first.mistake.original_id} {first.mistake.answer} at {percent(first.mistake.probability)}" in seen
    assert f"but it is {first.mistake.truth}" in seen
    for one in (*first.attended, *first.heard):
        assert f"{one.original_id} {one.label} {percent(one.weight)}" in seen


def test_the_map_has_a_dot_a_node_and_a_line_a_link(explained: Explained) -> None:
    found = explained.facts.map
    assert found is not None
    (drawing,) = drawings(map_section(explained.facts))
    assert sum(element.tag.endswith("circle") for element in drawing) == len(found.node_ids)
    assert sum(element.tag.endswith("line") for element in drawing) == len(found.links)


def test_attention_is_told_by_layer(explained: Explained) -> None:
    structure = explained.facts.structure
    assert structure is not None
    seen = " ".join(text_of(attention_section(explained.facts)).split())
    for one in structure.layers:
        heads = ", ".join(f"{head:.2f}" for head in one.head_entropy)
        assert (
            f"{one.layer} {one.entropy.mean():.3f} ({heads}) {percent(one.on_itself)} {percent(one.on_edges)}" in seen
        )
    sampled = replace(explained.facts, structure=replace(structure, sampled_keys=120))
    assert "Entropies are estimated from 120 sampled keys" in text_of(attention_section(sampled))
