"""What launch/monitoring asks for is what a training tells, and what it tells is in the documents."""

import itertools
import re
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric

from tests.monitoring.monitoring_files import ALERT_TESTS, MONITORING, NAME, ROOT, alerts, dashboard, graphs, queries
from tests.observe.recorded import full_registry

PAGE = ROOT / "docs" / "monitoring.md"
CONFIGURATIONS = ("prometheus.yml", "prometheus-kubernetes.yml")
SHOWN = {"timeseries", "stat"}
COLUMNS = 24  # of Grafana's grid


def families(disk: Path) -> list[Metric]:
    return list(full_registry(disk).collect())


def exported(disk: Path) -> set[str]:
    """The names under which Prometheus stores what a training tells."""
    text = generate_latest(full_registry(disk)).decode()
    return {name for name in re.findall(r"^(\w+){", text, re.MULTILINE) if not name.endswith("_created")}


def test_alerts_and_dashboard_ask_for_what_is_exported(tmp_path: Path) -> None:
    asked = {name for _, query in queries() for name in NAME.findall(query)}
    asked |= {name for rule in alerts().values() for name in NAME.findall(rule.partition("annotations:")[0])}
    asked |= set(NAME.findall(dashboard()["templating"]["list"][1]["definition"]))
    assert asked - exported(tmp_path) == set()
    assert len(asked) > 30


def test_every_metric_has_its_line_in_the_documents_and_no_other(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `(nfdist_\w+)` \| (\w+) \|([^|]*)\|([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    suffixes = {"counter": "_total"}
    told = {}
    for family in families(tmp_path):
        labels = {name for sample in family.samples for name in sample.labels} - {"run", "rank", "le"}
        words = " ".join(f"`{name}`" for name in sorted(labels))
        told[family.name + suffixes.get(family.type, "")] = (family.type, words, family.documentation)
    assert {name: (kind, labels.strip(), text.strip()) for name, kind, labels, text in rows} == told


def test_every_alert_says_what_to_do_and_is_tested_both_ways() -> None:
    tests = ALERT_TESTS.read_text()
    assert len(alerts()) >= 7
    for name, rule in alerts().items():
        for part in ("expr:", "severity:", "summary:", "description:"):
            assert part in rule, f"{name} has no {part}"
        assert re.search(rf"alertname: {name}\n +exp_alerts:\n", tests), f"{name} is not seen to fire"
        assert re.search(rf"alertname: {name} }}", tests), f"{name} is not seen to keep quiet"
        assert f"`{name}`" in PAGE.read_text()


def test_the_dashboard_has_what_grafana_wants() -> None:
    board = dashboard()
    assert {"title", "uid", "schemaVersion", "time", "refresh", "templating", "panels"} <= board.keys()
    assert [(one["name"], one["type"]) for one in board["templating"]["list"]] == [
        ("datasource", "datasource"),
        ("run", "query"),
    ]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(titles)) == len(titles)
    for panel in graphs():
        assert panel["type"] in SHOWN
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_lie_on_the_grid_beside_each_other() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["w"] > 0 < place["h"]
        assert 0 <= place["x"] <= COLUMNS - place["w"]
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        for cell in itertools.product(columns, rows):
            other = taken.setdefault(cell, panel["title"])
            assert other == panel["title"], f"{panel['title']} lies over {other}"


def test_queries_are_of_the_chosen_run_and_of_grafanas_own_interval() -> None:
    for title, query in queries():
        assert query.count("(") == query.count(")"), title
        for name, braces in re.findall(r"(nfdist_\w+)(\{[^}]*\})?", query):
            assert 'run=~"$run"' in braces, f"{title}: {name}"
        assert set(re.findall(r"\[(.*?)\]", query)) <= {"$__rate_interval"}, title


def test_configurations_name_files_that_are_there_and_the_ports_that_trainings_take() -> None:
    for name in CONFIGURATIONS:
        text = (MONITORING / name).read_text()
        for file in re.findall(r"\b[\w-]+\.yml\b", text.partition("global:")[2]):
            assert (MONITORING / file).exists(), f"{name} names {file}"
    assert "[127.0.0.1:9400, 127.0.0.1:9401]" in (MONITORING / "prometheus.yml").read_text()
    pods = (ROOT / "launch" / "kubernetes.yaml").read_text()
    ports = re.findall(r"- name: (metrics-\d+)\n", pods)
    (kept,) = re.findall(r"regex: (pytorch;.*)$", (MONITORING / CONFIGURATIONS[1]).read_text(), re.MULTILINE)
    assert ports
    assert all(re.fullmatch(kept, f"pytorch;{port}") for port in ports)
    assert "- name: pytorch " in pods
