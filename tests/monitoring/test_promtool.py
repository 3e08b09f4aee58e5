"""Prometheus' own tool accepts launch/monitoring and what a training tells, and sees every alert keep its promise."""

import json
import shutil
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from tests.monitoring.monitoring_files import ALERT_TESTS, alerts
from tests.monitoring.prometheus import promtool
from tests.observe.recorded import full_registry

pytestmark = pytest.mark.slow

DISCOVERY = "    kubernetes_sd_configs:\n      - role: pod # a target for every port of a container\n"


def without_kubernetes(folder: Path) -> Path:
    """The configuration for Kubernetes with targets from a file, since Debian's Prometheus cannot ask a cluster."""
    text = (folder / "prometheus-kubernetes.yml").read_text()
    assert DISCOVERY in text
    path = folder / "prometheus-pods.yml"
    path.write_text(text.replace(DISCOVERY, "    file_sd_configs:\n      - files: [pods.json]\n"))
    return path


def pod(name: str, port: str, number: int, phase: str = "Running") -> dict[str, object]:
    """What Prometheus would find out about a port of a pod."""
    facts = {"namespace": "graphs", "pod_name": name, "pod_phase": phase, "pod_container_name": "pytorch"}
    facts |= {"pod_container_port_name": port, "pod_label_training_kubeflow_org_job_name": "nfdist"}
    labels = {f"__meta_kubernetes_{key}": value for key, value in facts.items()}
    return {"targets": [f"10.0.0.1:{number}"], "labels": labels}


def test_configurations_and_rules_are_accepted(folder: Path) -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", folder / "alerts.yml")
    for config in (folder / "prometheus.yml", without_kubernetes(folder)):
        assert "SUCCESS" in promtool("check", "config", config)


def test_every_alert_fires_when_it_should_and_only_then(folder: Path) -> None:
    tests = folder.parent / "tests" / "monitoring" / ALERT_TESTS.name
    tests.parent.mkdir(parents=True)
    shutil.copy(ALERT_TESTS, tests)
    (folder.parent / "launch").mkdir()
    shutil.copytree(folder, folder.parent / "launch" / "monitoring")
    assert "SUCCESS" in promtool("test", "rules", tests)


def test_metrics_follow_the_conventions(folder: Path, tmp_path: Path) -> None:
    assert promtool("check", "metrics", stdin=generate_latest(full_registry(tmp_path)).decode()) == ""


def test_ports_of_running_pods_are_targets_and_no_others(folder: Path) -> None:
    config = without_kubernetes(folder)
    pods = [
        pod("nfdist-master-0", "metrics-0", 9400),
        pod("nfdist-worker-1", "metrics-1", 9401),
        pod("nfdist-worker-1", "pytorchjob-port", 23456),
        pod("nfdist-worker-2", "metrics-0", 9400, phase="Succeeded"),
    ]
    (folder / "pods.json").write_text(json.dumps(pods))
    found = json.loads(promtool("check", "service-discovery", config, "nfdist"))
    kept = [one["labels"] for one in found if one["labels"]]
    assert sorted((one["pod"], one["__address__"]) for one in kept) == [
        ("nfdist-master-0", "10.0.0.1:9400"),
        ("nfdist-worker-1", "10.0.0.1:9401"),
    ]
    assert {(one["namespace"], one["pytorchjob"]) for one in kept} == {("graphs", "nfdist")}
