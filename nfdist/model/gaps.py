"""Gaps in features: what is NaN becomes a constant that is stored with the weights, the mean over training nodes."""

import torch
from torch import Tensor

from nfdist.devices import is_gpu
from nfdist.sparse.csr import sparse_csr

FEATURE_MEANS = "feature_means"  # the buffer of a model; None, and not among its weights, where no feature has gaps


def fill_gaps(features: Tensor, means: Tensor | None) -> Tensor:
    """Features [n, f] with the mean of a feature where it is NaN; on the CPU the very same tensor where none is."""
    if means is None:
        return features
    sparse = features.layout == torch.sparse_csr
    values = features.values() if sparse else features
    gaps = values.isnan()
    if not is_gpu(gaps.device) and not bool(gaps.any()):
        return features
    constants = means.to(values.dtype)
    if not sparse:
        return torch.where(gaps, constants, values)
    filled = torch.where(gaps, constants[features.col_indices()], values)
    return sparse_csr(features.crow_indices(), features.col_indices(), filled, (features.shape[0], features.shape[1]))
