"""Weights & Biases: a run of it for every seed, grouped by the name of ours; WANDB_MODE=offline needs no network."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import wandb

from nfdist.errors import ConfigError
from nfdist.observe.trackers.tracker import Line, Sent, TrackedRun


def check() -> None:
    """Refuse to begin where nobody is logged in, since W&B would ask at the terminal."""
    if os.environ.get("WANDB_MODE", "online") == "online" and not wandb.login(prompt=False, verify=False):
        raise ConfigError(
            "observe.trackers has wandb, and nobody is logged in: run wandb login, set WANDB_API_KEY, or set "
            "WANDB_MODE=offline to write to the run directory only"
        )


class WandbRuns:
    """A run has an id that follows from ours, so that it is found again. W&B takes no step twice and forgets none."""

    forgets = False

    def __init__(self, run: TrackedRun) -> None:
        self._run, self._runs = run, dict[int, Any]()

    def begin(self, seed: int, after: int) -> Sent:
        self._run.path.joinpath("wandb").mkdir(exist_ok=True)  # or W&B would write to the folder for temporary files
        self._runs[seed] = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "nfdist"),
            id=f"{self._run.id}-{seed}",
            name=f"{self._run.name} seed {seed}",
            group=self._run.name,
            dir=str(self._run.path),
            config=dict(self._run.settings),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )
        return {}

    def add(self, seed: int, lines: Sequence[Line]) -> None:
        for line in lines:
            self._runs[seed].log(line.values, step=line.step)

    def end(self, seed: int, result: Mapping[str, float]) -> None:
        self._runs[seed].summary.update({f"result/{name}": value for name, value in result.items()})

    def close(self, finished: bool) -> None:
        for run in self._runs.values():
            run.finish(exit_code=0 if finished else 1)
        self._runs.clear()
