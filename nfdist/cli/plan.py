"""nfdist plan: memory, traffic, disk and time of every stage, from counts alone, before anything is run."""

import argparse
import json
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfdist import log
from nfdist.cli.partition import add_source_arguments, recipe_of
from nfdist.errors import ConfigError, PartitionError
from nfdist.memory import available_bytes, host_bytes, parse_bytes
from nfdist.partitioning.choices import METHODS

if TYPE_CHECKING:  # what needs torch is imported when a job is planned
    from nfdist.config import Config
    from nfdist.plan.planned_job import PlannedJob
    from nfdist.plan.stages import PlannedStage

GIB = 2**30
JOB_OPTIONS = ("ranks", "ranks_per_host", "gpu_memory")  # and --memory, which is of sources, too

LOADS = ("nfdist.partitioning.planning",)
EXAMPLES = (
    ("nfdist plan ogbn-products --parts 8", "what partitioning it would take"),
    ("nfdist plan partitions/cora.toml --json", "the same of a recipe, as one line for scripts"),
    ("nfdist plan cora-partition --ranks 2 --memory 8GiB", "training, evaluation and prediction on two workers"),
)

PLANNED = tuple(method for method in METHODS if method != "file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--method", choices=PLANNED, help="how the nodes will be divided (default metis where it fits)")
    parser.set_defaults(out=".")
    parser.add_argument("--json", action="store_true", help="print the plan as one line, the last of stdout")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="section.key=value",
        help="with a partition, CONFIG.toml or run instead of a source: settings of its training",
    )
    job = parser.add_argument_group("training, evaluation and prediction of a partition, CONFIG.toml or run")
    job.add_argument("--ranks", type=int, help="how many workers, all hosts together (default 1)")
    job.add_argument("--ranks-per-host", type=int, metavar="R", help="how many of them share a host (default: all)")
    job.add_argument("--gpu-memory", metavar="SIZE", help="of the GPU of a worker, such as 40GiB (default: that here)")


def run(options: argparse.Namespace) -> int:
    if _is_job(options.source):
        return _plan_job(options)
    _check_there(options.source)
    given = [f"--{name.replace('_', '-')}" for name in JOB_OPTIONS if getattr(options, name) is not None]
    if options.overrides or given:
        raise ConfigError(
            f"{(options.overrides or given)[0]} is for a partition, CONFIG.toml or run, and {options.source} is a "
            "source to partition: leave it away, or name what nfdist partition made of it"
        )
    return _plan_partitioning(options)


def _check_there(named: str) -> None:
    """Refuse what is neither here nor known, before anything else is said of it."""
    from nfdist.partitioning.sources.locate import dataset_names, locate
    from nfdist.remote import is_uri

    if not is_uri(named) and not Path(named).exists() and named not in dataset_names():
        locate(named)


def _is_job(named: str) -> bool:
    """Whether this is a configuration, a partition or a run, and not a source."""
    path = Path(named)
    if path.is_dir():
        return (path / "manifest.json").exists() or (path / "run.json").exists()
    if path.suffix != ".toml" or not path.is_file():
        return False
    from nfdist.config import Config
    from nfdist.settings import read_toml

    sections = {field.name for field in fields(Config)}
    return any(isinstance(value, dict) and name in sections for name, value in read_toml(path).items())


