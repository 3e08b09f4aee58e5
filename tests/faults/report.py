"""What the engine tells: each violation with the command that repeats it, and in the end a table."""

import shlex
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.rule import RULES, Problem


@dataclass
class Report:
    """The outcome of every case by its name; `code` and `seed` are for the commands that repeat them."""

    code: Path
    seed: int
    problems: dict[str, list[Problem]] = field(default_factory=dict)
    refused: dict[str, bool] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, problems: list[Problem], refused: bool, seconds: float) -> None:
        self.problems[name], self.refused[name], self.seconds[name] = problems, refused, seconds

    @property
    def violations(self) -> dict[str, list[Problem]]:
        return {name: problems for name, problems in self.problems.items() if problems}

    def repeat(self, name: str) -> str:
        """The command that runs one case alone."""
        return f"python -m tests.faults --code {self.code} --seed {self.seed} --case {shlex.quote(name)}"

    def describe(self, name: str) -> str:
        lines = [f"VIOLATION {problem.rule}: {name}: {problem.text}" for problem in self.problems[name]]
        return "\n".join([*lines, f"    {self.repeat(name)}"])

    def summary(self) -> str:
        """Cases and violations by group, and by rule."""
        groups: dict[str, Counter[str]] = {}
        for name, problems in self.problems.items():
            counts = groups.setdefault(_group(name), Counter())
            counts["cases"] += 1
            counts["violations" if problems else "refused" if self.refused[name] else "right"] += 1
            counts.update({problem.rule for problem in problems})
        total = sum(groups.values(), Counter())
        columns = ("cases", "refused", "right", "violations", *RULES)
        lines = [f"{'':38}" + "".join(f"{column:>11}" for column in columns)]
        for group, counts in [*sorted(groups.items()), ("all", total)]:
            lines.append(f"{group:38}" + "".join(f"{counts[column] or '-':>11}" for column in columns))
        slowest = sorted(self.seconds, key=lambda name: -self.seconds[name])[:3]
        lines += [f"slowest: {self.seconds[name]:.1f} s {name}" for name in slowest]
        lines += [f"skipped: {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


def _group(name: str) -> str:
    """The family of a case, and of damage also the tree and the command."""
    words = name.split(":")
    if words[0] == "damage":
        return f"damage {words[2].partition('/')[0]} {words[4]}"
    return f"{words[0]} {words[1].split()[0]}"
