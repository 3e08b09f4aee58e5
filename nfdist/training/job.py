"""A training job from start to end: what all ranks check first, the run directory, the seeds, the result."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from signal import Signals
from typing import Any

import torch
from prometheus_client import CollectorRegistry

import nfdist
from nfdist import log, settings
from nfdist.collectives import agree, broadcast_text, raised_on_all_ranks, together
from nfdist.config import Config, RunConfig
from nfdist.devices import allocated_bytes, matrix_products
from nfdist.errors import CheckpointError, ConfigError, DivergedError
from nfdist.evaluation.evaluation_graph import EvaluationGraph, open_evaluation_graph
from nfdist.evaluation.scores import check_metric, resolve_metric
from nfdist.evaluation.smoothed import SPLITS
from nfdist.fields import each_setting
from nfdist.files import existing_ancestor
from nfdist.graph.graph import Graph
from nfdist.memory import keep_freed_memory
from nfdist.model.build import check_settings, check_task, model_device, weights_dtype
from nfdist.model.task import Task
from nfdist.observe.metrics import RunMetrics
from nfdist.observe.server import serve
from nfdist.observe.trackers.feed import Feeds
from nfdist.observe.trackers.tracker import TrackedRun, check_trackers
from nfdist.rendezvous import Place
from nfdist.runs.mirror import Mirror, check_free, fetch_mirrored
from nfdist.runs.ownership import owning_directory
from nfdist.runs.run import RUN_FILE, Run
from nfdist.signals import StopRequest, tell_of_stop
from nfdist.training.precision import check_precision
from nfdist.training.restoring import Restored, read_weights, restore_newest
from nfdist.training.result import peak_memory_bytes, summarize_seeds, versions
from nfdist.training.row_cache import make_row_cache
from nfdist.training.smoothed_best import smoothed_best
from nfdist.training.trainer import EvaluationHook, Job, Trainer
from nfdist.world import World

# What may differ between the hosts of a job, and what may change when a run goes on.
OWN_TO_HOST = ("data.partition", "run.dir", "observe.host", "observe.port", "observe.last_scrape_seconds")
FREE_TO_CHANGE = (
    *OWN_TO_HOST,
    *(
        "data.cache",
        "data.cache_memory",
        "observe.trackers",
        "run.mirror",
        "run.device",
        "run.timeout_seconds",
        "train.epochs",
        "train.early_stop",
    ),
    *("train.evaluate_every", "train.checkpoint_every", "train.keep", "evaluate.smoothing"),
)


def train(
    config: Config,
    place: Place,
    world: World,
    device: torch.device,
    resume: bool,
    trial: EvaluationHook | None = None,
    goes_on: str = "continue with --resume",
) -> tuple[dict[str, Any] | None, Signals | None]:
    """The result of a run on every rank, or the signal that stopped it. Every rank must call this.

    With a `trial`, which is told of every evaluation and may end the training, no run directory is made. `goes_on` says
    how a training that was stopped does.
    """
    same = {name: value for name, value in flat(config).items() if name not in OWN_TO_HOST}
    agree(world, {"nfdist": nfdist.__version__, "torch": torch.__version__, "code": code_digest(), **same})
    with raised_on_all_ranks():
        check_settings(config)
        check_metric(config.evaluate.metric)
    tracked = config.observe.trackers if trial is None and world.rank == 0 else ()
    together(world, lambda: check_trackers(tracked), ConfigError)
    device = _usable_device(config, world, device, quiet=trial is not None)
    graph = Graph.open(config, place, world)
    task = Task(graph.store.task, graph.store.num_classes)
    with raised_on_all_ranks():
        check_task(config.model.name, task.kind)
    start = config.train.init_from
    dtype = weights_dtype(config)
    keep_freed_memory()
    initial_weights = together(world, lambda: read_weights(Path(start), dtype) if start else None, CheckpointError)
    with ExitStack() as stack:
        bf16, tf32 = config.train.precision == "bf16", config.train.tf32
        stack.enter_context(matrix_products(device, bf16=bf16, tf32=tf32))
        stop = StopRequest()
        metrics = stack.enter_context(_served_metrics(config, place, world, device, stop))
        evaluation_graph = _evaluation_graph(config, graph, world, dtype, device)
        job = Job(
            config=config,
            world=world,
            device=device,
            dtype=dtype,
            graph=graph,
            evaluation_graph=evaluation_graph,
            task=task,
            metric=resolve_metric(config.evaluate.metric, task, config.evaluate.two_classes),
            metrics=metrics,
            stop=stop,
            initial_weights=initial_weights,
            trial=trial,
            row_cache=make_row_cache(config, graph.store, device, world, dtype),
            local_ranks=place.local_size,
        )
        earlier, restored = None, None
        if trial is None:
            earlier, restored = _find_run(config, place, world, graph, resume, stack)
        with raised_on_all_ranks():
            if world.rank == 0:
                check_precision(config.train, device, begun=earlier is not None)
        with job.stop:
            return _train_seeds(job, place, earlier, restored, stack, goes_on)


def _train_seeds(
    job: Job, place: Place, earlier: Run | None, restored: Restored | None, stack: ExitStack, goes_on: str
) -> tuple[dict[str, Any] | None, Signals | None]:
    seeds, run, begun = job.config.train.seeds, earlier, False
    mirror: Mirror | None = None
    feeds: Feeds | None = None
    finished: list[dict[str, Any]] = list(restored.state["finished"]) if restored else []
    for seed in seeds[len(finished) :]:
        own = restored if restored is not None and restored.state["seed"] == seed else None
        with raised_on_all_ranks():
            trainer = Trainer(job, seed, finished, own)
        if not begun:  # only now, since what a trainer refuses should leave no run behind
            run, begun = _begin_run(job, place, earlier, restored), True
            mirror, feeds = _begin_mirror(job, run, stack), _begin_feeds(run, stack)
        stopped = trainer.run(run, mirror)
        if stopped is not None:
            if run is not None:
                tell_of_stop(f"{stopped.name}: stopped at step {trainer.state.step}; {goes_on}")
            return None, stopped
        smoothed = smoothed_best(job, trainer, run)
        job.metrics.record_smoothed(job.metric, {name: smoothed[name] for name in SPLITS} if smoothed else {})
        finished = [*finished, {**trainer.result(), "smoothed": smoothed}]
    result = {
        "metric": job.metric,
        **summarize_seeds(finished),
        "restarts": place.restarts,
        "world_size": job.world.size,
        "versions": versions(job.device),
        "peak_memory_bytes": peak_memory_bytes(job.device),
    }
    if not begun:  # every seed was finished before: the mirror may lack what was
        _begin_mirror(job, run, stack)
        feeds = _begin_feeds(run, stack)
    if run is not None:
        run.write_result(result)
    if feeds is not None:
        feeds.close(result)
    return result, None


def _usable_device(config: Config, world: World, device: torch.device, *, quiet: bool) -> torch.device:
    """The device, or the CPU for a model that has no code for it."""
    usable = model_device(config.model.name, device)
    if usable != device and world.rank == 0 and not quiet:
        log.notice(f"model.name = {config.model.name} has no code for GPUs: it is trained on the CPU")
    return usable


def begun_settings(world: World, place: Place, where: RunConfig) -> dict[str, Any]:
    """The settings of the run to continue, by sections, as rank 0 has them; none where no run was begun.

    Whatever defaults have become since, a run goes on as it began. A run that is not here is fetched from its mirror.
    Every rank must call this.
    """
    path = Path(where.dir)

    def find() -> str:
        if world.rank != 0:
            return ""
        found = Run.holds_run(path) or (bool(where.mirror) and fetch_mirrored(path, where.mirror, place.launch))
        return settings.dump(Run.open(path).config) if found else ""

    begun = together(world, find, CheckpointError)
    return settings.parse_toml(broadcast_text(world, begun, 0), str(path))


def flat(config: Config) -> dict[str, str]:
    """Every setting by its full name, as text."""
    return {name: str(attrgetter(name)(config)) for name, _ in each_setting(Config)}


def code_digest() -> str:
    """A name for the code of nfdist on this host."""
    package = Path(nfdist.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()


def _find_run(
    config: Config, place: Place, world: World, graph: Graph, resume: bool, stack: ExitStack
) -> tuple[Run | None, Restored | None]:
    """The run to continue, on rank 0, which owns its directory until `stack` ends, and on every rank what it left."""
    path = Path(config.run.dir)

    def find() -> Run | None:
        if world.rank != 0:
            return None
        stack.enter_context(owning_directory(path, "train", "trained", place.launch))
        run = Run.open(path) if Run.holds_run(path) else None
        if run is None or not (resume or _restarted(run, place)):
            return None
        _check_unchanged(run, config)
        return run

    run = together(world, find, CheckpointError)
    goes_on = broadcast_text(world, "yes" if resume or run is not None else "no", 0)
    restored = restore_newest(world, path, config.train.seeds) if goes_on == "yes" else None
    if restored is not None and restored.state["partition"] != graph.store.fingerprint():
        with raised_on_all_ranks():
            raise CheckpointError(
                f"the run was trained on another partition than {graph.store.directory}: give data.partition that one"
            )
    return run, restored


def _begin_run(job: Job, place: Place, earlier: Run | None, restored: Restored | None) -> Run | None:
    """The run directory, on rank 0, as it was at the checkpoint, or a new one. Every rank must call this."""

    def begin() -> Run | None:
        if job.world.rank != 0 or job.trial is not None:
            return None
        if earlier is None and job.config.run.mirror:
            check_free(job.config.run.mirror)
        run = Run.create(Path(job.config.run.dir), job.config, place.launch) if earlier is None else earlier
        run = run if earlier is None else run.reconfigured(job.config)
        if restored is None:  # metrics tell of steps that came to no checkpoint
            if earlier is not None:
                log.notice(f"{run.path} has no whole checkpoint: its training begins anew")
            run.metrics_file.truncate(0)
        else:
            _take_up(run, restored, job.device)
        return run

    return together(job.world, begin, CheckpointError)


def _begin_mirror(job: Job, run: Run | None, stack: ExitStack) -> Mirror | None:
    """The mirror of the run, on rank 0, until `stack` ends and with it the last copy. Every rank must call this."""
    uri = job.config.run.mirror if run is not None else ""
    mirror = together(job.world, lambda: Mirror(run, uri) if run is not None and uri else None, CheckpointError)
    if mirror is not None:
        stack.callback(mirror.close)
    return mirror


def _begin_feeds(run: Run | None, stack: ExitStack) -> Feeds | None:
    """The feeds of the run's trackers, on rank 0, until `stack` ends; their failures are told, and end nothing."""
    if run is None:
        return None
    facts = TrackedRun(run.id or run.path.name, run.path.name, run.path, flat(run.config))
    feeds = Feeds(run.config.observe.trackers, facts, run.metrics_file.lines_after)
    stack.callback(feeds.close)
    return feeds