def _plan_partitioning(options: argparse.Namespace) -> int:
    from nfdist.partitioning.planning import plan
    from nfdist.partitioning.sources import counts
    from nfdist.remote import fetched

    for name in (*JOB_OPTIONS, "overrides"):
        delattr(options, name)
    recipe = recipe_of(options)
    with fetched(recipe.source, PartitionError) as source:
        found = counts(source, recipe.options)
    planned = plan(recipe, found)
    memory = recipe.memory_bytes or host_bytes()
    free = shutil.disk_usage(".").free
    print(
        f"{recipe.source}: {found.nodes:,} nodes, {found.edges:,} edges listed, {planned.stored_edges:,} to store, "
        f"{found.features:,} features"
    )
    for stage in planned.stages:
        beside = f"{stage.scratch_bytes / GIB:8.2f} GiB of files for a while" if stage.scratch_bytes else ""
        by = f" ({planned.method})" if stage.name == "divide" else ""
        print(f"  {stage.name + by:<16} {stage.peak_bytes / GIB:8.2f} GiB {stage.seconds:8.0f} s {beside}".rstrip())
    print(f"  disk             {planned.disk_bytes / GIB:8.2f} GiB of {free / GIB:.0f} GiB free")
    if planned.peak_bytes > memory:
        has = "--memory allows" if recipe.memory else "this machine has"
        log.warn(f"{has} {memory / GIB:.1f} GiB, too little for a peak of {planned.peak_bytes / GIB:.1f} GiB")
    needed = planned.disk_bytes + planned.scratch_bytes
    if needed > free:
        log.warn(f"this disk has {free / GIB:.1f} GiB free, too little for {needed / GIB:.1f} GiB")
    if options.json:
        result = {"stages": [asdict(stage) for stage in planned.stages], "stored_edges": planned.stored_edges}
        fits = planned.peak_bytes <= memory and needed <= free
        disk = {"disk_bytes": planned.disk_bytes, "scratch_bytes": planned.scratch_bytes}
        told = {"method": planned.method, "peak_bytes": planned.peak_bytes, **disk, "fits": fits}
        print(json.dumps({**result, **told}))
    return 0


@dataclass(frozen=True)
class Room:
    """The memory that a rank has: of its host, of its GPU if there is one, and the disk here."""

    memory_bytes: int | None
    gpu_bytes: int | None
    disk_bytes: int


def _plan_job(options: argparse.Namespace) -> int:
    from nfdist.plan.planned_job import PlannedJob
    from nfdist.plan.stages import plan_stages

    ranks = _positive("--ranks", options.ranks, 1)
    together = min(ranks, _positive("--ranks-per-host", options.ranks_per_host, ranks))
    config, trained = _configuration(options)
    room = _room(options, config, together)
    job = PlannedJob.of(config, ranks=ranks, local_ranks=together, on_gpu=room.gpu_bytes is not None)
    stages = plan_stages(job, trains=not trained)
    if options.json:
        print(json.dumps(_facts(job, stages, room, trained)))
        return 0
    print("\n".join(_lines(options.source, job, stages, room, trained)))
    return 0


def _configuration(options: argparse.Namespace) -> "tuple[Config, bool]":
    """The settings of a job, and whether it was trained already."""
    from nfdist.api import configure
    from nfdist.runs.run import Run

    path = Path(options.source)
    if path.is_dir() and Run.holds_run(path):
        from nfdist import settings

        return settings.parse(
            settings.parse_toml(settings.dump(Run.open(path).config), str(path)), options.overrides
        ), True
    return configure(options.source, options.overrides), False


