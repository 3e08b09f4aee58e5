"""A recipe's values have the types and bounds that everything else relies on, wherever they come from."""

from pathlib import Path

import pytest

from nfdist.cli.main import main
from nfdist.errors import ConfigError
from nfdist.partitioning.recipe import Recipe


def build(folder: Path, **lines: str) -> Recipe:
    path = folder / "recipe.toml"
    given = {"source": '"cora"', "parts": "2", **lines}
    path.write_text("\n".join(f"{key} = {value}" for key, value in given.items()))
    return Recipe.build(str(path), {})


def test_values_of_the_right_type_are_kept(tmp_path: Path) -> None:
    recipe = build(tmp_path, directed="true", feature_columns='["a", "b"]', scale="2", split='"official"', seed="7")
    assert recipe.directed is True
    options = recipe.options
    assert (options.feature_columns, options.scale, options.split, options.seed) == (("a", "b"), 2.0, "official", 7)
    assert isinstance(options.scale, float)
    assert build(tmp_path).options.split is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("directed", '"no"', 'directed must be true or false, got "no"'),
        ("directed", "0", "directed must be true or false, got 0"),
        ("seed", '"x"', 'seed must be an integer, got "x"'),
        ("seed", "-1", "seed must be between 0 and 9223372036854775807, got -1"),
        ("seed", "1" + "0" * 20, "seed cannot be 100000000000000000000: integers have at most 64 bits"),
        ("seed", "0x" + "f" * 5000, "seed cannot be a value of thousands of digits"),
        ("feature_columns", '"abc"', 'feature_columns must be a list of strings in double quotes, got "abc"'),
        ("feature_columns", "[1]", r"feature_columns\[0\] must be a string in double quotes, got 1"),
        ("feature_columns", '["a", "a"]', "feature_columns must be distinct names, got 'a' 2 times"),
        ("parts", "2.0", "parts must be an integer, got 2.0"),
        ("parts", "true", "parts must be an integer, got true"),
        ("parts", "1000000", "parts must be at least 1 and at most 65,536, got 1000000"),
        ("knn", "1e3", "knn must be an integer, got 1000.0"),
        ("knn", "1001", "knn must be between 0 and 1000, got 1001"),
        ("split", "1", "split must be a string in double quotes, got 1"),
        ("split_index", "[0]", r"split_index must be an integer, got \[0\]"),
        ("split_index", "3000000000", "split_index must be between 0 and 2147483647"),
        ("scale", '"big"', 'scale must be a number, got "big"'),
        ("scale", "1e20", r"scale must be positive and at most 876, got 1e\+20"),
        ("scale", "nan", "scale must be positive and at most 876, got nan"),
        ("task", "[]", r"task must be a string in double quotes, got \[\]"),
        ("normalize_features", "{a = 1}", "normalize_features must be a string in double quotes, got {'a': 1}"),
        ("method", "1979-05-27", "method must be a string in double quotes, got datetime.date"),
        ("id_column", "3", "id_column must be a string in double quotes, got 3"),
        ("source", '""', "source is empty: name a dataset or a path"),
        ("out", '""', "out is empty: name the directory to make"),
        ("out", '"a\\u0000b"', "out cannot be .*: no name or path has a NUL"),
        ("source", '"a\\u0000b"', "source cannot be .*: no name or path has a NUL"),
        ("options", "{}", "has an unknown key options"),
        ('"a\\nb"', "1", r'has an unknown key "a\\nb": did you mean'),
    ],
)
def test_other_values_are_refused_in_one_line(tmp_path: Path, key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build(tmp_path, **{key: value})
    assert len(str(caught.value).splitlines()) == 1


def test_the_command_line_passes_the_same_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["partition", "digits", "--parts", "2", "--out", str(tmp_path / "out")]
    for words, message in (
        (["--parts", "1" + "0" * 20], "parts cannot be 100000000000000000000"),
        (["--seed=-1"], "seed must be between 0 and"),
        (["--scale", "1e20"], "scale must be positive and at most 876"),
        (["--scale", "0.5"], "scale 0.5 is for amazon2m-like, papers100m-like alone"),
        (["--knn", "5000"], "knn must be between 0 and 1000"),
        (["--split-index", "1"], "split_index 1 is for official splits, and digits gets a random one"),
        (["--out", ""], "out is empty"),
        (["--out", "a\0b"], "no name or path has a NUL"),
        (["--feature-columns", "a", "a"], "feature_columns must be distinct names"),
    ):
        assert main([*usual, *words]) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if "/4" not in line]
        assert len(lines) == 1, lines
        assert message in lines[0]
    assert main(["partition", "amazon2m-like", "--scale", "800", *usual[2:]]) == 2
    assert "at scale 800 needs about" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
