"""Cases of signals: a command is asked to stop at any moment, says so, leaves nothing aside, and can be run again."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults import answers
from tests.faults.commands import COMMANDS, Command, Place, place_for, reference
from tests.faults.damaged import answer_of, check_refused
from tests.faults.material import SUBJECTS, Material, Reference
from tests.faults.rule import Problem, check_ending, left_aside
from tests.faults.serving import Outcome, Server

FAMILY = "signal"
CODES = {"SIGTERM": 143, "SIGINT": 130}


def _partition_words(place: Place) -> list[str]:
    subject = SUBJECTS[place.subject]
    return [
        "partition",
        str(place.material.source(subject.file)),
        *subject.division,
        "--out",
        str(place.folder / "out"),
    ]


def _partitioned(place: Place, outcome: Outcome) -> Any:
    """The manifest tells where it was written to, and the checksums of all other files."""
    content = answers.content_of(place.folder / "out")
    assert content.pop("manifest.json")
    return content


STOPPED = {
    "partition": Command(_partition_words, _partitioned, (), makes="out"),
    **{name: COMMANDS[name] for name in ("train", "resume", "evaluate", "score", "predict")},
}


def names(material: Material, server: Server, draw: random.Random, subjects: tuple[str, ...]) -> Iterator[str]:
    """Each command and each signal in turn; the moment is drawn from the name."""
    number = 0
    while True:
        number += 1
        for name in STOPPED:
            subject = draw.choice(("tables", "wide"))
            yield f"{FAMILY}:{name}:{subject}:{draw.choice(list(CODES))}:{number}"


def known_of(subject: str, name: str, material: Material, server: Server) -> Reference:
    """What the command answers when nobody stops it."""
    if name in COMMANDS:
        return reference(subject, name, material, server)

    def make() -> Reference:
        folder = material.folder / "references" / f"{subject}-{name}-undisturbed"
        place = place_for(folder, subject, "train", material, server)
        outcome = server.run(STOPPED[name].words(place), folder)
        assert outcome.code == 0, f"{outcome.words} failed on undamaged material:\n{outcome.stderr}"
        return Reference(STOPPED[name].answer(place, outcome), outcome)

    made = material.piece(f"undisturbed {subject} {name}", make)
    assert isinstance(made, Reference)
    return made


def prepared(folder: Path, subject: str, name: str, material: Material, server: Server) -> Place:
    return place_for(folder, subject, name if name in COMMANDS else "train", material, server)


def run(words: list[str], folder: Path, draw: random.Random, material: Material, server: Server) -> list[Problem]:
    """Stop a command at a moment of its usual time, look at what is left, and run it to its end."""
    name, subject, sign, _ = words
    command, known = STOPPED[name], known_of(subject, name, material, server)
    place = prepared(folder, subject, name, material, server)
    before = command.outputs(place)
    moment = 0.005 + draw.uniform(0.0, 1.1) * known.outcome.seconds
    outcome = server.run(command.words(place), folder, signal=getattr(signal, sign), after=moment)
    problems = check_ending(outcome, known.outcome.peak_bytes, (0, CODES[sign]))
    problems += left_aside(folder)
    if outcome.code == 0:
        problems += check_right(place, command, known, outcome)
    elif not problems:
        problems += check_refused(place, command, known, before)
    if outcome.code and not problems:
        problems += check_again(place, name, command, known)
    return problems


def check_right(place: Place, command: Command, known: Reference, outcome: Outcome) -> list[Problem]:
    """Exit code 0 means the right answer."""
    found = answer_of(place, command, outcome)
    text = found.text if isinstance(found, Problem) else answers.difference(found, known.answer)
    return [Problem("wrong", f"exit code 0, but {text}")] if text else []


def check_again(place: Place, name: str, command: Command, known: Reference) -> list[Problem]:
    """The same command again, or with --resume, comes to the right answer."""
    words = command.words(place)
    if name == "partition" and (place.folder / "out").exists():
        return check_right(place, command, known, Outcome(0, False, False, False, 0, 0.0, "", ""))
    outcome = place.server.run([*words, "--resume"] if name == "train" else words, place.folder)
    if outcome.code:
        return [Problem("again", f"the command does not go on: {outcome.stderr.strip()[-200:]}")]
    problems = check_right(place, command, known, outcome)
    return [Problem("again", problem.text) for problem in problems] + left_aside(place.folder)


def sample(material: Material, server: Server, draw: random.Random, count: int) -> list[str]:
    return [f"{FAMILY}:{name}:tables:{sign}:0" for name, sign in (("train", "SIGTERM"), ("evaluate", "SIGINT"))]
