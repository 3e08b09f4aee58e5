"""Write docs/configuration.md from the settings themselves: `make docs`."""

from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, get_args, get_origin

from nfdist.config import Config
from nfdist.evaluation.metrics.metric import METRICS
from nfdist.fields import Bounds
from nfdist.model.build import MODELS
from nfdist.settings import emit
from nfdist.training.job import FREE_TO_CHANGE, OWN_TO_HOST

PAGE = Path(__file__).with_name("configuration.md")
INTRODUCTION = """\
# Configuration

Written by `make docs` from `nfdist/config.py`.

A configuration is a TOML file, and every key has a default, so that a file says only what is other than usual:

```toml
[data]
partition = "/tmp/graph"

[model]
channels = 64

[train]
epochs = 200
seeds = [0, 1, 2]
```

Overrides of the form `section.key=value` come after the file on the command line, and win. A value is TOML where it can
be read as such, and text otherwise:

```text
nfdist train my.toml model.heads=2 attention.kind=softmax "train.seeds=[3, 4]" data.split=random:0.5/0.25/0.25
nfdist train my.toml model.name=idgl model.idgl.anchors=500 relation.order=1
```

A name that is unknown is refused with the nearest one that is known, and a value that cannot work with what would.
The run directory keeps the resolved configuration, all keys written out, in `config.toml`. A run is always read with
the values it was written with, whatever the defaults of later versions are.
"""
KINDS = {
    str: "text",
    bool: "true or false",
    int: "integer",
    float: "number",
    tuple[int, ...]: "list of integers",
    tuple[str, ...]: "list of texts",
}


def configuration_page() -> str:
    """The whole page."""
    blocks = [INTRODUCTION, _resuming()]
    for section in fields(Config):
        blocks += _section(section.name, section.type)
    return "\n".join(blocks)


def _resuming() -> str:
    free, own = (", ".join(f"`{name}`" for name in names) for names in (FREE_TO_CHANGE, OWN_TO_HOST))
    text = (
        f"With `--resume` a run goes on, and these settings may be others than before: {free}. Any other must be as it "
        f"was. Between the hosts of one training only these may differ: {own}."
    )
    return fill(text, 120, break_on_hyphens=False) + "\n"


def _section(name: str, section: Any) -> Iterator[str]:
    """The table of a section, and of those inside it."""
    own = [one for one in fields(section) if not is_dataclass(one.type)]
    rows = [f"| `{one.name}` | {_values(one)} | `{emit(one.default)}` | {one.metadata['meaning']} |" for one in own]
    table = "\n".join(["| key | values | default | meaning |", "|---|---|---|---|", *rows])
    yield f"## [{name}]\n\n{section.__doc__}\n\n{table}\n"
    for one in fields(section):
        if is_dataclass(one.type):
            yield from _section(f"{name}.{one.name}", one.type)


def _values(one: Field[Any]) -> str:
    """What a setting may be."""
    if get_origin(one.type) is Literal:
        return " ".join(f"`{emit(choice)}`" for choice in get_args(one.type))
    choices = {"name": MODELS, "metric": ("auto", *METRICS)}.get(one.name)
    if choices:
        return " ".join(f"`{emit(choice)}`" for choice in choices)
    kind, bounds = KINDS[one.type], one.metadata["bounds"]  # type: ignore[index]
    return f"{kind}, {_range(bounds)}" if bounds else kind


def _range(bounds: Bounds) -> str:
    least, most = (f"{end:,.0f}" if end == int(end) else f"{end:g}" for end in (bounds.least, bounds.most))
    text = f"{least} to below {most}" if bounds.below else f"{least} to {most}"
    return f"0 or {text}" if bounds.or_zero else text


if __name__ == "__main__":
    PAGE.write_text(configuration_page(), encoding="utf-8")