def _restarted(run: Run, place: Place) -> bool:
    """Whether the launcher that began the run has started this process, again or after losing another host."""
    return run.owner == place.launch != ""


def _check_unchanged(run: Run, config: Config) -> None:
    """Refuse to go on with settings that may not change."""
    before, now = flat(run.config), flat(config)
    for name, value in now.items():
        if value != before[name] and name not in FREE_TO_CHANGE:
            raise CheckpointError(
                f"{run.path} was begun with {name} = {before[name]}, not {value}: leave it as it was, or begin a run "
                "in another run.dir (train.init_from takes weights along)"
            )
    if config.train.schedule == "cosine" and config.train.epochs != run.config.train.epochs:
        log.notice(
            f"train.epochs was {run.config.train.epochs} and is {config.train.epochs}: from here on the learning rate "
            "falls to another end, and the run is not that of so many epochs at once"
        )


def _take_up(run: Run, restored: Restored, device: torch.device) -> None:
    """Make the run directory what it was at the checkpoint."""
    log.notice(f"continuing seed {restored.state['seed']} after step {restored.state['step']}")
    if restored.rank == 0:  # otherwise the metrics are on another host, and these begin here
        seed, seeds = restored.state["seed"], run.config.train.seeds
        run.metrics_file.truncate(restored.state["metrics_bytes"])
        run.forget_after(seed, restored.state["step"])
        for later in seeds[seeds.index(seed) + 1 :]:  # whose checkpoints were all damaged: they are trained again
            run.forget_after(later, -1)
        run.mark_again(seed)
    now, before = versions(device), restored.state["versions"]
    for name in {**now, **before}:
        if now.get(name) != before.get(name):
            was, found = before.get(name, "not there"), now.get(name, "not there")
            log.notice(f"{name} was {was} before and is {found}: results may differ in their last digits")


def _evaluation_graph(
    config: Config, graph: Graph, world: World, dtype: torch.dtype, device: torch.device
) -> EvaluationGraph | None:
    if config.train.evaluate_every == 0:
        return None
    return open_evaluation_graph(config, graph.store, graph.hops, world, dtype=dtype, device=device)


@contextmanager
def _served_metrics(
    config: Config, place: Place, world: World, device: torch.device, stop: StopRequest
) -> Iterator[RunMetrics]:
    """The instruments of this rank, behind a port of their own; one who scrapes it sees its last values."""
    registry = CollectorRegistry()
    port = config.observe.port + place.local_rank if config.observe.port else 0
    path, last = Path(config.run.dir), config.observe.last_scrape_seconds
    disk = existing_ancestor(path / RUN_FILE) if world.rank == 0 else None
    with serve(registry, config.observe.host, port) as server:
        try:
            yield RunMetrics(registry, path.name, world.rank, place.restarts, allocated_bytes(device), disk)
        except DivergedError:
            server.await_scrape(last)
            raise
        if stop.received is None:
            server.await_scrape(last)
