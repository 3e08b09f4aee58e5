"""Workflows and the image call what is there; their own syntax is for linters, which are not among the dependencies."""

import re
from pathlib import Path

import pytest

from nfdist.settings import read_toml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
CONTAINERFILE = (ROOT / "launch" / "Containerfile").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_makes_what_the_makefile_has(path: Path) -> None:
    commands = re.findall(r"run: make (.+)", path.read_text())
    made = {word for command in commands for word in command.split() if re.fullmatch(r"[\w-]+", word)}
    assert made
    assert made <= TARGETS


def test_tests_run_on_every_python_from_the_least_one_on() -> None:
    (listed,) = re.findall(r"python: \[(.+)\]", (ROOT / ".github" / "workflows" / "test.yml").read_text())
    versions = re.findall(r'"3\.(\d+)"', listed)
    assert [int(version) for version in versions] == [10, 11, 12, 13]
    assert read_toml(ROOT / "pyproject.toml")["project"]["requires-python"] == f">=3.{versions[0]}"


def test_the_oldest_torch_and_dgl_that_are_promised_are_tested() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    promised = " ".join(read_toml(ROOT / "pyproject.toml")["project"]["dependencies"])
    for name, variable in (("torch", "TORCH"), ("dgl", "DGL")):
        (least,) = re.findall(rf"\b{name}>=([\d.]+)", promised)
        assert re.search(rf"\b{variable}={re.escape(least)}(\.0)?\b", text), name


def test_an_image_is_made_of_files_that_are_there() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", CONTAINERFILE, re.MULTILINE)
    sources = [word for words in copied for word in words.split()]
    assert {"pyproject.toml", "nfdist", "launch", "partitions", "constraints.txt"} <= set(sources)
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {"cpu", "cuda"} <= set(re.findall(r"^FROM \S+ AS (\w+)$", CONTAINERFILE, re.MULTILINE))
