"""A training step of a model by the kernels equals that of the CPU, with the same noise, masks and directions."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nfdist import seeds
from nfdist.attention import ops
from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.graph.relation import build_relations
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency
from tests.attention.ops.triton_kernels.running import DEVICE, KERNELS
from tests.comparing import difference

pytestmark = pytest.mark.accelerator
NODES, FEATURES, OUTPUTS = 20, 5, 3
MODEL = ModelConfig(layers=2, channels=7, heads=1, random_features=5, dropout=0.3, activation="elu")


def step(model: ModelConfig, attention: AttentionConfig, dtype: torch.dtype) -> list[Tensor]:
    """Logits, edge loss and the gradients of all parameters, on the CPU."""
    net = NodeFormer(FEATURES, OUTPUTS, model, attention, RelationConfig(order=1), seed=3).to(DEVICE, dtype).train()
    ends = torch.randint(NODES, (2, 30), generator=seeds.generator(0, "graph"))
    relations = build_relations(Adjacency.from_edges(ends[0], ends[1], NODES).to(DEVICE), 1, True, dtype)
    features = torch.randn(NODES, FEATURES, generator=seeds.generator(1, "features"), dtype=torch.float64)
    draw = Draw(seed=4, step=17, node_ids=torch.arange(NODES, device=DEVICE) * 7)
    output = net(features.to(DEVICE, dtype), relations, draw, auxiliary_scale=-0.5)
    loss = output.logits.square().mean() + output.auxiliary_loss
    gradients = torch.autograd.grad(loss, [parameter for parameter in net.parameters() if parameter.numel()])
    return [tensor.detach().cpu() for tensor in (output.logits, output.auxiliary_loss, *gradients)]


@pytest.mark.parametrize(
    ("dtype", "epsilon", "jumping_knowledge"), [(torch.float64, 1e-6, False), (torch.float32, 0.0, True)]
)
def test_equals_the_step_of_the_cpu(
    dtype: torch.dtype, epsilon: float, jumping_knowledge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = AttentionConfig(noise_draws=2, epsilon=epsilon)
    model = replace(MODEL, jumping_knowledge=jumping_knowledge)
    monkeypatch.setattr(f"{__name__}.DEVICE", torch.device("cpu"))
    wanted = step(model, attention, dtype)
    monkeypatch.undo()
    monkeypatch.setitem(ops.IMPLEMENTATIONS, DEVICE.type, KERNELS)
    found = step(model, attention, dtype)
    least = 1e-2 * max(float(tensor.abs().max()) for tensor in wanted[2:])
    for one, other in zip(found, wanted, strict=True):
        assert difference(one, other, least) < (1e-9 if dtype == torch.float64 else 1e-4)


def test_cuda_has_the_kernels_where_they_can_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "IMPLEMENTATIONS", {"cpu": ops.cpu})
    monkeypatch.setenv("CC", "cc")
    assert ops.missing_for_kernels() is None
    assert ops._implementation("cuda") is KERNELS
    assert ops._implementation("cpu") is ops.cpu
    monkeypatch.setattr(ops, "IMPLEMENTATIONS", {"cpu": ops.cpu})
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "compiler" in str(ops.missing_for_kernels())
    assert ops._implementation("cuda") is not KERNELS
