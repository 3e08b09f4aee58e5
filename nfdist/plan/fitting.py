"""What fits: the batch for a given memory, and the refusal of what cannot fit by any means."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from nfdist.config import Config
from nfdist.devices import is_gpu
from nfdist.errors import ConfigError, NfdistError
from nfdist.graph.counts import GraphCounts
from nfdist.memory import available_bytes, format_bytes
from nfdist.model.build import check_settings, model_class, model_device
from nfdist.plan.planned_job import PlannedJob
from nfdist.plan.rates import ROUGH, KnownRates
from nfdist.remote import is_uri, without_file_scheme
from nfdist.rendezvous import Place
from nfdist.runs.run import Run
from nfdist.store.manifest import Manifest
from nfdist.training.shortage import ROOM, rounded_down


def largest_batch(job: PlannedJob, fits: Callable[[PlannedJob], bool]) -> int | None:
    """The most nodes of a rank in a batch that fits; 0 where the whole graph does, None where not a single node."""
    scopes = job.config.attention.scope, job.config.relation.scope
    if (job.ranks == 1 or scopes == ("world", "world")) and fits(job.with_batch(0)):
        return 0
    fitting, most = 0, -(-job.graph.nodes // job.ranks)
    while fitting < most:
        middle = -(-(fitting + most) // 2)
        fitting, most = (middle, most) if fits(job.with_batch(middle)) else (fitting, middle - 1)
    return rounded_down(fitting) if fitting else None


def batch_for_memory(job: PlannedJob, memory_bytes: int) -> int | None:
    """The largest batch whose training holds no more of a host's memory, a rank."""
    return largest_batch(job, lambda one: one.training_bytes() <= ROOM * memory_bytes)


def batch_for_gpu(job: PlannedJob, gpu_bytes: int) -> int | None:
    """The largest batch whose training takes no more of a GPU."""
    return largest_batch(job, lambda one: one.device_bytes() <= ROOM * gpu_bytes)


def refuse_training(job: PlannedJob, there: int | None, local_ranks: int) -> None:
    """Refuse a training whose least memory is more than there is; a rank of it has begun already.

    On a GPU the host holds little of a training, and the GPU refuses for itself.
    """
    if there is None or job.on_gpu:
        return
    least = local_ranks * job.step.least
    if least <= there:
        return
    fits = batch_for_memory(job, there // local_ranks)
    cure = "use a machine with more memory, more ranks on other hosts, or make [model] smaller"
    if fits:
        cure = f"set train.batch_nodes to at most {fits} (is {job.config.train.batch_nodes})"
    raise ConfigError(_refusal("training", job, least, there, local_ranks, cure))


def refuse_evaluation(job: PlannedJob, there: int | None, local_ranks: int) -> None:
    """Refuse an evaluation whose least memory is more than there is, unless it was given a limit of its own."""
    if there is None or job.on_gpu or job.limit_bytes is not None:
        return
    least = local_ranks * job.sweep(writes=False).least
    if least > there:
        share = format_bytes(max(1, round(ROOM * there / local_ranks)))
        cure = "use a machine with more memory"
        if model_class(job.config.model.name).sweeps:
            cure = f"give --memory {share}, and states are kept in files"
        raise ConfigError(_refusal("evaluation", job, least, there, local_ranks, cure))


def _refusal(what: str, job: PlannedJob, least: float, there: int, local_ranks: int, cure: str) -> str:
    ranks = "" if local_ranks == 1 else f" of {local_ranks} ranks on this host"
    return (
        f"this {what}{ranks} needs at least {least / 2**30:.1f} GiB more for {job.graph.nodes:,} nodes and "
        f"{job.graph.edges:,} edges, and {there / 2**30:.1f} GiB are available: {cure}, or try it with --force"
    )


def check_training(config: Config, place: Place, device: torch.device) -> None:
    """`refuse_training` by what this host has now; what cannot be told of a graph refuses nothing."""
    job = _known_job(config, place, device)
    if job is not None:
        refuse_training(job, available_bytes(), place.local_size)


def check_evaluation(
    run_dir: Path, partition: str | None, place: Place, device: torch.device, limit_bytes: int | None
) -> None:
    """`refuse_evaluation` of a run by what this host has now."""
    job = None
    with suppress(NfdistError):
        config = Run.open(run_dir).config
        if partition is not None:
            config = replace(config, data=replace(config.data, partition=partition))
        job = _known_job(config, place, device, limit_bytes)
    if job is not None:
        refuse_evaluation(job, available_bytes(), place.local_size)


def _known_job(config: Config, place: Place, device: torch.device, limit_bytes: int | None = None) -> PlannedJob | None:
    """The job by what the manifest alone says, in milliseconds; None where it is elsewhere, or says what is wrong."""
    partition = without_file_scheme(config.data.partition)
    if isinstance(partition, str) and is_uri(partition):
        return None
    try:
        graph = GraphCounts.of(Manifest.read(partition, []))
        check_settings(config)
    except NfdistError:  # whoever opens it for the work will say so
        return None
    on_gpu = is_gpu(model_device(config.model.name, device))
    return PlannedJob(config, graph, KnownRates(ROUGH, False), place.size, 1, on_gpu, limit_bytes)
