"""The files of launch/monitoring, and what is in them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "launch" / "monitoring"
ALERTS = MONITORING / "alerts.yml"
ALERT_TESTS = Path(__file__).with_name("alerts.test.yml")
NAME = re.compile(r"nfdist_\w+")


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return loaded


def graphs() -> list[dict[str, Any]]:
    """The panels of the dashboard that show something, which rows do not."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard, and the title of its panel."""
    for panel in graphs():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def alerts() -> dict[str, str]:
    """The rules of the alerts by their names, each as text."""
    parts = re.split(r"^ +- alert: (\w+)$", ALERTS.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))
