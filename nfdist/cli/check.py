"""What the doctor writes down: the facts of a look at the host, and its findings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """Something to repair: `kind` is "broken" for what will not work and "slow" for what will be slow."""

    kind: str
    problem: str
    remedy: str


@dataclass
class Check:
    """One look at the host; facts whose names end in `_bytes` are bytes, and None is a fact unknown or absent."""

    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def broken(self, problem: str, remedy: str) -> None:
        self.findings.append(Finding("broken", problem, remedy))

    def slow(self, problem: str, remedy: str) -> None:
        self.findings.append(Finding("slow", problem, remedy))


def fact_lines(checks: list[Check]) -> Iterator[str]:
    for check in checks:
        yield check.title
        for name, value in check.facts.items():
            yield f"  {name.removesuffix('_bytes'):<20} {readable(name, value)}"
        yield ""


def finding_lines(findings: list[Finding]) -> Iterator[str]:
    for kind, heading in (("broken", "will not work"), ("slow", "will be slow")):
        chosen = [finding for finding in findings if finding.kind == kind]
        yield heading if chosen else f"{heading}: nothing"
        for finding in chosen:
            yield f"  - {finding.problem}"
            yield f"    {finding.remedy}"


def readable(name: str, value: Any) -> str:
    if value is None or value == []:
        return "none" if value == [] else "-"
    if isinstance(value, list):
        return ", ".join(f"{device['name']} ({readable('_bytes', device['memory_bytes'])})" for device in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value / (1 << 30):.2f} GiB" if name.endswith("_bytes") else str(value)


def failure(attempt: Callable[[], object]) -> str | None:
    """Why an attempt fails, in one line, or None when it succeeds."""
    try:
        attempt()
    except Exception as error:  # a broken package or driver can raise anything, and the doctor survives it
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None
