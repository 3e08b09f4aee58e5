"""Imports point down only. The picture below is the law; a module that is missing from it fails."""

import ast
import re
from pathlib import Path

import pytest

LAYERS = """
cli public
api
tune plan reporting
training
evaluation partitioning
model
graph cleaning
attention store sparse.knn sparse.metis runs observe
children
collectives rendezvous remote sparse settings signals scratch
config world seeds log files reading attempts devices plugins layout
fields memory svg
errors
"""

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "nfdist"
RANKS = {name: rank for rank, line in enumerate(reversed(LAYERS.strip().splitlines())) for name in line.split()}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or not path.name.startswith("__"))


def layer_of(module: str) -> str | None:
    """The layer of a module such as `nfdist.sparse.knn`: its longest name in the picture; None for the public list."""
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in RANKS:
            return ".".join(parts[:length])
    assert not parts, f"{module} is in no layer: give it a place in tests/test_layers.py"
    return None


def imports_of(path: Path, package: str = "nfdist") -> set[str]:
    """Every module of a package that a file imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            base = node.module
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if is_module(name) else base for name in names}
    return {name for name in found if name.split(".")[0] == package}


def is_module(name: str) -> bool:
    path = PACKAGE.parent / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = layer_of(".".join(("nfdist", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"))
    for name in imports_of(path):
        other = layer_of(name)
        assert other is not None or name == "nfdist", name
        if other is None or other == own:  # the package itself: its version
            continue
        assert own is not None
        assert RANKS[other] < RANKS[own], f"{own} must not import {other} ({name})"


def test_the_dense_definition_is_imported_by_nothing() -> None:
    assert not [path for path in MODULES if "nfdist.attention.dense" in imports_of(path)]


def test_the_type_of_a_device_is_asked_for_in_few_places() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in MODULES if re.search(r"device\.type|is_cuda", path.read_text())}
    allowed = {name for name in found if name.startswith(("attention/ops/", "sparse/"))}
    assert found - allowed == {"devices.py", "rendezvous.py"}


@pytest.mark.parametrize(
    ("name", "door"),
    [("dgl", "sparse/dgl_door.py"), ("optuna", "tune/optuna_door.py"), ("duckdb", "partitioning/duckdb_door.py")],
)
def test_only_one_module_imports_what_may_be_missing(name: str, door: str) -> None:
    pattern = rf"^\s*(import|from) {name}\b"
    importers = [path for path in MODULES if re.search(pattern, path.read_text(), re.MULTILINE)]
    assert importers == [PACKAGE / door]


def test_triton_is_imported_by_the_kernels_alone() -> None:
    importers = [path for path in MODULES if re.search(r"^\s*(import|from) triton\b", path.read_text(), re.MULTILINE)]
    assert {path.parent for path in importers} == {PACKAGE / "attention" / "ops" / "triton_kernels"}


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_imports_from_another(path: Path) -> None:
    others = {name for name in imports_of(path, "tests") if name.split(".")[-1].startswith("test_")}
    assert not others, "what tests share belongs in a module beside them"
