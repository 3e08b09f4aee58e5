"""nfdist tune: search for settings by validation scores, alone, with several workers, or under torchrun."""

import argparse
import json
import math
import os
import time
from contextlib import ExitStack
from pathlib import Path
from signal import SIGINT, Signals
from typing import TYPE_CHECKING, Any

from nfdist import log, settings
from nfdist.attempts import Attempts
from nfdist.config import Config
from nfdist.errors import CheckpointError, ConfigError, NfdistError, WorldError
from nfdist.signals import Stopped, exit_code, tell_of_stop

if TYPE_CHECKING:
    from nfdist.rendezvous import Place
    from nfdist.tune.purpose import Purpose
    from nfdist.tune.search import Limits
    from nfdist.tune.study import Study

LOADS = ("nfdist.tune.search", "nfdist.tune.study_files")
EXAMPLES = (
    ("nfdist tune cora-partition --trials 30", "the usual search space of the model"),
    ("nfdist tune cora.toml model.layers=2 --hours 1 --workers 2", "the [search] of a file, with a setting fixed"),
    ("nfdist tune cora.toml --out runs/cora-tune --json", "the same command again goes on"),
)
SHOWN_TRIALS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="CONFIG.toml|PARTITION", help="the settings to start from, and [search], what to vary"
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings that all trials have")
    parser.add_argument("--trials", type=int, default=50, metavar="N", help="how many trials in all (default 50)")
    parser.add_argument("--hours", type=float, default=2.0, metavar="H", help="begin no more after that (default 2)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes side by side (default 1)")
    parser.add_argument("--out", metavar="DIR", help="the folder of the study (default: run.dir with -tune behind it)")
    parser.add_argument("--json", action="store_true", help="print the outcome as one line, the last of stdout")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)  # of the study in CONFIG


def run(options: argparse.Namespace) -> int:
    from nfdist.rendezvous import Place

    place, attempts = Place.read(os.environ), Attempts(os.environ)
    try:
        return _work(options) if options.worker else _run(options, place, attempts)
    except NfdistError as error:
        if error.everywhere and not isinstance(error, WorldError):
            attempts.give_up(2)
        raise


def _run(options: argparse.Namespace, place: "Place", attempts: Attempts) -> int:
    from nfdist.api import configure
    from nfdist.collectives import broadcast_text, fail_together, together
    from nfdist.rendezvous import choose_device, idle_cores_warning, join
    from nfdist.tune.search import search
    from nfdist.tune.study import owned_study
    from nfdist.tune.study_files import write_outputs

    started, cores_before = time.monotonic(), core_seconds()
    config, purpose, device, mistake = Config(), None, None, None
    try:
        limits = _limits(options, place)
        config = configure(options.config, options.overrides)
        purpose = _purpose(options, config)
        device = choose_device(config.run.device, place)
    except NfdistError as error:
        mistake = error
    with join(place, device, config.run.timeout_seconds) as world, ExitStack() as stack:
        fail_together(world, mistake)
        assert purpose is not None
        assert device is not None
        warning = idle_cores_warning(place, os.environ)
        if warning and place.local_rank == 0:
            log.warn(warning)
        folder = Path(options.out or f"{config.run.dir}-tune")

        def begin() -> "Study | None":
            return stack.enter_context(owned_study(folder, purpose, place.launch)) if world.rank == 0 else None

        study = together(world, begin, CheckpointError)
        if options.workers > 1:
            assert study is not None
            stopped = _run_workers(options, folder)
        else:
            stopped = search(purpose.config, study, place, world, device, limits)
        if study is not None:
            study.interrupt_running()
            seconds = {"seconds": time.monotonic() - started, "core_seconds": core_seconds() - cores_before}
            summary = {**write_outputs(study, config), **seconds}
            print(describe(study, summary))
        done = broadcast_text(world, "" if study is None or study.best() is None else "yes", 0)
    if stopped is not None:
        tell_of_stop(f"{stopped.name}: stopped; the same command goes on")
        attempts.give_up(exit_code(stopped), only_failures=True)
        return exit_code(stopped)
    if not done:
        raise _nothing(options)
    if place.rank == 0 and options.json:
        print(json.dumps(summary))
    return 0


