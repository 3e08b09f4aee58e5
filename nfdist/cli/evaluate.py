"""nfdist evaluate: the exact scores of a run on its whole graph, alone or under torchrun (-m nfdist evaluate ...)."""

import argparse
import json
import os
from contextlib import ExitStack
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, get_args

from nfdist import log
from nfdist.attempts import Attempts
from nfdist.config import Device, RunConfig
from nfdist.errors import ConfigError, NfdistError
from nfdist.memory import parse_bytes
from nfdist.runs.ownership import LOCK_SUFFIX, owning
from nfdist.runs.run import EVALUATIONS_FILE, Run
from nfdist.signals import StopRequest, exit_code, tell_of_stop

if TYPE_CHECKING:
    from nfdist.evaluation.evaluator import Wanted
    from nfdist.evaluation.follow import FollowedRun
    from nfdist.model.loading import TrainedModel
    from nfdist.rendezvous import Place
    from nfdist.world import World

LOADS = ("nfdist.evaluation.evaluator", "nfdist.evaluation.follow", "nfdist.plan.fitting")
EXAMPLES = (
    ("nfdist evaluate runs/cora", "scores, predictions.parquet, embeddings.parquet and states for nfdist predict"),
    ("nfdist evaluate runs/cora --memory 4GiB --no-outputs", "of a large graph, without its files"),
    ("nfdist evaluate runs/cora --follow --until-done", "score every checkpoint while a training goes on"),
    ("torchrun --standalone --nproc-per-node 2 -m nfdist evaluate runs/cora", "two workers"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="the directory of a training's results")
    parser.add_argument("--partition", metavar="DIR", help="where the run's graph is, if no longer in data.partition")
    parser.add_argument("--memory", metavar="SIZE", help="the most a process may hold privately, such as 4GiB")
    parser.add_argument(
        "--device",
        choices=get_args(Device),
        help="auto: a GPU for each rank where there are any (default: auto, and cpu with --follow)",
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="evaluate this one (default: the best, else the last)")
    parser.add_argument("--force", action="store_true", help="begin even where memory is too small by all estimates")
    parser.add_argument("--json", action="store_true", help="print the outcome as one line, the last of stdout")
    written = parser.add_argument_group("what is written into RUN_DIR")
    written.add_argument("--no-outputs", action="store_true", help="no predictions.parquet and embeddings.parquet")
    written.add_argument("--no-states", action="store_true", help="no states/, which nfdist predict needs")
    written.add_argument("--top-k", type=int, default=3, metavar="K", help="likely classes of a node (default 3)")
    written.add_argument("--probabilities", action="store_true", help="a column more for the probability of each class")
    written.add_argument("--edges", action="store_true", help="edges.parquet: the attention weight of every edge")
    written.add_argument(
        "--top-neighbors", default="", metavar="IDS|FILE", help="neighbors.parquet: whom these nodes attend to most"
    )
    written.add_argument("--count", type=int, default=10, help="how many of these neighbors (default 10)")
    following = parser.add_argument_group("following a training")
    following.add_argument("--follow", action="store_true", help="score every new checkpoint, until stopped")
    following.add_argument("--until-done", action="store_true", help="or until the training is over")
    following.add_argument("--poll-seconds", type=float, default=5.0, metavar="S", help="between looks (default 5)")


def run(options: argparse.Namespace) -> int:
    from nfdist.collectives import fail_together, raised_on_all_ranks, together
    from nfdist.evaluation.evaluator import evaluate_run
    from nfdist.model.loading import run_directory
    from nfdist.plan.fitting import check_evaluation
    from nfdist.rendezvous import Place, choose_device, idle_cores_warning, join

    place, attempts = Place.read(os.environ), Attempts(os.environ)
    wanted_device: Device = options.device or ("cpu" if options.follow else "auto")
    device, mistake = None, None
    try:
        device = choose_device(wanted_device, place, "--device ")
    except NfdistError as error:
        mistake = error
    with join(place, device, RunConfig().timeout_seconds) as world:
        fail_together(world, mistake)
        assert device is not None
        warning = idle_cores_warning(place, os.environ)
        if warning and place.local_rank == 0:
            log.warn(warning)
        with raised_on_all_ranks():
            wanted, run_dir = wanted_of(options), run_directory(options.run_dir)
            memory_bytes = parse_bytes("--memory", options.memory) if options.memory else None
        if not options.force:
            given = run_dir, options.partition, place, device, memory_bytes
            together(world, lambda: check_evaluation(*given) if place.rank == 0 else None)
        if options.follow:
            where = {"memory_bytes": memory_bytes, "device": device, "wanted_device": wanted_device}
            return follow_run(options, where, place, world, attempts)
        outcome = evaluate_run(
            run_dir,
            wanted,
            place,
            world,
            checkpoint=options.checkpoint,
            partition=options.partition,
            memory_bytes=memory_bytes,
            device=device,
            wanted_device=wanted_device,
        )
    if place.rank == 0:
        print(describe(options.run_dir, outcome))
        if options.json:
            print(json.dumps(outcome))
    return 0


def wanted_of(options: argparse.Namespace) -> "Wanted":
    """What the options ask to write."""
    from nfdist.evaluation.evaluator import Wanted

    if options.follow:
        if options.checkpoint or options.edges or options.top_neighbors:
            raise ConfigError(
                "--follow only scores every checkpoint: leave --checkpoint, --edges and --top-neighbors away"
            )
        if options.poll_seconds <= 0:
            raise ConfigError(f"--poll-seconds must be positive, got {options.poll_seconds}")
        return Wanted()
    return Wanted(
        outputs=not options.no_outputs,
        top_k=options.top_k,
        states=not options.no_states,
        edges=options.edges,
        chosen=options.top_neighbors,
        count=options.count,
        probabilities=options.probabilities,
        smoothing=True,
    )


def follow_run(
    options: argparse.Namespace, where: dict[str, Any], place: "Place", world: "World", attempts: Attempts
) -> int:
    """Score every checkpoint of a run as it comes. Every rank must call this."""
    from nfdist.collectives import together
    from nfdist.evaluation.follow import FollowedRun

    with ExitStack() as stack:

        def open_run() -> FollowedRun | None:
            if world.rank != 0:
                return None
            run = Run.open(Path(options.run_dir))
            stack.enter_context(owning(run.path / f"follow{LOCK_SUFFIX}", "followed", place.launch))
            return FollowedRun(run)

        count, stopped = _follow(options, where, place, world, together(world, open_run))
    if world.rank == 0:
        print(f"{options.run_dir}: {_count(count, 'checkpoint')} evaluated, see {EVALUATIONS_FILE}")
        if options.json:
            print(json.dumps({"evaluated": count}))
    if stopped is None:
        return 0
    tell_of_stop(f"{stopped.name}: stopped; run the same command again")
    attempts.give_up(exit_code(stopped), only_failures=True)
    return exit_code(stopped)


def _follow(
    options: argparse.Namespace,
    where: dict[str, Any],
    place: "Place",
    world: "World",
    followed: "FollowedRun | None",
) -> tuple[int, Signals | None]:
    """How many checkpoints were scored, and the signal that any rank was stopped by."""
    import torch

    from nfdist.collectives import largest
    from nfdist.evaluation.evaluator import Evaluator, Wanted
    from nfdist.evaluation.follow import follow

    opened: list[Evaluator] = []  # with the first model, which says which graph

    def score(trained: "TrainedModel") -> dict[str, Any]:
        if not opened:
            opened.append(Evaluator(trained, place, world, partition=options.partition, **where))
        outcome = opened[0].evaluate(trained, Path(options.run_dir), Wanted())
        if world.rank == 0:
            print(describe(options.run_dir, outcome), flush=True)
        return outcome

    with StopRequest() as stop:
        count = follow(
            world,
            followed,
            score,
            lambda: stop.received is not None,
            until_done=options.until_done,
            poll_seconds=options.poll_seconds,
        )
        received = int(largest(world, torch.tensor([stop.received or 0]), "stopped?").item())
        if received:
            stop.heed()
    return count, Signals(received) if received else None


def describe(run_dir: str, outcome: dict[str, Any]) -> str:
    """The outcome as a small table."""
    from nfdist.evaluation.smoothed import SPLITS

    lines = [
        f"{run_dir}: seed {outcome['seed']} after epoch {outcome['epoch']}, step {outcome['step']}, on "
        f"{outcome['nodes']:,} nodes in {_count(outcome['parts'], 'part')}, {_count(outcome['world_size'], 'rank')}",
        f"  {'':16}{outcome['metric']:>12}{'loss':>12}{_other_metric(outcome):>12}".rstrip(),
        *(_line(name, outcome, name) for name in SPLITS),
        *_describe_smoothed(outcome.get("smoothed")),
        f"  in {outcome['seconds']:.1f} s{_on(outcome['device'])}; a process held at most "
        f"{outcome['peak_private_bytes'] / 2**30:.2f} GiB, "
        f"{outcome['peak_memory_bytes'] / 2**30:.2f} GiB with mapped files",
    ]
    return "\n".join(lines)


def _describe_smoothed(smoothed: dict[str, Any] | None) -> list[str]:
    """Lines of their own, so that nobody takes one score for the other."""
    from nfdist.evaluation.smoothed import SPLITS

    if smoothed is None:
        return []
    strengths, parts = smoothed["strengths"], []
    if strengths["correction"] is not None:
        parts.append(f"correction {strengths['correction']} of scale {strengths['scale']}")
    if strengths["smoothing"] is not None:
        parts.append(f"smoothing {strengths['smoothing']}")
    by = f"{' and '.join(parts)}, in {smoothed['seconds']:.1f} s" if parts else "nothing: no validation score gained"
    return [*(_line(f"smoothed {name}", smoothed, name) for name in SPLITS), f"  smoothed by {by}"]


def _on(device: str) -> str:
    """Which device it was, unless it is the CPU."""
    return "" if device == "cpu" else f" on {device}"


def _other_metric(outcome: dict[str, Any]) -> str:
    """What every table shows beside the metric, unless it is that."""
    return "" if outcome["metric"] == "accuracy" else "accuracy"


def _line(title: str, scores: dict[str, Any], name: str) -> str:
    line = f"  {title:16}{_number(scores[name]):>12}{_number(scores['loss'][name]):>12}"
    other = scores.get(_other_metric(scores))
    return f"{line}{_number(other[name]):>12}" if other else line


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
