"""A real Prometheus reads a real training of two ranks, and answers what the dashboard and the alerts ask."""

import math
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.monitoring.monitoring_files import alerts, queries
from tests.monitoring.prometheus import Prometheus, free_ports, get, promtool, running_prometheus
from tests.training.building import build_partition
from tests.training.launching import Job, started, torchrun, write_config

pytestmark = pytest.mark.slow

NAME = "scraped"
# What this machine has none of. All else that the dashboard asks must have an answer.
WITHOUT_ANSWER = {'max by (run, rank) (nfdist_device_memory_bytes{run=~"$run"})'}


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("scraping") / "partition")


@contextmanager
def scraped_training(folder: Path, partition: Path, *overrides: str) -> Iterator[tuple[Job, Prometheus, list[int]]]:
    """Two ranks, and a Prometheus with the given configuration that scrapes them every second."""
    ports = free_ports(2)
    text = (folder / "prometheus.yml").read_text()
    for published, here in (("9400", str(ports[0])), ("9401", str(ports[1])), ("15s", "1s")):
        assert published in text
        text = text.replace(published, here)
    (folder / "prometheus.yml").write_text(text)
    config = write_config(folder.parent / "small.toml", partition, f"observe.port={ports[0]}", *overrides)
    command = torchrun("train", config, f"run.dir={folder.parent / NAME}")
    with started(command, folder.parent / "log") as job, running_prometheus(folder / "prometheus.yml") as prometheus:
        yield job, prometheus, ports


def test_every_query_of_the_dashboard_is_answered(folder: Path, partition: Path) -> None:
    seeds = ", ".join(map(str, range(200)))
    longer = ("train.epochs=20", "train.evaluate_every=4", f"train.seeds=[{seeds}]")
    with scraped_training(folder, partition, *longer) as (job, prometheus, ports):
        found = prometheus.wait_for("nfdist_smoothed_score")  # the first seed has ended, so all there is has happened
        assert {labels["run"] for labels, _ in found} == {NAME}
        prometheus.wait_for("rate(nfdist_step_seconds_count[10s])")
        up = {labels["instance"]: value for labels, value in prometheus.query('up{job="nfdist"}')}
        assert up == {f"127.0.0.1:{port}": 1.0 for port in ports}
        assert {labels["rank"] for labels, _ in prometheus.query("nfdist_step")} == {"0", "1"}

        for title, expression in queries():
            asked = expression.replace("$run", ".*").replace("$__rate_interval", "10s")
            answers = prometheus.query(asked)
            assert bool(answers) == (expression not in WITHOUT_ANSWER), f"{title}: {asked}"
            assert all(math.isfinite(value) and labels["run"] == NAME for labels, value in answers), f"{title}: {asked}"
        assert prometheus.ask("label/run/values")[-1] == NAME

        rules = prometheus.ask("rules")["groups"][0]["rules"]
        assert {rule["name"] for rule in rules} == set(alerts())
        assert {rule["health"] for rule in rules} == {"ok"}
        assert {rule["state"] for rule in rules} <= {"inactive", "pending"}

        for port in ports:
            exposition = get(f"127.0.0.1:{port}/metrics")
            assert promtool("check", "metrics", stdin=exposition) == ""
            assert " NaN" not in exposition
            told = set(re.findall(r"^nfdist_(?:checkpoint|disk)\w+", exposition, re.MULTILINE))
            assert bool(told) == (port == ports[0])  # rank 0 writes
        job.process.send_signal(signal.SIGTERM)
        job.wait()
        assert "stopped at step" in job.output


def test_a_training_that_diverges_is_seen_to(folder: Path, partition: Path) -> None:
    diverging = ("train.schedule=milestones", "train.milestones=[250,251,252,253]", "train.gamma=1e9")
    with scraped_training(folder, partition, "train.epochs=100", *diverging) as (job, prometheus, _):
        refused = prometheus.wait_for("max_over_time(nfdist_refused_steps_total[5m]) > 0")
        assert {value for _, value in refused} == {1.0}
        assert job.wait() != 0
        assert "is nan at step" in job.output or "is inf at step" in job.output
        prometheus.wait_for('ALERTS{alertname="NfdistRefusedStep", alertstate="firing"}')


def test_the_last_values_of_a_training_are_seen(folder: Path, partition: Path) -> None:
    with scraped_training(folder, partition, "train.epochs=40", "train.evaluate_every=40") as (job, prometheus, _):
        assert job.wait() == 0
        assert {value for _, value in prometheus.query("last_over_time(nfdist_step[5m])")} == {280.0}
        assert len(prometheus.query("last_over_time(nfdist_smoothed_score[5m])")) == 2 * 3
