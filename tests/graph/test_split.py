"""The split of a run: as stored, or drawn from its seed among the labeled nodes."""

from pathlib import Path

import pytest
import torch

from nfdist.config import DataConfig
from nfdist.graph.split import split_of
from nfdist.store.source_graph import draw_split
from nfdist.store.store import Store
from tests.store.building import build_graph, write


@pytest.mark.parametrize("questions", [0, 3])
def test_the_split_is_stored_or_drawn(questions: int, tmp_path: Path) -> None:
    write(tmp_path / "graph", build_graph(questions=questions))
    store, everyone = Store.open(tmp_path / "graph"), torch.arange(60)
    assert torch.equal(split_of(store, DataConfig("", "stored"), 1), store.split(everyone))
    labels = store.labels(everyone)
    labeled = (labels >= 0) if questions == 0 else (labels >= 0).any(1)
    drawn = split_of(store, DataConfig("", "random:0.5/0.25/0.25"), 1, nodes_at_once=7)
    assert torch.equal(drawn, torch.from_numpy(draw_split(labeled.numpy(), (0.5, 0.25, 0.25), 1)))
    assert torch.equal(drawn > 0, labeled)
    assert not torch.equal(drawn, split_of(store, DataConfig("", "random:0.5/0.25/0.25"), 2, nodes_at_once=7))
