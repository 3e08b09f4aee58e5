"""Configuration: what is written is read back, and every mistake is one line that names its cure."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

import pytest

import nfdist.settings
from nfdist.config import AttentionConfig, Config, IdglConfig, ModelConfig, RelationConfig
from nfdist.errors import ConfigError
from nfdist.settings import dump, load, parse


@dataclasses.dataclass(frozen=True)
class Inner:
    depth: int = 1
    word: Literal["a", "b"] = "a"


@dataclasses.dataclass(frozen=True)
class Everything:
    """One field of every type a setting may have, some of them with no section of nfdist behind them yet."""

    text: str = ""
    flag: bool = False
    count: int = 0
    number: float = 0.0
    counts: tuple[int, ...] = ()
    numbers: list[float] = dataclasses.field(default_factory=list)
    texts: tuple[str, ...] = ()
    choice: Literal["one", "two"] = "one"
    inner: Inner = dataclasses.field(default_factory=Inner)


@dataclasses.dataclass(frozen=True)
class EveryConfig:
    every: Everything = dataclasses.field(default_factory=Everything)


@pytest.fixture
def every_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nfdist.settings, "Config", EveryConfig)


def message(tables: Any, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(tables, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_empty_configuration_is_the_defaults() -> None:
    assert parse("") == parse({}) == Config()


def test_file_then_overrides(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[model]\nlayers = 3\nheads = 1\n[attention]\ntemperature = 1\n")
    config = load(path, ["model.heads=8", "relation.gate=identity", "model.residual=false"])
    assert config == Config(
        model=ModelConfig(layers=3, heads=8, residual=False),
        attention=AttentionConfig(temperature=1.0),
        relation=RelationConfig(gate="identity"),
    )
    assert type(config.attention.temperature) is float


def test_file_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbf[model]\r\nlayers = 3\r\n")
    assert load(path).model.layers == 3


def test_dumped_configuration_loads_as_itself(tmp_path: Path) -> None:
    config = Config(
        model=ModelConfig(dropout=1e-7, residual=False), attention=AttentionConfig(temperature=1e4, epsilon=1e-6)
    )
    path = tmp_path / "config.toml"
    path.write_text(dump(config), encoding="utf-8")
    assert load(path) == config


@pytest.mark.usefixtures("every_type")
@pytest.mark.parametrize(
    "section",
    [
        Everything(),
        Everything(choice="two", inner=Inner(depth=3, word="b")),
        Everything(text="plain", flag=True, count=-(2**63), number=-math.inf, counts=(1, 2, 3), numbers=[0.1, 1e300]),
        Everything(
            text='"quoted" \\back\\ \t\n\r\n\x1f\x7f\x85\u2028 = # [é 日本 🙂]', texts=("", "a, b", "']'", '"""')
        ),
    ],
)
def test_every_value_survives_a_round_trip(section: Everything) -> None:
    config: Any = EveryConfig(section)
    assert parse(dump(config)) == config


@pytest.mark.usefixtures("every_type")
@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("every.count=100_000", "count", 100_000),
        ("every.count = 3", "count", 3),
        ("every.number=1", "number", 1.0),
        ("every.number=1e-3", "number", 0.001),
        ("every.flag=true", "flag", True),
        ("every.counts=[1, 2]", "counts", (1, 2)),
        ("every.numbers=[1, 0.5]", "numbers", [1.0, 0.5]),
        ("every.text=random:0.5/0.25/0.25", "text", "random:0.5/0.25/0.25"),
        ("every.text=a=b", "text", "a=b"),
        ('every.text="7"', "text", "7"),
        ("every.text=", "text", ""),
        ("every.text=1\nflag = true", "text", "1\nflag = true"),
        ("every.choice=two", "choice", "two"),
        ("every.inner.depth=2", "inner", Inner(depth=2)),
        ("every.inner={depth = 2, word = 'b'}", "inner", Inner(2, "b")),
    ],
)
def test_override_is_toml_or_else_a_string(override: str, key: str, value: Any) -> None:
    config: Any = parse({}, [override])
    read = config.every
    assert read == dataclasses.replace(Everything(), **{key: value})
    assert type(getattr(read, key)) is type(value)


def test_a_section_in_a_section_takes_what_file_and_overrides_say() -> None:
    text = "[model.idgl]\nanchors = 3\nrefinements = 4\n[model]\nname = 'idgl'\n[relation]\norder = 1\n"
    config = parse(text, ["model.idgl.anchors=5"])
    assert config.model == ModelConfig(name="idgl", idgl=IdglConfig(anchors=5, refinements=4))
    assert "[model.idgl]\nanchors = 5\nrefinements = 4\n" in dump(config)


