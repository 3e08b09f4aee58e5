"""What the documents tell a user to type works as it stands, from the top of each page to its end."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nfdist.cli.main import main
from tests.docs.pages import PAGES, ROOT, blocks, commands

RUN = [page for page in PAGES if {"sh", "python"} & {language for language, _ in blocks(page)}]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_followed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for language, text in blocks(page):
        text = text.replace("/tmp/", f"{tmp_path}/")
        if language == "python":
            exec(compile(text, str(page), "exec"), names)
        elif language == "sh":
            for command in commands(text):
                run(command)


def run(command: str) -> None:
    """A command of nfdist within this process, which has paid for the imports; others as a shell has them."""
    if command.startswith("nfdist "):
        assert main(shlex.split(command, comments=True)[1:]) == 0, command
        return
    beside = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{beside}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-euc", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_the_readme_is_among_them() -> None:
    assert ROOT / "README.md" in RUN