def _room(options: argparse.Namespace, config: "Config", together: int) -> Room:
    import torch

    memory = parse_bytes("--memory", options.memory) if options.memory else available_bytes()
    gpu = parse_bytes("--gpu-memory", options.gpu_memory) if options.gpu_memory else None
    if gpu is None and config.run.device != "cpu" and torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0).total_memory
    return Room(None if memory is None else memory // together, gpu, shutil.disk_usage(".").free)


def _positive(name: str, value: int | None, otherwise: int) -> int:
    if value is not None and value < 1:
        raise ConfigError(f"{name} must be at least 1, got {value}")
    return otherwise if value is None else value


def _fitting(job: "PlannedJob", room: Room) -> dict[str, int | None]:
    """The most nodes of a batch by what limits it; 0 is the whole graph."""
    from nfdist.plan.fitting import batch_for_gpu, batch_for_memory

    found = {}
    if room.memory_bytes is not None:
        found["memory"] = batch_for_memory(job, room.memory_bytes)
    if room.gpu_bytes is not None:
        found["gpu"] = batch_for_gpu(job, room.gpu_bytes)
    return found


def _fits(stage: "PlannedStage", room: Room) -> bool:
    return (
        (room.memory_bytes is None or stage.memory_bytes <= room.memory_bytes)
        and (room.gpu_bytes is None or (stage.gpu_bytes or 0) <= room.gpu_bytes)
        and stage.disk_bytes <= room.disk_bytes
    )


def _facts(job: "PlannedJob", stages: "list[PlannedStage]", room: Room, trained: bool) -> dict[str, Any]:
    return {
        "nodes": job.graph.nodes,
        "edges": job.graph.edges,
        "ranks": job.ranks,
        "stages": [asdict(stage) for stage in stages],
        "batch_nodes": None if trained else _fitting(job, room),
        "memory_bytes": room.memory_bytes,
        "gpu_bytes": room.gpu_bytes,
        "fits": all(_fits(stage, room) for stage in stages),
        "rates": asdict(job.rates.rates),
        "rates_measured": job.rates.measured,
    }


def _lines(named: str, job: "PlannedJob", stages: "list[PlannedStage]", room: Room, trained: bool) -> list[str]:
    from nfdist.plan.rates import BENCH

    graph, config = job.graph, job.config
    ranks = "1 rank" if job.ranks == 1 else f"{job.ranks} ranks"
    lines = [
        f"{named}: {config.model.name} on {graph.nodes:,} nodes, {graph.edges:,} edges, {graph.features:,} features; "
        f"{ranks} with {job.threads} {'thread' if job.threads == 1 else 'threads'} each",
        f"  {'a rank':<10}{'memory':>12}{'GPU':>12}{'sends':>12}{'disk':>12}{'time':>10}",
    ]
    for stage in stages:
        gpu = "-" if stage.gpu_bytes is None else _size(stage.gpu_bytes)
        sizes = f"{_size(stage.memory_bytes):>12}{gpu:>12}{_size(stage.sent_bytes):>12}{_size(stage.disk_bytes):>12}"
        steps = "" if stage.steps is None else f"  ({stage.steps:,} steps of {_time(stage.step_seconds or 0)})"
        lines.append(f"  {stage.name:<10}{sizes}{_time(stage.seconds):>10}{steps}")
    if not trained:
        lines += [_batch_line(job, what, batch, room) for what, batch in _fitting(job, room).items()]
    lines += [f"  {stage.name} does not fit: {_missing(stage, room)}" for stage in stages if not _fits(stage, room)]
    if not job.rates.measured:
        lines.append(f"  times are rough: {BENCH} measures this host in some seconds, and they are its own then")
    return lines


def _batch_line(job: "PlannedJob", what: str, batch: int | None, room: Room) -> str:
    size = room.memory_bytes if what == "memory" else room.gpu_bytes
    where = f"{_size(size or 0)} of {'memory' if what == 'memory' else 'a GPU'} a rank"
    now = job.config.train.batch_nodes
    if batch is None:
        return f"  no batch fits {where}: make [model] smaller"
    if batch == 0:
        return f"  any batch fits {where}, that of the whole graph too (train.batch_nodes is {now})"
    return f"  batches of at most {batch:,} nodes fit {where} (train.batch_nodes is {now})"


def _missing(stage: "PlannedStage", room: Room) -> str:
    for needed, there, what in (
        (stage.memory_bytes, room.memory_bytes, "of memory"),
        (stage.gpu_bytes or 0, room.gpu_bytes, "of a GPU"),
        (stage.disk_bytes, room.disk_bytes, "of disk here"),
    ):
        if there is not None and needed > there:
            return f"it takes {_size(needed)} {what}, and a rank has {_size(there)}"
    return ""


def _size(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def _time(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return (
        f"{seconds / 60:.1f} min"
        if seconds >= 90
        else f"{seconds:.1f} s"
        if seconds >= 1
        else f"{1000 * seconds:.0f} ms"
    )
