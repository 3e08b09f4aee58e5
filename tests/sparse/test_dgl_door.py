"""DGL is importable beside the installed torch and agrees with nfdist's own product."""

import torch

from nfdist import seeds
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.dgl_door import dgl
from nfdist.sparse.spmm import spmm


def test_dgl_imports_and_computes_the_same_product() -> None:
    ends = torch.randint(50, (2, 200), generator=seeds.generator(0, "ends"))
    graph = Adjacency.from_edges(ends[0], ends[1], 50)
    rows, weights = torch.randn(50, 8, generator=seeds.generator(1, "rows")), torch.rand(graph.num_edges)
    theirs = dgl().graph((graph.sources, graph.targets), num_nodes=50)
    assert torch.allclose(dgl().ops.u_mul_e_sum(theirs, rows, weights), spmm(graph, rows, weights), atol=1e-5)
