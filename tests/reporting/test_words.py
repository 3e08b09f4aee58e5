"""Numbers in few digits, and sentences that cannot become markup."""

import pytest

from nfdist.reporting import words


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (7.0, "7"),
        (0.012345, "0.0123"),
        (1234.0, "1,234"),
        (8797.3, "8,797"),
        (12345.0, "12.3k"),
        (2.5e6, "2.5M"),
        (-3e9, "-3G"),
    ],
)
def test_numbers(value: float, shown: str) -> None:
    assert words.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.0, "0.0%"), (1.0, "100.0%"), (0.5432, "54.3%"), (0.00123, "0.12%"), (1e-7, "<0.01%")],
)
def test_shares(value: float | None, shown: str) -> None:
    assert words.percent(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0.5, "0.5 s"), (61, "1 min 01 s"), (3661, "1 h 01 min")])
def test_times(value: float, shown: str) -> None:
    assert words.duration(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(10, "10 bytes"), (1536, "1.5 KiB"), (2**21, "2 MiB"), (5 * 2**30, "5 GiB")]
)
def test_sizes(value: float, shown: str) -> None:
    assert words.amount(value) == shown


def test_commands_in_a_sentence_stand_out_and_nothing_becomes_markup() -> None:
    assert words.sentence("run `nfdist <b>`: <i>") == "run <code>nfdist &lt;b&gt;</code>: &lt;i&gt;"


def test_classes_without_a_name_are_called_by_their_number() -> None:
    assert (words.kind("12"), words.kind("films")) == ("class 12", "films")
