"""What fits: the batch for a given memory, and the refusal of what cannot fit by any means."""

from collections.abc import Callable

from nfdist.errors import ConfigError
from nfdist.memory import format_bytes
from nfdist.model.build import model_class
from nfdist.plan.planned_job import PlannedJob
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
