"""Every package that is imported is declared, every one that is declared has its line in docs/dependencies.md."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nfdist.settings import read_toml
from tests.docs.pages import ROOT

PROJECT: dict[str, Any] = read_toml(ROOT / "pyproject.toml")["project"]
MODULES = {  # where they are not called alike
    "pillow": "PIL",
    "mlflow-skinny": "mlflow",
    "prometheus-client": "prometheus_client",
    "scikit-learn": "sklearn",
    "torch-geometric": "torch_geometric",
}
USED_BY_NFDIST = ("gpu", "mlflow", "tensorboard", "tune", "wandb")
EXTRAS = sorted(PROJECT["optional-dependencies"])
OWN = {"nfdist", "tests", *(path.stem for path in (ROOT / "benchmarks").rglob("*.py"))}
# Used without an import.
COMMANDS = {
    "alembic",
    "flask-cors",
    "moto",
    "mypy",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "setuptools",
    "sqlalchemy",
}


def packages(*extras: str) -> set[str]:
    """The names of the packages of every installation, or of some extras."""
    lists = [PROJECT["optional-dependencies"][extra] for extra in extras] or [PROJECT["dependencies"]]
    return {re.split(r"[^\w-]", requirement)[0] for entries in lists for requirement in entries} - {"nfdist"}


def listed(heading: str) -> set[str]:
    """The packages in the first column of the table under a heading."""
    section = (ROOT / "docs" / "dependencies.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def imports(folder: Path) -> Iterator[str]:
    """The first name of every module that is imported by the files of a folder, and is neither Python's nor ours."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            yield from {name.partition(".")[0] for name in names} - sys.stdlib_module_names - OWN


def modules(names: set[str]) -> set[str]:
    return {MODULES.get(name, name) for name in names}


def test_every_declared_package_has_its_line() -> None:
    assert listed("Of every installation") == packages()
    assert listed("Extras") == packages(*EXTRAS)


@pytest.mark.parametrize("folder", ["nfdist", "tests", "benchmarks"])
def test_every_imported_package_is_declared(folder: str) -> None:
    declared = packages() | (packages(*USED_BY_NFDIST) if folder == "nfdist" else packages(*EXTRAS))
    assert set(imports(ROOT / folder)) - modules(declared) - {"tomllib"} == set()


def test_every_declared_package_is_imported() -> None:
    assert modules(packages()) - set(imports(ROOT / "nfdist")) == set()
    used = {name for folder in ("nfdist", "tests", "benchmarks") for name in imports(ROOT / folder)}
    assert modules(packages(*EXTRAS) - COMMANDS) - used == set()


def test_tested_versions_are_of_declared_packages_or_of_what_they_need() -> None:
    pinned = {
        re.split(r"[^\w-]", line)[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"
    }
    assert packages() | packages(*EXTRAS) <= pinned
