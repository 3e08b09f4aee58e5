"""docs/configuration.md is what the settings say."""

import re
import runpy
import shlex
from pathlib import Path

from nfdist import settings
from nfdist.config import Config
from nfdist.fields import each_setting

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current() -> None:
    page = runpy.run_path(str(DOCS / "generate.py"))["configuration_page"]()
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == page, "run make docs"


def test_every_setting_has_a_line_and_a_meaning() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for name, field in each_setting(Config):
        section, _, key = name.rpartition(".")
        own = page.partition(f"## [{section}]\n")[2].partition("\n## ")[0]
        assert f"| `{key}` |" in own
        assert field.metadata["meaning"] in own


def test_the_examples_are_taken() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    commands = re.findall(r"^nfdist train my\.toml (.*)$", page, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        settings.parse(text, shlex.split(command))
