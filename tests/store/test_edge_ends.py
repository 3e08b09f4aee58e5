"""Names of neighbors are found among the graph's nodes and, if asked for, among new ones, in any type of file."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nfdist.errors import UnknownNodeError
from nfdist.store.edge_ends import EdgeEnds, Joined
from nfdist.store.store import Store
from nfdist.store.table_files import Rows
from tests.store.building import build_graph, write


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A directed graph of 60 nodes with integers as ids."""
    write(tmp_path / "graph", build_graph())
    return Store.open(tmp_path / "graph")


def rows_of(**columns: Any) -> Rows:
    table = pa.table(columns)
    return Rows(table, ((Path("a.parquet"), len(table)),))


def as_lists(joined: Joined) -> list[list[int]]:
    ends = joined.targets, joined.sources, joined.new_targets, joined.new_sources
    return [values.tolist() for values in ends]


def test_names_are_found_by_their_spelling(store: Store) -> None:
    known = build_graph().original_ids[[3, 8]]
    wanted = store.node_ids(known).tolist()
    ends = EdgeEnds(pa.array(["a", "b"]), store, together=True)
    for lists in ([[known[0], known[1]], None], [[str(known[0]), str(known[1]), "b"], []]):
        found = as_lists(ends.listed(rows_of(neighbors=lists), "neighbors"))
        text = lists[1] is not None
        assert found == [[0, 0], wanted, [0] if text else [], [1] if text else []]


def test_in_a_directed_graph_edges_lead_to_new_nodes_only(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    known = [str(one) for one in build_graph().original_ids[[3, 8]]]
    edges = rows_of(source=[known[0], "a", "b"], target=["a", known[1], "a"])
    assert store.manifest.directed
    found = as_lists(EdgeEnds(pa.array(["a", "b"]), store, together=True).given(edges))
    assert found == [[0], store.node_ids(build_graph().original_ids[[3]]).tolist(), [0], [1]]
    assert "1 edges lead from new nodes to the graph, which hears none of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("together", "source", "target", "message"),
    [
        (False, "b", "a", "no node is called 'b' in .*: give --together to join new nodes"),
        (True, "c", "a", "no node is called 'c' in .*: name nodes of the graph only"),
        (True, "a", "c", "no node is called 'c' in .*: name nodes of the graph only"),
        (True, "c", "d", "a.parquet: row 1 joins 'c' and 'd', of which none is a new node"),
        (True, None, "a", "a.parquet: row 1 has no 'source': give every edge both ends"),
    ],
)
def test_what_is_not_there_is_named(
    store: Store, together: bool, source: str | None, target: str, message: str
) -> None:
    edges = rows_of(source=pa.array([source], pa.string()), target=[target])
    with pytest.raises(UnknownNodeError, match=message):
        EdgeEnds(pa.array(["a", "b"]), store, together).given(edges)
