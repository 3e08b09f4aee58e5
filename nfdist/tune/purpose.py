"""What a study searches for, checked before its first trial and kept beside its trials."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nfdist import files, layout, settings
from nfdist.config import Config
from nfdist.errors import CheckpointError, ConfigError
from nfdist.evaluation.metrics.metric import METRICS
from nfdist.evaluation.scores import resolve_metric
from nfdist.model.build import check_settings
from nfdist.model.task import Task
from nfdist.reading import reading
from nfdist.runs.migration import parse_config
from nfdist.store.store import Store
from nfdist.training.job import OWN_TO_HOST, flat
from nfdist.tune.default_spaces import default_space
from nfdist.tune.search_space import Space, parse_space

STUDY_FILE = layout.STUDY_FILE
FORMAT_VERSION = 1
MAY_DIFFER = (*OWN_TO_HOST, "run.device", "run.timeout_seconds")  # when a study goes on


@dataclass(frozen=True)
class Purpose:
    """A base configuration, the space around it, the metric, and the graph's checksum."""

    config: Config
    space: Space
    metric: str
    larger_is_better: bool
    partition: str

    @staticmethod
    def of(config: Config, search: Mapping[str, Any] | None, fixed: Collection[str]) -> "Purpose":
        """That of a configuration and its `[search]`, or the usual space of its model; `fixed` settings stay."""
        check_settings(config)
        if config.train.evaluate_every == 0:
            raise ConfigError("train.evaluate_every is 0, and trials are chosen by validation scores: set it to 1")
        given = default_space(config, fixed) if search is None else parse_space(search)
        space = {name: values for name, values in given.items() if name not in fixed}
        if not space:
            raise ConfigError("there is nothing to search for: name settings in [search] that no override fixes")
        store = Store.open(config.data.partition)
        task = Task(store.task, store.num_classes)
        metric = resolve_metric(config.evaluate.metric, task, config.evaluate.two_classes)
        quiet = replace(config, observe=replace(config.observe, port=0))  # as trials come and go, side by side
        return Purpose(quiet, space, metric, METRICS[metric].larger_is_better, store.fingerprint())

    def begin(self, folder: Path) -> None:
        """Write it, unless a study with the same one is there; refuse any other."""
        path = folder / STUDY_FILE
        if not path.exists():
            content = {
                "config": settings.dump(self.config),
                "search": self.tables(),
                "metric": self.metric,
                "larger_is_better": self.larger_is_better,
                "partition": self.partition,
            }
            files.replace_bytes(path, files.dump_checked(FORMAT_VERSION, content))
            return
        before = Purpose.read(folder)
        difference = self._difference(before)
        if difference:
            raise CheckpointError(f"{folder} holds a study with {difference}: go on with that, or choose another --out")

    @staticmethod
    def read(folder: Path) -> "Purpose":
        """That of a study that was begun."""
        path = folder / STUDY_FILE
        with reading(path, CheckpointError):
            written = path.read_bytes()
        try:
            content = files.load_checked(written, FORMAT_VERSION, "restore it, or begin a study in another --out")
        except ValueError as error:
            raise CheckpointError(f"{path} {error}") from error
        config, space = parse_config(content["config"], str(path)), parse_space(content["search"])
        return Purpose(config, space, content["metric"], content["larger_is_better"], content["partition"])

    def tables(self) -> dict[str, Any]:
        """The search space as `[search]` has it."""
        return {name: values.as_toml() for name, values in self.space.items()}

    def _difference(self, before: "Purpose") -> str:
        """What another purpose has differently; empty where one study has room for both."""
        then, now = flat(before.config), flat(self.config)
        for name, value in now.items():
            if name not in MAY_DIFFER and then[name] != value:
                return f"{name} = {then[name]}, not {value}"
        for name in {**before.tables(), **self.tables()}:
            earlier, later = (one.tables().get(name, []) for one in (before, self))
            if earlier != later:
                return f"[search] {name} over {settings.show(earlier)}, not {settings.show(later)}"
        return "another partition" if before.partition != self.partition else ""
