"""What a run or a checkpoint holds, for people and scripts alike; everything is read, so checksums are checked."""

from collections.abc import Callable
from functools import partial
from typing import Any

from nfdist.errors import CheckpointError
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run


def describe_run(run: Run) -> dict[str, Any]:
    """The facts of a run; a damaged checkpoint has its `problem` instead of an epoch and a size.

    `problems` are those of all files, in one line each.
    """
    problems: list[str] = []
    bests = {}
    for seed in run.seeds:
        best = _unless_damaged(partial(run.best_of, seed), problems)
        if best is not None:
            bests[seed] = best
    checkpoints = []
    for seed in run.seeds:
        for step, path in run.checkpoint_paths(seed).items():
            facts = {"seed": seed, "step": step, "best": seed in bests and bests[seed]["step"] == step}
            try:
                checkpoint = Checkpoint.open(path)
                facts |= {"epoch": checkpoint.state.get("epoch"), "bytes": checkpoint.size_bytes}
            except CheckpointError as error:
                facts["problem"] = str(error)
                problems.append(str(error))
            checkpoints.append(facts)
    lines, damaged_line = run.metrics_file.readable()
    if damaged_line:
        problems.append(damaged_line)
    result = _unless_damaged(run.result, problems)
    config = run.config
    return {
        "partition": config.data.partition,
        "model": config.model.name,
        "layers": config.model.layers,
        "channels": config.model.channels,
        "heads": config.model.heads,
        "attention": config.attention.kind,
        "relation_order": config.relation.order,
        "epochs": config.train.epochs,
        "batch_nodes": config.train.batch_nodes,
        "learning_rate": config.train.learning_rate,
        "seeds": list(config.train.seeds),
        "metrics_lines": len(lines),
        "checkpoints": checkpoints,
        "best": {str(seed): best for seed, best in bests.items()},
        "result": result,
        "bytes": sum(facts.get("bytes", 0) for facts in checkpoints),
        "problems": problems,
        "verified": not problems,
    }


def _unless_damaged(look: Callable[[], dict[str, Any] | None], problems: list[str]) -> dict[str, Any] | None:
    try:
        return look()
    except CheckpointError as error:
        problems.append(str(error))
        return None


def run_lines(facts: dict[str, Any]) -> list[str]:
    """The facts of a run as a table."""
    checkpoints = facts["checkpoints"]
    damaged = len(facts["problems"])
    lines = [
        f"run on partition {facts['partition'] or '(none)'}, {len(checkpoints)} checkpoints of "
        f"{_mebibytes(facts['bytes'])}, "
        + (f"{damaged} damaged {'file' if damaged == 1 else 'files'}" if damaged else "checksums hold"),
        f"  {facts['model']} of {facts['layers']} layers, {facts['channels']} channels, {facts['heads']} heads, "
        f"{facts['attention']} attention, relation of order {facts['relation_order']}",
        f"  {facts['epochs']} epochs, {facts['batch_nodes'] or 'all'} nodes a batch, learning rate "
        f"{facts['learning_rate']:g}, seeds {', '.join(map(str, facts['seeds']))}; "
        f"{facts['metrics_lines']:,} lines of metrics",
        f"  {'seed':>6}{'step':>10}{'epoch':>8}{'size':>14}",
        *(_checkpoint_line(checkpoint, facts["best"]) for checkpoint in checkpoints),
    ]
    result = facts["result"] or {}
    shown = [checkpoint.get("problem") for checkpoint in checkpoints]
    lines += [f"  {problem}" for problem in facts["problems"] if problem not in shown]
    for name, scores in (("result", result), ("best", result.get("best")), ("final", result.get("final"))):
        if scores:
            lines.append(f"  {name}: {_plain_values(scores)}")
    return lines


def _checkpoint_line(checkpoint: dict[str, Any], bests: dict[str, Any]) -> str:
    line = f"  {checkpoint['seed']:>6}{checkpoint['step']:>10}"
    if "problem" in checkpoint:
        return f"{line}  {checkpoint['problem']}"
    line += f"{_text(checkpoint['epoch']):>8}{_mebibytes(checkpoint['bytes']):>14}"
    return line + (f"  best: {_plain_values(bests[str(checkpoint['seed'])])}" if checkpoint["best"] else "")


def describe_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """The facts of a checkpoint."""
    groups = {name: checkpoint.tensors(name) for name in checkpoint.files}
    return {
        "state": checkpoint.state,
        "files": {
            name: {"tensors": len(group), "numbers": sum(tensor.numel() for tensor in group.values())}
            for name, group in groups.items()
        },
        "bytes": checkpoint.size_bytes,
        "verified": True,
    }


def checkpoint_lines(facts: dict[str, Any]) -> list[str]:
    """The facts of a checkpoint as a table."""
    return [
        f"checkpoint, {_mebibytes(facts['bytes'])} in {len(facts['files'])} tensor files, checksums hold",
        f"  {_plain_values(facts['state'])}",
        *(
            f"  {name}: {file['numbers']:,} numbers in {file['tensors']:,} tensors"
            for name, file in facts["files"].items()
        ),
    ]


def _plain_values(values: dict[str, Any]) -> str:
    """The values of an object that fit a line: no lists and objects."""
    return ", ".join(f"{key} {_text(value)}" for key, value in values.items() if not isinstance(value, dict | list))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
