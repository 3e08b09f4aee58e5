"""The rule: exit code 0 means the right answer, any other one line, nothing half-written, bounded memory and time."""

from dataclasses import dataclass
from pathlib import Path

from tests.faults.serving import STARTING, Outcome

MORE_BYTES = 1 << 30
RULES = ("wrong", "accepted", "code", "traceback", "line", "left", "memory", "time", "again", "engine")


class Skipped(Exception):  # noqa: N818, since it is no error
    """A case that this machine does not allow, and why."""


@dataclass(frozen=True)
class Problem:
    """What of the rule was broken: one of RULES, and in which way."""

    rule: str
    text: str


def check_ending(outcome: Outcome, peak_bytes: int, codes: tuple[int, ...] = (0, 2)) -> list[Problem]:
    """Exit code, words, memory and time; `peak_bytes` is what the undamaged command held."""
    if outcome.late:
        return [Problem("time", f"still running after {outcome.seconds:.0f} s")]
    problems = []
    if "Traceback (most recent call last)" in outcome.stderr:
        problems.append(Problem("traceback", f"exit code {outcome.code}: {last_line(outcome.stderr)}"))
    elif outcome.code not in codes:
        text = f"exit code {outcome.code}, allowed are {', '.join(map(str, codes))}: {last_line(outcome.stderr)}"
        problems.append(Problem("code", text))
    elif outcome.code:
        problems += _check_words(outcome)
    if outcome.peak_bytes > peak_bytes + MORE_BYTES:
        used = f"{outcome.peak_bytes / 2**30:.1f} GiB, {peak_bytes / 2**30:.1f} when undamaged"
        problems.append(Problem("memory", f"held {used}"))
    return problems


def _check_words(outcome: Outcome) -> list[Problem]:
    """A refusal ends with one line of nfdist's; before it there may be progress and notices, nothing else."""
    if outcome.killed and outcome.sent and not outcome.stderr.strip():
        return []  # killed before it said a word
    lines = outcome.stderr.splitlines()
    foreign = [line for line in lines if not line.startswith(STARTING)]
    if foreign or not lines:
        return [
            Problem("line", f"{len(lines)} lines, not of nfdist: {foreign[0] if foreign else 'no line at all'!r:.200}")
        ]
    if outcome.killed:
        return [Problem("line", f"killed by the signal in the midst of its work: {lines[-1]:.200}")]
    return []


def left_aside(*folders: Path) -> list[Problem]:
    """What is neither an output nor was there before: temporary names."""
    found = [entry for folder in folders if folder.exists() for entry in folder.rglob("*") if ".tmp-" in entry.name]
    return [Problem("left", f"{entry.name} was left aside") for entry in found[:1]]


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else "(nothing on stderr)"
