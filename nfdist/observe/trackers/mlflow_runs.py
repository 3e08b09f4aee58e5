"""MLflow: a run of it for every seed, in RUN_DIR/mlflow/mlflow.db or where MLFLOW_TRACKING_URI says."""

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import mlflow
from mlflow.entities import Metric, Param, RunTag

from nfdist.observe.trackers.tracker import Line, Sent, TrackedRun

RUN_TAG, SEED_TAG, SENT_TAG = "nfdist.run", "nfdist.seed", "nfdist.sent"
# MLflow itself would repeat a request of two minutes seven times, while the feed tries again as it is.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
MOST_METRICS, MOST_PARAMS, MOST_CHARACTERS = 1000, 100, 500  # of one request, and of the value of a parameter


def check() -> None:
    """Where runs go is found out by the feed: a server that is gone for a while should keep nobody from training."""
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # or it tells of every table that it makes
    logging.getLogger("alembic").setLevel(logging.WARNING)


class MLflowRuns:
    """A run is found again by its tags, on whatever host, and a tag of it says what was sent: it forgets nothing."""

    forgets = False

    def __init__(self, run: TrackedRun) -> None:
        self._run, self._runs = run, dict[int, str]()
        self._sent = dict[int, dict[str, int]]()
        folder = run.path.absolute() / "mlflow"
        uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
        if not uri:
            folder.mkdir(exist_ok=True)
            uri, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
        self._client: Any = mlflow.MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "nfdist")
        found = self._client.get_experiment_by_name(name)
        self._experiment = found.experiment_id if found else self._client.create_experiment(name, artifacts)

    def begin(self, seed: int, after: int) -> Sent:
        wanted = f"tags.`{RUN_TAG}` = '{self._run.id}' and tags.`{SEED_TAG}` = '{seed}'"
        found = self._client.search_runs([self._experiment], filter_string=wanted, max_results=1)
        if not found:
            tags = {RUN_TAG: self._run.id, SEED_TAG: str(seed), "nfdist.dir": str(self._run.path.absolute())}
            name = f"{self._run.name} seed {seed}"
            self._runs[seed] = self._client.create_run(self._experiment, run_name=name, tags=tags).info.run_id
            self._log_settings(seed)
            self._sent[seed] = {}
        else:
            self._runs[seed] = found[0].info.run_id
            self._client.update_run(self._runs[seed], status="RUNNING")
            self._sent[seed] = dict(json.loads(found[0].data.tags.get(SENT_TAG, "{}")))
        return self._sent[seed]

    def add(self, seed: int, lines: Sequence[Line]) -> None:
        metrics = list[Metric]()
        for line in lines:
            if len(metrics) + len(line.values) > MOST_METRICS:
                self._log(seed, metrics)
                metrics = []
            now = time.time_ns() // 1_000_000
            metrics += [Metric(name, value, now, line.step) for name, value in line.values.items()]
            self._sent[seed][line.kind] = line.step
        self._log(seed, metrics)

    def end(self, seed: int, result: Mapping[str, float]) -> None:
        now, step = time.time_ns() // 1_000_000, max(self._sent[seed].values(), default=0)
        self._log(seed, [Metric(f"result/{name}", value, now, step) for name, value in result.items()])

    def close(self, finished: bool) -> None:
        for run in self._runs.values():
            self._client.set_terminated(run, "FINISHED" if finished else "KILLED")
        self._runs.clear()

    def _log(self, seed: int, metrics: Sequence[Metric]) -> None:
        """With the last of them goes the tag that says how far they reach."""
        tag = RunTag(SENT_TAG, json.dumps(self._sent[seed]))
        self._client.log_batch(self._runs[seed], metrics=metrics, tags=[tag])

    def _log_settings(self, seed: int) -> None:
        settings = [Param(name, value[:MOST_CHARACTERS]) for name, value in self._run.settings.items()]
        for start in range(0, len(settings), MOST_PARAMS):
            self._client.log_batch(self._runs[seed], params=settings[start : start + MOST_PARAMS])
