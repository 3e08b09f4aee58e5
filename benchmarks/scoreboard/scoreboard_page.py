"""RESULTS.md, from the facts of all stages and nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs import CONTENDERS, Job
from stage import DONE, Facts, Stage

GIB = 2**30
NFDIST = "nfdist"
Point = Mapping[str, float]

INTRODUCTION = """\
# Scoreboard

Written by `{command}`, which runs every stage in a process of its own; no figure is typed in. All sides have the same
graph, split, threads and memory: a process that asks for more than {memory} of private memory gets an error. Scores are
accuracies. [docs/scaling.md](../docs/scaling.md) has what is beyond this machine.

- *private* is anonymous and shared memory, *resident* has mapped files as well, both sampled and added up over the
  processes of a stage. *made* is what a stage leaves on disk, *at its peak* by how much the disk's free space fell
  meanwhile. *sent* is what a rank sends in a step, or in the whole of an evaluation.
- Training is ended after the same seconds of steps, batches included; evaluations and loading do not count. The test
  score is that of the best validation score until then. The two times to equal accuracy are between nfdist and one
  other side: until this side has nfdist's best validation score, and until nfdist has this side's.
- The contenders are the small trainings of [contenders.py](scoreboard/contenders.py), as wide as NodeFormer
  is: the published matrix formulation of NodeFormer (transcription), DGL's GraphSAGE with its neighbor sampler, DGL's
  GCN on the whole graph, PyG's SGFormer. Those that take batches of random nodes get nfdist's, for free.
