"""Sections show each seed and phase of a course, and say in words what a course lacks."""

from dataclasses import replace

from nfdist.reporting.course import PHASES, read_course
from nfdist.reporting.sections import sections, tiles
from nfdist.reporting.words import duration
from tests.reporting.drawn import text_of
from tests.reporting.explained import Explained


def test_time_is_told_by_phase_and_rank(explained: Explained) -> None:
    facts = explained.facts
    (costs,) = (text_of(part.body) for part in sections(facts) if part.anchor == "costs")
    for phase in PHASES:
        if facts.course.seconds[phase]:
            assert phase in costs
            assert duration(facts.course.seconds[phase]) in costs
    assert "One worker made the whole training." in costs
    two = replace(facts.course, seeds=tuple(replace(one, rank_seconds=(61.0, 2.5)) for one in facts.course.seeds))
    (costs,) = (text_of(part.body) for part in sections(replace(facts, course=two)) if part.anchor == "costs")
    assert "2 min 02 s" in costs  # of both seeds
    assert "5 s" in costs


def test_a_run_that_has_only_begun_has_every_section_in_words(explained: Explained) -> None:
    begun = read_course([], None, explained.facts.run.config)
    facts = replace(explained.facts, course=begun, absent={"result": "not yet"})
    found = {part.anchor: text_of(part.body) for part in sections(facts)}
    assert "The training has made no step yet." in found["training"]
    assert "No time was recorded yet." in found["costs"]
    assert "not yet" in found["scores"]
    assert "0 of 3" in text_of(tiles(facts))


def test_settings_that_differ_from_the_defaults_come_first(explained: Explained) -> None:
    (settings,) = (text_of(part.body) for part in sections(explained.facts) if part.anchor == "settings")
    own, rest = settings.index("model.channels"), settings.index("settings with their defaults")
    assert own < rest < settings.index("train.weight_decay")