@pytest.mark.parametrize("key", ["anchors", "refinements", "graph_share", "similarity_threshold"])
def test_a_key_that_moved_is_taken_with_a_notice(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    for text, overrides in ((f"[model]\n{key} = 1", []), ("", [f"model.{key}=1"])):
        assert getattr(parse(text, overrides).model.idgl, key) == 1
        assert f"settings have other names now: model.{key} is model.idgl.{key}" in capsys.readouterr().err
    twice = message(f"[model]\n{key} = 1\n[model.idgl]\n{key} = 1")
    assert twice == f"model.{key} is now model.idgl.{key}: give it once"
    assert parse("", ["model.edge_dropout=0.5"]).model.dropedge.edge_dropout == 0.5


def test_last_override_wins() -> None:
    assert parse("", ["model.heads=2", "model.heads=3"]).model.heads == 3


@pytest.mark.parametrize(
    ("text", "overrides", "nearest"),
    [
        ("[model]\nhaeds = 2", [], "model.heads"),
        ("", ["model.layer=2"], "model.layers"),
        ("", ["model.temperature=1"], "attention.temperature"),
        ("[modle]\nheads = 2", [], "model"),
        ("", ["atention.kind=softmax"], "attention"),
        ("", ["zzz.kind=softmax"], ""),
        ("heads = 2", [], "model.heads"),
        ("[idgl]\nanchors = 2", [], "model.idgl?"),
        ("", ["model.idgl.anchor=2"], "model.idgl.anchors"),
        ("[model.idgl]\nheads = 2", [], "model.heads"),
        ("", ["model.idgl.anchors.few=2"], "model.idgl.anchors"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest_one(text: str, overrides: list[str], nearest: str) -> None:
    assert f"did you mean {nearest}" in message(text, *overrides).replace("the setting ", "")


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("model.layers=true", "an integer"),
        ("model.layers=2.0", "an integer"),
        ("model.layers=two", "an integer"),
        ("model.layers=[2]", "an integer"),
        ("model.dropout=false", "a number"),
        ("model.dropout=.5", "a number"),
        ("model.residual=1", "true or false"),
        ("model.residual=True", "true or false"),
        ("model.name=3", "a string"),
        ("model.name=[1, 2]", "a string"),
    ],
)
def test_wrong_type_names_key_value_and_type(override: str, wanted: str) -> None:
    key, _, value = override.partition("=")
    text = message("", override)
    assert f"{key} must be {wanted}" in text
    assert text.endswith((f"got {value}", f'got "{value}"'))


@pytest.mark.usefixtures("every_type")
@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("every.counts=3", "every.counts must be a list of integers, got 3"),
        ("every.counts=[1, true]", "every.counts[1] must be an integer, got true"),
        ("every.texts=[1]", "every.texts[0] must be a string"),
        (f"every.number=1{'0' * 400}", "every.number cannot be 1000"),
        ("every.choice=three", "every.choice must be one of one, two, got 'three'"),
        ("every.choice=2", "every.choice must be a string"),
        ("every.inner.word=c", "every.inner.word must be one of a, b, got 'c'"),
        ("every.inner.depth=c", "every.inner.depth must be an integer"),
        ("every.inner=3", "every.inner must be a section of settings, [every.inner] in TOML, got 3"),
        ("every.count.more=3", "every.count must be an integer"),
        ("every.text=\udcff", "every.text cannot be '\\udcff'"),
    ],
)
def test_values_inside_lists_and_beyond_range(override: str, expected: str) -> None:
    assert expected in message({}, override)


@pytest.mark.parametrize("value", ["2024-01-01", "{a = 1}"])
def test_toml_values_that_no_setting_takes(value: str) -> None:
    assert "model.name must be a string" in message("", f"model.name={value}")


def test_section_that_is_no_table() -> None:
    assert "model must be a section" in message("model = 3", "model.heads=2")


def test_value_refused_by_its_section() -> None:
    assert message("", "model.dropout=1.0") == "model.dropout must be at least 0 and below 1, got 1.0"


@pytest.mark.parametrize("override", ["", "model", "model.heads", "heads=2", ".heads=2", "model.=2", "=2"])
def test_override_without_section_key_and_value(override: str) -> None:
    assert message("", override).startswith(f"override {override!r} must be section.key=value")


@pytest.mark.parametrize(
    ("text", "line"),
    [("[model]\nheads == 2\n", 2), ("\n\n[model\n", 3), ("[model]\nheads = [1,\n", 2), ("[model]\n[model]\n", 2)],
)
def test_invalid_toml_names_file_and_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, [])
    assert f"{path} is not valid TOML" in str(caught.value)
    assert f"at line {line}" in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"name = '\xff'")
    for name, reason in (
        ("absent.toml", "No such file"),
        (".", "a folder that is no partition"),
        ("latin", "can't decode"),
    ):
        with pytest.raises(ConfigError, match=reason) as caught:
            load(tmp_path / name, [])
        assert str(tmp_path) in str(caught.value)


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'run\.dir cannot be "a\\u0000b": no name or path has a NUL'):
        parse({}, ['run.dir="a\\u0000b"'])
