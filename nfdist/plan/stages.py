"""The stages of a job and what each takes: memory a rank, traffic, disk and time, before anything is run."""

from dataclasses import dataclass
from itertools import pairwise

from nfdist.evaluation.predict import NODES_AT_ONCE
from nfdist.evaluation.sweep_memory import num_validated, row_numbers
from nfdist.graph.division import divide
from nfdist.model.build import model_class
from nfdist.plan.evaluation_work import smoothing_work, sweep_work, writing_work
from nfdist.plan.planned_job import DEVICE_CHUNK_BYTES, EVALUATION_BYTES, PlannedJob
from nfdist.plan.work import Work, step_work
from nfdist.store.hop_building import PATHS_PER_SECOND, HopSize
from nfdist.training.batch_counts import count_batch
from nfdist.training.step_traffic import step_traffic, summary_bytes

HOPS_BYTES, PATHS_SHARE = 165 << 20, 0.8  # of a process that builds hops, and of the bound that a build is refused by
METRICS_LINE_BYTES = 700
PREDICTION_CALLS = 1500  # until a run, its states and new nodes are read
PREDICTED_BYTES = 40  # of a node in predictions.parquet, as it is compressed
NEIGHBOR_BYTES = 40  # of a new node's neighbor, as it is looked up
# Of what threads do by themselves: in a step they wait for each other after every operation, in an evaluation after
# every sweep. Two threads on two quiet cores (benchmarks/plan.py).
STEP_SHARE, SWEEP_SHARE = 0.65, 0.8


@dataclass(frozen=True)
class PlannedStage:
    """One stage by its largest rank: `memory_bytes` is private memory of the host, `gpu_bytes` that of a GPU if used.

    `sent_bytes` are what a rank sends, in a training in each of its `steps`, which take `step_seconds`.
    """

    name: str
    memory_bytes: int
    sent_bytes: int
    disk_bytes: int
    seconds: float
    gpu_bytes: int | None = None
    steps: int | None = None
    step_seconds: float | None = None


def plan_stages(job: PlannedJob, *, trains: bool = True) -> list[PlannedStage]:
    """All stages in their order; of a run that was trained, those that are left."""
    hops = plan_hops(job)
    stages = [hops] if hops is not None else []
    stages += [plan_training(job)] if trains else []
    stages.append(plan_evaluation(job))
    return [*stages, plan_prediction(job)] if model_class(job.config.model.name).inductive else stages


def plan_hops(job: PlannedJob) -> PlannedStage | None:
    """The building of paths longer than one step, once a partition, where the configuration has any."""
    patterns = job.graph.patterns[: job.config.relation.num_patterns]
    if len(patterns) < 2:
        return None
    degree = patterns[0] / max(1, job.graph.nodes)
    sizes = [HopSize(round(edges), round(before * degree), job.graph.nodes) for before, edges in pairwise(patterns)]
    memory, disk = max(size.memory_bytes for size in sizes), sum(size.disk_bytes for size in sizes)
    seconds = sum(size.paths for size in sizes) / PATHS_PER_SECOND + disk / job.rates.rates.disk_written_bytes
    return PlannedStage("hops", round(HOPS_BYTES + PATHS_SHARE * memory), 0, round(disk), seconds)


