"""The paper's first table follows from points of the scaling figure and from rows that ran."""

from typing import Any

from experiments import NODES, experiments
from learners import LEARNERS, NOT_RUN, common_size, learner_lines
from scaling import OVERRIDES

from tests.paper.building import made_result


def point(method: str, nodes: int, seconds: float = 1.0) -> dict[str, Any]:
    return {"method": method, "nodes": nodes, "seconds": seconds, "peak_bytes": nodes << 20}


def test_costs_are_those_of_the_largest_size_that_all_have_and_graphs_the_largest_of_all() -> None:
    points = [point(method, nodes, nodes / 1e3) for method in ("NodeFormer", "LDS") for nodes in (1000, 2000)]
    scaling: dict[str, Any] = {
        "points": [*points, point("NodeFormer", 4000)],
        "ended": {"LDS": "would need 9.0 GiB for 4,000 nodes"},
    }
    rows = [("cora", "LDS", made_result("x", [0.8])), ("NCBI taxonomy", "NodeFormer", made_result("y", [0.8]))]
    assert common_size(scaling["points"]) == 2000
    cells = {line[0]: line[2:5] for line in learner_lines(scaling, rows)}
    assert cells["NodeFormer"] == ["2.000", "2,000 MiB", "2,609,295 nodes"]
    assert cells["LDS"] == ["2.000", "2,000 MiB", "2,708 nodes"]
    assert cells["VGCN"] == [NOT_RUN, NOT_RUN, NOT_RUN]
    own = {line[0]: line[4] for line in learner_lines(scaling, [])}
    assert own["LDS"] == "2,000 nodes; it would need 9.0 GiB for 4,000 nodes"


def test_learners_are_measured_and_have_rows() -> None:
    named = {row.method for row in experiments()}
    for learner in LEARNERS:
        assert learner.method in OVERRIDES
        assert learner.method in named or learner.method == "GLCN-Pairs"
    datasets = {row.dataset for row in experiments() if row.group == "structure"}
    assert datasets <= set(NODES)
