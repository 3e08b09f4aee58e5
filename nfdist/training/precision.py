"""Which precision pays on which device: docs/training.md#precision."""

import torch

from nfdist import log
from nfdist.config import TrainConfig
from nfdist.devices import is_gpu
from nfdist.errors import ConfigError

NO_FASTER = 'train.precision = "bf16" is no faster on a CPU and takes more memory'


def check_precision(config: TrainConfig, device: torch.device, begun: bool) -> None:
    """Refuse what costs and gains nothing; a run that was `begun` with it goes on as it was."""
    if config.precision != "bf16" or is_gpu(device):
        return
    if not begun:
        raise ConfigError(f"{NO_FASTER}: set train.precision=float32, or train on a GPU")
    log.warn(f"{NO_FASTER}; the run goes on as it was begun")