def plan_training(job: PlannedJob) -> PlannedStage:
    """The training of all seeds, one after another, with its evaluations and checkpoints."""
    config, graph = job.config, job.graph
    train, batch = config.train, count_batch(config, graph, job.ranks)
    accumulated = min(train.accumulate, batch.batches)
    sent = step_traffic(config, graph, batch, job.ranks)
    work = step_work(config, graph, batch, job.ranks).times(accumulated)
    step_seconds = _seconds(job, work, STEP_SHARE) + _sending_seconds(job, sent)
    steps = -(-batch.batches // accumulated) * train.epochs * len(train.seeds)
    evaluations = -(-train.epochs // train.evaluate_every) * len(train.seeds) if train.evaluate_every else 0
    evaluating = _sweep_work(job).times(evaluations)
    if train.evaluate_every:
        evaluating += _smoothing_work(job, chooses=True).times(len(train.seeds))
    seconds = job.speed.start_seconds + steps * step_seconds + _seconds(job, evaluating, SWEEP_SHARE)
    checkpoint = job.weight_bytes * (4 if train.ema else 3)
    disk = (train.keep + 1) * len(train.seeds) * checkpoint + METRICS_LINE_BYTES * (steps + evaluations)
    gpu = round(job.device_bytes()) if job.on_gpu else None
    return PlannedStage(
        "train", round(job.training_bytes()), round(sent), round(disk), seconds, gpu, steps, step_seconds
    )


def plan_evaluation(job: PlannedJob) -> PlannedStage:
    """`nfdist evaluate` with all that it writes."""
    sweep, rates = job.sweep(writes=True), job.rates.rates
    files = _evaluated_bytes(job)
    sent = _swept_traffic(job)
    work = _sweep_work(job) + writing_work(job.config, job.graph, _own(job), _passes(job))
    work += _smoothing_work(job, chooses=not job.config.train.evaluate_every)  # as the end of a training has done
    on_disk = (files + sweep.in_files) / rates.disk_written_bytes
    seconds = rates.start_seconds + max(_seconds(job, work, SWEEP_SHARE), on_disk)  # files are written meanwhile
    gpu = round(sweep.held + sweep.work + DEVICE_CHUNK_BYTES) if job.on_gpu else None
    return PlannedStage(
        "evaluate",
        round(job.evaluation_bytes()),
        round(sent),
        round(files + sweep.in_files),
        seconds + _sending_seconds(job, sent),
        gpu,
    )


def plan_prediction(job: PlannedJob) -> PlannedStage:
    """`nfdist predict` of as many new nodes as it takes at once; what it reads of the states is mapped."""
    config, graph = job.config, job.graph
    numbers = row_numbers(config.model, graph.features, graph.outputs, gaps=graph.gaps)
    degree = sum(graph.patterns[: config.relation.num_patterns]) / max(1, graph.nodes)
    row = job.item_bytes * numbers + degree * NEIGHBOR_BYTES + 2 * graph.row_bytes(job.item_bytes)
    work = sweep_work(config, graph, NODES_AT_ONCE) + Work(calls=PREDICTION_CALLS)
    seconds = job.speed.start_seconds + work.seconds(job.speed)
    memory = EVALUATION_BYTES + job.weight_bytes + NODES_AT_ONCE * row
    return PlannedStage("predict", round(memory), 0, NODES_AT_ONCE * PREDICTED_BYTES, seconds)


def _own(job: PlannedJob) -> int:
    return max(map(len, divide(job.graph.parts, job.ranks)))


def _passes(job: PlannedJob) -> int:
    """How many times a sweep asks for the states of neighbors."""
    model, relation = job.config.model, job.config.relation
    if not model_class(model.name).sweeps:
        return model.layers if model_class(model.name).needs_graph else 0
    return (model.layers * (1 + relation.num_partials) + model.graph_layers) if relation.num_patterns else 0


def _evaluated_bytes(job: PlannedJob) -> float:
    """The files of an evaluation: states, predictions and embeddings."""
    graph, item, channels = job.graph, job.item_bytes, job.config.model.channels
    row: float = _passes(job) * channels * item + PREDICTED_BYTES
    row += item * job.config.relation.num_patterns if job.config.relation.normalize else 0
    row += 2 * graph.outputs * item if job.config.evaluate.smoothing == "auto" else 0
    row += channels * 4 + 8 if model_class(job.config.model.name).sweeps else 0
    return graph.nodes * row


def _swept_traffic(job: PlannedJob) -> float:
    """What a rank sends in an evaluation: summaries, and rows that others have edges from."""
    config = job.config
    if job.ranks == 1 or not model_class(config.model.name).sweeps:
        return 0.0
    copies = job.graph.nodes - _own(job)
    summaries = config.model.layers * summary_bytes(config, job.item_bytes, training=False)
    return _passes(job) * copies * config.model.channels * job.item_bytes + summaries


def _seconds(job: PlannedJob, work: Work, share: float) -> float:
    """Of all threads of a rank, which do such a share of what they would alone."""
    return work.seconds(job.speed) / (1.0 if job.threads == 1 else share)


def _sweep_work(job: PlannedJob) -> Work:
    own = _own(job) if model_class(job.config.model.name).divides else job.graph.nodes
    return sweep_work(job.config, job.graph, own)


def _smoothing_work(job: PlannedJob, *, chooses: bool) -> Work:
    if job.config.evaluate.smoothing != "auto":
        return Work()
    own = _own(job)
    return smoothing_work(job.graph, own, job.item_bytes, num_validated(job.config, job.graph, own), chooses=chooses)


def _sending_seconds(job: PlannedJob, sent_bytes: float) -> float:
    if job.ranks == 1:
        return 0.0
    calls = 4 + 4 * job.config.model.layers
    return sent_bytes / job.rates.link_bytes + calls * job.rates.link_latency_seconds
