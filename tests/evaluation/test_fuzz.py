"""Whatever is in a manifest, a configuration or a checkpoint's state, its own checksum included: read, or one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from nfdist import settings
from nfdist.config import Config
from nfdist.files import dump_checked
from nfdist.model.build import build_model
from nfdist.model.loading import read_model
from nfdist.runs.checkpoint import Checkpoint
from nfdist.store.store import Store
from tests.partitioning import fuzzing as fuzz
from tests.store.building import build_graph, write

ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    fuzz.ODD_NUMBERS,
    st.sampled_from([1.5, -0.0, 1e300, "", ".", "..", "x", "a\0b", "../x", "é" * 300, [], {}, [[]], {"a": []}]),
)
ODD_DTYPES = st.sampled_from([torch.float16, torch.int64, torch.bool, torch.complex64, torch.float64])


def altered(data: Any, content: Any) -> Any:
    """A JSON value with another value, or none, somewhere in it."""
    if not isinstance(content, dict | list) or not content or data.draw(st.integers(0, 9)) == 0:
        return data.draw(ODD_VALUES)
    places = list(content) if isinstance(content, dict) else list(range(len(content)))
    place = data.draw(st.sampled_from(places))
    copy = content.copy()
    if data.draw(st.integers(0, 4)) == 0:
        del copy[place]
    elif isinstance(copy, dict) and data.draw(st.integers(0, 9)) == 0:
        copy[data.draw(st.sampled_from(["", ".", "x", "a\0b", "../y"]))] = copy.pop(place)
    else:
        copy[place] = altered(data, copy[place])
    return copy


def rewritten(data: Any, written: bytes) -> bytes:
    """A file of `dump_checked` with other bytes, or with another content under a checksum that fits it."""
    if data.draw(st.integers(0, 3)) == 0:
        return bytes(data.draw(fuzz.damaged(written)))
    content = json.loads(written)
    version = content.pop("format_version")
    del content["checksum"]
    other = altered(data, content)
    return dump_checked(version, other if isinstance(other, dict) else {"state": other})


def manifest_case(folder: Path) -> Callable[[Any], str]:
    write(folder / "p", build_graph(), 2)
    path = folder / "p" / "manifest.json"
    whole = path.read_bytes()

    def case(data: Any) -> str:
        path.write_bytes(rewritten(data, whole))
        return fuzz.outcome(lambda: Store.open(folder / "p"))

    return case


def config_case(folder: Path) -> Callable[[Any], str]:
    whole = settings.dump(Config()).splitlines()

    def case(data: Any) -> str:
        lines = list(whole)
        place = data.draw(st.integers(0, len(lines) - 1))
        name = lines[place].partition(" = ")[0]
        value = data.draw(st.sampled_from(["-1", "0", "1e20", "inf", "nan", '"x"', "[]", "{}", "true", "", "[" * 3000]))
        lines[place] = data.draw(st.sampled_from([f"{name} = {value}", "[model]", "[odd]", f"{name}{name} = 1", ""]))
        text = "\n".join(lines).encode()
        (folder / "c.toml").write_bytes(data.draw(fuzz.damaged(text)) if data.draw(st.integers(0, 3)) == 0 else text)
        return fuzz.outcome(lambda: settings.load(folder / "c.toml"))

    return case


def checkpoint_case(folder: Path) -> Callable[[Any], str]:
    config = settings.parse({}, ["model.channels=4", "model.heads=1", "model.layers=1"])
    weights = build_model(config, 3, 2).state_dict()
    state = {"seed": 0, "epoch": 1, "step": 5, "partition": "x" * 32, "best": {"step": 3, "valid": 0.5}}
    counts = iter(range(1 << 30))

    def case(data: Any) -> str:
        own = dict(weights)
        name = data.draw(st.sampled_from(sorted(own)))
        kind = data.draw(st.sampled_from(["state", "shape", "dtype", "gone"]))
        if kind == "shape":
            own[name] = own[name].reshape(-1)[:2].reshape(data.draw(st.sampled_from([(1, 2), (2,), (1, 1, 2)])))
        elif kind == "dtype":
            own[name] = own[name].to(data.draw(ODD_DTYPES))
        elif kind == "gone":
            del own[name]
        path = Checkpoint.save(folder / str(next(counts)), {"weights": own}, state).path
        if kind == "state":
            (path / "state.json").write_bytes(rewritten(data, (path / "state.json").read_bytes()))
        return fuzz.outcome(lambda: read_model(config, Checkpoint.open(path)))

    return case


CASES = {"manifest": manifest_case, "config": config_case, "checkpoint": checkpoint_case}


@pytest.mark.parametrize("name", CASES)
def test_a_few_altered_files_are_read_or_one_line(name: str, tmp_path: Path) -> None:
    fuzz.try_some(CASES[name](tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_altered_files_are_read_or_one_line(name: str, tmp_path: Path) -> None:
    fuzz.try_many(name, CASES[name](tmp_path))