"""


def page(
    jobs: Sequence[tuple[Job, Sequence[Stage]]],
    facts: Mapping[tuple[str, str], Facts],
    machine: Mapping[str, str],
    command: str,
) -> str:
    """The whole page; stages without facts are said to be missing."""
    told = {key: one for key, one in facts.items() if one.seconds}
    lines = [INTRODUCTION.format(command=command, memory=machine["limit"]), "| | |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in machine.items()]
    if told:
        begun = sorted(one.began for one in told.values())
        lines.append(f"| begun | {begun[0]}, {len(told)} stages in {_minutes(told.values())} |")
        lines.append(f"| load at the start of stages | {_range(one.load for one in told.values())} |")
        lines.append(f"| commit | {', '.join(sorted({one.commit for one in told.values()}))} |")
    for job, stages in jobs:
        mine = {stage.name: facts[job.name, stage.name] for stage in stages if (job.name, stage.name) in facts}
        lines += ["", f"## {job.title[0].upper()}{job.title[1:]}", "", *_job_lines(job, stages, mine)]
    return "\n".join(lines) + "\n"


def _job_lines(job: Job, stages: Sequence[Stage], facts: Mapping[str, Facts]) -> list[str]:
    if job.absent:
        return [f"Not run: {job.absent}."]
    if not facts:
        return ["Not run yet."]
    made = facts["partition"].outcome if "partition" in facts else {}
    lines = []
    if made:
        cut = made["edge_cut"] / max(made["edges"], 1)
        counts = f"{made['nodes']:,} nodes, {made['edges']:,} stored edges"
        lines = [f"{counts}, {made['parts']} parts, {cut:.1%} of the edges between parts.", ""]
    lines += [
        "| stage | seconds | CPU seconds | private | resident | made | at its peak | sent | valid | test |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    own = [stage for stage in stages if stage.name not in CONTENDERS]
    lines += [_stage_line(stage.name, facts.get(stage.name)) for stage in own]
    lines += ["", *_notes(own, facts), *_contender_lines(job, facts)]
    lines += ["", "<details><summary>commands</summary>", "", "```text"]
    lines += [f"{name}: {one.command}" for name, one in facts.items()]
    return [*lines, "```", "", "</details>"]


def _stage_line(name: str, facts: Facts | None) -> str:
    if facts is None:
        return f"| {name} | not run yet | | | | | | | | |"
    if not facts.seconds:
        return f"| {name} | {facts.state}: {facts.why} | | | | | | | | |"
    outcome = facts.outcome
    state = "" if facts.done else f" **{facts.state}: {facts.why}**"
    sent = outcome.get("sent_bytes_a_step", outcome.get("sent_bytes"))
    cells = [
        f"{name}{state}",
        f"{facts.seconds:.0f}",
        f"{facts.cpu_seconds:.0f}",
        _gibibytes(facts.private_bytes),
        _gibibytes(facts.resident_bytes),
        _gibibytes(facts.disk_bytes),
        _gibibytes(max(facts.disk_peak_bytes, facts.disk_bytes)),
        "" if sent is None else f"{sent:,.0f} B",
        _score(outcome.get("valid")),
        _score(outcome.get("test")),
    ]
    return f"| {' | '.join(cells)} |"


def _notes(stages: Sequence[Stage], facts: Mapping[str, Facts]) -> list[str]:
    """What single stages have to say beside the columns."""
    notes = []
    for stage in stages:
        outcome = facts[stage.name].outcome if stage.name in facts else {}
        if "stage_seconds" in outcome:
            told = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in outcome["stage_seconds"].items())
            notes.append(f"- {stage.name}: {told}.")
        if "nodes_per_second" in outcome:
            steps = f"{outcome['steps']:,} steps in {outcome['train_seconds']:.0f} s"
            notes.append(f"- {stage.name}: {steps}, {outcome['nodes_per_second']:,.0f} nodes a second.")
        if "predict_seconds" in outcome:
            loading = f"loaded in {outcome['load_seconds']:.2f} s"
            notes.append(
                f"- {stage.name}: {outcome['nodes']:,} new nodes, {loading}, {outcome['predict_seconds']:.2f} s."
            )
    return [*notes, ""] if notes else []


def course(facts: Mapping[str, Facts], side: str) -> list[Point]:
    """The scores of a side after so many seconds of training; without any on the way, that of its evaluation."""
    trained = facts.get("train" if side == NFDIST else side)
    if trained is None:
        return []
    points: list[Point] = list(trained.outcome.get("curve", []))
    final = facts.get("evaluate")
    if side == NFDIST and not points and final and final.done:
        scores = {name: final.outcome[name] for name in ("valid", "test")}
        points.append({"seconds": trained.outcome["train_seconds"], **scores})
    return points


def best(points: Sequence[Point]) -> Point | None:
    return max(points, key=lambda point: point["valid"], default=None)


def seconds_until(points: Iterable[Point], valid: float) -> float | None:
    """Seconds of training until a validation score was reached."""
    return next((point["seconds"] for point in points if point["valid"] >= valid), None)


def _contender_lines(job: Job, facts: Mapping[str, Facts]) -> list[str]:
    lines = [
        f"| after {job.seconds:g} s of training | test | s until nfdist's score | nfdist's s until its score | steps "
        "| training, private | evaluation | evaluation, private | loading | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    ours = course(facts, NFDIST)
    for side in (NFDIST, *job.contenders):
        lines.append(_contender_line(side, facts, ours, course(facts, side)))
    return lines


def _contender_line(side: str, facts: Mapping[str, Facts], ours: Sequence[Point], theirs: Sequence[Point]) -> str:
    trained = facts.get("train" if side == NFDIST else side)
    if trained is None:
        return f"| {side} | | | | | | | | | not run yet |"
    outcome, our_best, their_best = trained.outcome, best(ours), best(theirs)
    there = back = ""
    if side != NFDIST and our_best and their_best:
        there, back = (
            "not reached" if found is None else f"{found:.0f}"
            for found in (seconds_until(theirs, our_best["valid"]), seconds_until(ours, their_best["valid"]))
        )
    evaluation = _evaluation(side, facts, outcome)
    notes = [] if trained.done else [f"{trained.state}: {trained.why}"]
    notes += [outcome["evaluation_failed"]] if outcome.get("evaluation_failed") else []
    notes += ["scored by nfdist's evaluation"] if outcome.get("scored_by_nfdist") else []
    loading = outcome.get("load_seconds")
    cells = [
        side,
        _score(their_best["test"] if their_best else None),
        there,
        back,
        f"{outcome['steps']:,}" if "steps" in outcome else "",
        _gibibytes(outcome.get("train_private_bytes") or (trained.private_bytes if side == NFDIST else None)),
        *evaluation,
        "" if loading is None else f"{loading:.0f} s",
        "; ".join(notes),
    ]
    return f"| {' | '.join(cells)} |"


def _evaluation(side: str, facts: Mapping[str, Facts], outcome: Mapping[str, Any]) -> tuple[str, str]:
    """Seconds and memory of scoring the whole graph once; nfdist's writes its files, too."""
    if side != NFDIST:
        seconds, held = outcome.get("evaluate_seconds"), outcome.get("evaluate_private_bytes")
        return "" if seconds is None else f"{seconds:.1f} s", _gibibytes(held)
    found = facts.get("evaluate")
    if found is None or not found.done:
        return "", ""
    alone = outcome.get("evaluate_seconds")
    written = f"{found.outcome['seconds']:.1f} s with its files"
    return (f"{alone:.1f} s, {written}" if alone else written), _gibibytes(found.private_bytes)


def _gibibytes(size: float | None) -> str:
    return "" if size is None else f"{size / GIB:.2f} GiB"


def _score(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def _minutes(facts: Iterable[Facts]) -> str:
    return f"{sum(one.seconds for one in facts) / 60:.0f} minutes"


def _range(values: Iterable[float]) -> str:
    every = sorted(values)
    return f"{every[0]:.1f} to {every[-1]:.1f}"


def count_states(facts: Iterable[Facts]) -> str:
    """How many stages came to what."""
    states = [one.state for one in facts]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states), key=lambda one: one != DONE))
