"""A plan says what a limit of memory allows: less memory, more files, and METIS where it fits."""

import json

import pytest

from nfdist.cli.main import main
from nfdist.memory import parse_bytes
from nfdist.partitioning.planning import Plan, plan
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceCounts

PRODUCTS = SourceCounts(2_449_029, 61_859_140, 100, None, "float32")


def planned(memory: str, counts: SourceCounts = PRODUCTS, **options: object) -> Plan:
    return plan(Recipe.build("amazon2m-like", {"parts": 8, "out": "out", "memory": memory, **options}), counts)


@pytest.mark.parametrize("memory", ["1GiB", "2GiB", "4GiB", "8GiB", "32GiB", "512GiB"])
def test_no_stage_exceeds_the_limit(memory: str) -> None:
    found = planned(memory)
    assert found.peak_bytes <= parse_bytes("memory", memory)
    assert found.method == ("metis" if memory in ("32GiB", "512GiB") else found.method)
    assert found.stored_edges == 2 * PRODUCTS.edges


def test_more_memory_takes_less_disk_for_a_while_and_at_last_none() -> None:
    needed = [planned(memory).scratch_bytes for memory in ("1GiB", "2GiB", "4GiB", "8GiB", "512GiB")]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] > needed[-1] == 0
    assert len({planned(memory).disk_bytes for memory in ("1GiB", "512GiB")}) == 1


def test_metis_is_planned_where_it_fits_or_is_asked_for() -> None:
    assert planned("4GiB").method != "metis" == planned("32GiB").method
    assert planned("4GiB", method="metis").peak_bytes > 4 << 30
    assert planned("4GiB", parts=1).method == "metis"  # which one part does not need
    assert planned("4GiB", directed=True).stored_edges == PRODUCTS.edges


def test_papers_of_a_quarter_fit_the_disk_that_is_promised() -> None:
    quarter = SourceCounts(27_764_989, 403_921_468, 128, None, "float16")
    found = planned("8GiB", quarter)
    assert found.peak_bytes <= 8 << 30
    assert found.disk_bytes + found.scratch_bytes < 45e9


def test_the_command_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "papers100m-like", "--scale", "0.01", "--parts", "4", "--memory", "1GiB", "--json"]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out.splitlines()[-1])
    assert found["peak_bytes"] <= 1 << 30
    assert "of files for a while" in told.out
    assert f"divide ({found['method']})" in told.out
    assert main(["plan", "amazon2m-like", "--parts", "4", "--memory", "100MiB"]) == 0
    assert "--memory allows 0.1 GiB, too little for a peak of" in capsys.readouterr().err
