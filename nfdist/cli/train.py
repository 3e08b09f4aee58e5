"""nfdist train: train NodeFormer on a partition, alone or under torchrun (torchrun ... -m nfdist train ...)."""

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from nfdist import log
from nfdist.attempts import Attempts
from nfdist.config import Config
from nfdist.errors import NfdistError, WorldError
from nfdist.fields import each_setting
from nfdist.settings import emit
from nfdist.signals import exit_code

if TYPE_CHECKING:
    from nfdist.rendezvous import Place

LOADS = ("nfdist.training.job", "nfdist.plan.fitting")
EXAMPLES = (
    ("nfdist train cora-partition", "settings that suit the graph, a run in runs/cora-partition"),
    ("nfdist train cora.toml train.epochs=100 run.dir=runs/long", "a file's settings, some replaced"),
    ("nfdist train cora.toml --resume", "go on after a crash or Ctrl-C"),
    ("torchrun --standalone --nproc-per-node 2 -m nfdist train cora.toml", "two workers"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = describe_settings()
    parser.add_argument(
        "config",
        metavar="CONFIG.toml|PARTITION",
        help="the settings of the run, or a partition or its URI: settings that suit it",
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings that replace the file's")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in run.dir, or in run.mirror, if there is one"
    )
    parser.add_argument("--force", action="store_true", help="begin even where memory is too small by all estimates")
    parser.add_argument("--json", action="store_true", help="print the result as one line, the last of stdout")


def describe_settings() -> str:
    """Every setting, its default and its meaning."""
    settings = {name: (emit(field.default), field.metadata["meaning"]) for name, field in each_setting(Config)}
    width = max(len(f"{name}={default}") for name, (default, _) in settings.items())
    lines = [f"  {f'{name}={default}':{width}}  {meaning}" for name, (default, meaning) in settings.items()]
    return "\n".join(["settings and their defaults (docs/configuration.md has the values they take):", *lines])


def run(options: argparse.Namespace) -> int:
    from nfdist.rendezvous import Place

    place, attempts = Place.read(os.environ), Attempts(os.environ)
    try:
        return _run(options, place, attempts)
    except NfdistError as error:
        if error.everywhere and not isinstance(error, WorldError):
            attempts.give_up(2)
        raise


def _run(options: argparse.Namespace, place: "Place", attempts: Attempts) -> int:
    from nfdist.api import configure
    from nfdist.collectives import fail_together, together
    from nfdist.plan.fitting import check_training
    from nfdist.rendezvous import choose_device, idle_cores_warning, join
    from nfdist.training.job import begun_settings, train

    config, device, mistake = Config(), None, None
    try:
        config = configure(options.config, options.overrides, {} if options.resume else None)
        device = choose_device(config.run.device, place)
    except NfdistError as error:
        mistake = error
    with join(place, device, config.run.timeout_seconds) as world:
        fail_together(world, mistake)
        if options.resume:
            below = begun_settings(world, place, config.run)
            config = together(world, lambda: configure(options.config, options.overrides, below))
        warning = idle_cores_warning(place, os.environ)
        if warning and place.local_rank == 0:
            log.warn(warning)
        assert device is not None
        checked = device
        if not options.force:
            together(world, lambda: check_training(config, place, checked))
        result, stopped = train(config, place, world, device, options.resume)
    if stopped is not None:
        attempts.give_up(exit_code(stopped), only_failures=True)
        return exit_code(stopped)
    assert result is not None
    if place.rank == 0:
        print(describe(config, result))
        if options.json:
            print(json.dumps(result))
    return 0


def describe(config: Config, result: dict[str, Any]) -> str:
    from nfdist.evaluation.smoothed import SPLITS

    best, seconds = result["best"], result["seconds"]
    where = f"{config.run.dir}: trained in {seconds.get('train', 0.0):.1f} s"
    if best is None:
        return f"{where}, not evaluated"
    scores = ", ".join(f"{name} {best[name]:.4f}" for name in SPLITS if best[name] is not None)
    text = f"{where}; best {result['metric']} after epoch {best['epoch']}: {scores}"
    if result["test_std"] is not None:
        text += f"; test over {len(result['per_seed'])} seeds {result['test_mean']:.4f} ± {result['test_std']:.4f}"
    return "\n".join([text, *_describe_smoothed(result)])


def _describe_smoothed(result: dict[str, Any]) -> list[str]:
    """A line of its own, so that nobody takes one score for the other."""
    from nfdist.evaluation.smoothed import SPLITS

    of_best = [seed.get("smoothed") for seed in result["per_seed"] if seed["best"] == result["best"]]
    if not of_best or of_best[0] is None:
        return []
    scores = ", ".join(f"{name} {of_best[0][name]:.4f}" for name in SPLITS if of_best[0][name] is not None)
    text = f"  smoothed: {scores}"
    if result["smoothed_test_std"] is not None:
        mean, deviation = result["smoothed_test_mean"], result["smoothed_test_std"]
        text += f"; smoothed test over {len(result['per_seed'])} seeds {mean:.4f} ± {deviation:.4f}"
    return [text]
