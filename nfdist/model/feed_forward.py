"""A feed-forward block after a layer, as Transformers have it, of each row by itself.

h <- dropout(norm(h + W2 elu(W1 h)))
"""

import torch.nn.functional as F
from torch import Tensor, nn

from nfdist.model.epilogue import Dropout, Epilogue, add_norm
from nfdist.model.linear import UndrawnLinear


class FeedForward(nn.Module):
    """A linear map to `factor` times as many channels and one back, with a norm of its own or none."""

    def __init__(self, channels: int, factor: int, *, norm: bool) -> None:
        super().__init__()
        self.widen = UndrawnLinear(channels, factor * channels)
        self.narrow = UndrawnLinear(factor * channels, channels)
        self.norm = nn.LayerNorm(channels) if norm else None

    def forward(self, hidden: Tensor, dropout: Dropout | None = None) -> Tensor:
        """The rows [n, c] that a layer hands on, of those that it made."""
        wide = F.elu(self.widen(hidden), inplace=True)
        return add_norm([self.narrow(wide), hidden], Epilogue(self.norm, False, dropout))
