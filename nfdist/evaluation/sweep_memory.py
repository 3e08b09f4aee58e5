"""The memory of an evaluation, from counts: the formulas that `FullGraph` divides its own memory by, and their sum."""

import math
from dataclasses import dataclass

import torch

from nfdist.config import Config, ModelConfig, RelationConfig
