"""The start of a model's weights: a function of the seed and the names of its layers, never of the global state."""

import torch
from torch import nn

from nfdist import seeds
from nfdist.model.label_input import LabelInput


def initialize(module: nn.Module, seed: int) -> None:
    """Draw the weights of every layer anew, from the seed and the layer's name alone (torch's usual ranges).

    What a layer of DGL has of its own is drawn as DGL does: biases are 0, vectors of attention Gaussian by their width.
    """
    with torch.no_grad():
        for name, child in module.named_modules():
            generator = seeds.generator(seed, "weights", name)
            if isinstance(child, nn.Linear):
                bound = child.in_features**-0.5
                for parameter in child.parameters(recurse=False):
                    parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * bound)
            elif isinstance(child, LabelInput):  # of which a node gets one row, and no sum that would need small ones
                child.table.copy_(torch.rand(child.table.shape, generator=generator) * 2 - 1)
            elif type(child).__module__.startswith("dgl."):
                for own_name, parameter in child.named_parameters(recurse=False):
                    deviation = 0.0 if own_name == "bias" else _glorot_deviation(parameter)
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * deviation)


def _glorot_deviation(parameter: nn.Parameter) -> float:
    """Glorot's deviation for what a rectifier follows, sqrt(2) sqrt(2 / (inputs + outputs)), of [1, h, d]."""
    _, heads, width = parameter.shape
    return float((4 / (heads * width + width)) ** 0.5)
