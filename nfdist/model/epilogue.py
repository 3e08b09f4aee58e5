"""Epilogue: how a sum becomes the next hidden state."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from nfdist.attention import ops


@dataclass(frozen=True)
class Dropout:
    """Which mask: a function of the key, the channel and the node's id, so it can be drawn again instead of kept."""

    rate: float
    key: int
    node_ids: Tensor

    @property
    def factor(self) -> float:
        """What keeps the mean: rates are multiples of 2^-16."""
        return 65536 / (65536 - round(self.rate * 65536))

    def mask(self, rows: slice, like: Tensor) -> tuple[Tensor, float]:
        return ops.keep_mask(self.key, self.node_ids[rows], like.shape[1], self.rate)


@dataclass(frozen=True)
class Epilogue:
    """What makes a hidden state of a sum: a norm, an activation and dropout, each optional."""

    norm: nn.LayerNorm | None
    elu: bool
    dropout: Dropout | None


def add_norm(terms: Sequence[Tensor], epilogue: Epilogue) -> Tensor:
    """dropout(elu(norm(Σ terms))), [n, c]. Where no gradient is wanted, the first term is used up by the sum."""
    scale, shift = (None, None) if epilogue.norm is None else (epilogue.norm.weight, epilogue.norm.bias)
    drop = epilogue.dropout
    dropout = None if drop is None else (drop.key, drop.node_ids, drop.rate)
    return ops.add_norm(*terms, scale=scale, shift=shift, elu=epilogue.elu, dropout=dropout)