def core_seconds() -> float:
    """How long cores have been at work for this process and for workers that have ended; other ranks have their own."""
    return sum(os.times()[:4])


def _limits(options: argparse.Namespace, place: "Place") -> "Limits":
    from nfdist.tune.search import Limits

    for name in ("trials", "workers"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} must be at least 1, got {getattr(options, name)}")
    cores = len(os.sched_getaffinity(0))
    if options.workers > cores:
        raise ConfigError(f"--workers must be at most {cores}, one for each core of this host, got {options.workers}")
    if not 0 < options.hours < math.inf:
        raise ConfigError(f"--hours must be above 0, got {options.hours:g}")
    if options.workers > 1 and place.size > 1:
        raise ConfigError("--workers is for one host without torchrun, whose workers train each trial together")
    return Limits(options.trials, time.monotonic() + 3600 * options.hours)


def _purpose(options: argparse.Namespace, config: Config) -> "Purpose":
    from nfdist.tune.purpose import Purpose

    path = Path(options.config)
    search_tables = settings.read_toml(path).get("search") if path.is_file() else None
    fixed = [override.partition("=")[0].strip() for override in options.overrides]
    return Purpose.of(config, search_tables, fixed)


def _run_workers(options: argparse.Namespace, folder: Path) -> Signals | None:
    from nfdist.tune.trial_workers import run_workers

    words = ["tune", str(folder), "--worker", "--trials", str(options.trials), "--hours", str(options.hours)]
    try:
        codes = run_workers(options.workers, words)
    except Stopped as stop:
        return stop.signal
    except KeyboardInterrupt:
        return SIGINT
    if all(codes):
        raise NfdistError(f"no worker came to the end, exit codes {', '.join(map(str, codes))}: see what they said")
    return None


def _work(options: argparse.Namespace) -> int:
    """One of several workers of a study that another process owns."""
    from nfdist.rendezvous import Place, choose_device, join
    from nfdist.tune.purpose import Purpose
    from nfdist.tune.search import search
    from nfdist.tune.study import Study
    from nfdist.tune.trial_workers import end_with_starter

    end_with_starter()
    folder, place = Path(options.config), Place()
    purpose = Purpose.read(folder)
    device = choose_device(purpose.config.run.device, place)
    with join(place, device, purpose.config.run.timeout_seconds) as world:
        stopped = search(purpose.config, Study(folder, purpose), place, world, device, _limits(options, place))
    return 0 if stopped is None else exit_code(stopped)


def _nothing(options: argparse.Namespace) -> NfdistError:
    error = NfdistError(
        f"no trial came to the end within {options.trials} trials and {options.hours:g} hours: see the lines above, "
        "give more of either, or narrow [search]"
    )
    error.everywhere = True
    return error


def describe(study: "Study", summary: dict[str, Any]) -> str:
    """The best trials as a small table."""
    from nfdist.tune.search import shown
    from nfdist.tune.study_files import BEST_FILE

    counts = summary["trials"]
    lines = [
        f"{study.folder}: {counts['complete']} trials to the end, {counts['pruned']} pruned, {counts['failed']} failed "
        f"in {summary['seconds']:.1f} s"
    ]
    ranked = study.ranked()[:SHOWN_TRIALS]
    if ranked:
        lines.append(f"  {'trial':>5}  {'valid':>8}  {'seconds':>8}  settings ({study.purpose.metric})")
    for one in ranked:
        seconds = f"{one.seconds:.1f}" if one.seconds is not None else "-"
        lines.append(f"  {one.number:>5}  {one.score:>8.4f}  {seconds:>8}  {shown(one.values)}")
    if ranked:
        lines.append(f"train the best one: nfdist train {study.folder / BEST_FILE}")
    return "\n".join(lines)
