"""MLflow's sqlite store has each number of a run once, whoever began it and wherever it goes on."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from nfdist.config import TRACKERS
from nfdist.observe.trackers.feed import Feed
from nfdist.observe.trackers.sender import Sender
from nfdist.observe.trackers.tracker import TrackedRun, check_trackers
from nfdist.runs.metrics_file import MetricsFile
from tests.observe.trackers.needing import need
from tests.observe.trackers.reading import scalars_of
from tests.observe.trackers.remembering import lines_of, tracked_run, write_lines

# SQLAlchemy and MLflow warn each other of what they will no longer do.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RESULT = {"per_seed": [{"seed": 0, "best": {"valid": 0.5}}]}


@pytest.fixture(autouse=True)
def mlflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need("mlflow")
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_trackers(["mlflow"])


def stored(uri: str, experiment: str = "nfdist") -> list[tuple[Any, dict[str, list[tuple[int, float]]]]]:
    """The runs of an experiment, and all of their numbers."""
    import mlflow

    client = mlflow.MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    histories = {
        run.info.run_id: {
            name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        for run in runs
    }
    return [(run, histories[run.info.run_id]) for run in runs]


def own_store(run: TrackedRun) -> str:
    return f"sqlite:///{run.path / 'mlflow' / 'mlflow.db'}"


def test_a_run_has_its_numbers_settings_and_result(tmp_path: Path) -> None:
    run, file = tracked_run(tmp_path / "run"), MetricsFile(tmp_path / "metrics.jsonl")
    lines = lines_of(0, range(1, 401))  # more numbers than MLflow takes at once
    write_lines(file.path, lines)
    Feed("mlflow", run, file.lines_after).close(RESULT, seconds=60)
    ((made, history),) = stored(own_store(run))
    assert history == {**scalars_of(lines), "result/best/valid": [(400, 0.5)]}
    assert made.data.params == run.settings
    assert (made.data.tags["nfdist.run"], made.data.tags["nfdist.seed"]) == (run.id, "0")
    assert (made.info.status, made.info.run_name) == ("FINISHED", "run seed 0")
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("run", "metrics.jsonl")] == []


def test_a_run_that_is_cut_back_goes_on_in_the_same_run_also_without_what_was_remembered(tmp_path: Path) -> None:
    run, file = tracked_run(tmp_path / "run"), MetricsFile(tmp_path / "metrics.jsonl")
    lines = lines_of(0, range(1, 21))
    for attempt, (kept, reached) in enumerate([(0, 12), (8, 9), (5, 20)]):
        write_lines(file.path, [line for line in lines if line["step"] <= kept])
        sender = Sender("mlflow", run, file.lines_after)
        write_lines(file.path, [line for line in lines if line["step"] <= reached])
        sender.send(everything=True)
        if attempt == 1:
            sender.close(finished=False)
            (run.path / "mlflow" / "sent.json").unlink()
            ((made, _),) = stored(own_store(run))
            assert made.info.status == "KILLED"
    ((made, history),) = stored(own_store(run))
    assert history == scalars_of(lines)
    assert made.info.status == "RUNNING"


def test_a_store_elsewhere_and_an_experiment_are_those_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, file = f"sqlite:///{tmp_path / 'shared.db'}", MetricsFile(tmp_path / "metrics.jsonl")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "graphs")
    lines = [*lines_of(0, range(1, 4)), *lines_of(1, range(1, 4))]
    write_lines(file.path, lines)
    for host in ("one", "other"):  # which has nothing of the run but its lines
        run = tracked_run(tmp_path / host)
        Sender("mlflow", run, file.lines_after).send(everything=True)
        shutil.rmtree(run.path)
    found = {made.data.tags["nfdist.seed"]: history for made, history in stored(uri, "graphs")}
    assert found == {str(seed): scalars_of([line for line in lines if line["seed"] == seed]) for seed in (0, 1)}


def test_a_server_that_is_gone_is_told_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    file = MetricsFile(tmp_path / "metrics.jsonl")
    write_lines(file.path, lines_of(0, range(1, 4)))
    Feed("mlflow", tracked_run(tmp_path / "run"), file.lines_after).close(RESULT, seconds=60)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("nfdist: warning: mlflow ")]
    assert len(told) == 2
    assert "was not updated, the training goes on" in told[0]
    assert "lacks the last of" in told[1]
    assert "mlflow" in TRACKERS
