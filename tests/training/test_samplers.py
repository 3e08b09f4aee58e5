"""What no batch could be made of is refused before anything is trained."""

from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from nfdist.errors import ConfigError
from nfdist.graph.graph import Graph
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.training.samplers import make_sampler
from nfdist.training.sampling import WholeGraph
from nfdist.training.step_memory import INDUCED_BYTES
from nfdist.world import World
from tests.training.building import build_partition, config_of


def test_paths_that_no_memory_has_room_for_are_refused_in_steps_on_the_whole_graph(tmp_path: Path) -> None:
    """They are kept on disk, from where smaller batches take theirs."""
    store = Store.open(build_partition(tmp_path / "p"))
    hops, everyone = Hops.open(store, 2), torch.arange(store.num_nodes)
    graph = Graph(store, hops, store, hops, World(), [[0]] * 3)
    needed = INDUCED_BYTES * hops.induced(2, everyone).num_edges
    whole, some = (config_of(tmp_path / "p", tmp_path, f"train.batch_nodes={nodes}") for nodes in (0, 60))
    for config, room, refuses in ((whole, needed - 1, True), (whole, needed, False), (some, 1, False)):
        with patch("nfdist.training.samplers.host_bytes", lambda room=room: room):
            if refuses:
                with pytest.raises(
                    ConfigError, match=r"train.batch_nodes = 0 with relation.order = 2 takes [\d,]+ paths"
                ):
                    make_sampler(config, graph, store.split(everyone), 1, 0)
            else:
                sampler = make_sampler(config, graph, store.split(everyone), 1, 0)
                assert isinstance(sampler, WholeGraph) == (config is whole)
