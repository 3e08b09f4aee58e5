"""The one place that imports Optuna, which is an extra."""

import warnings
from functools import cache
from typing import Any

from nfdist.errors import ConfigError


@cache
def optuna() -> Any:
    """The Optuna module, imported on first use and without a log of its own."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import optuna as module
    except ImportError as error:
        raise ConfigError(f'nfdist tune needs Optuna ({error}): pip install "nfdist[tune]"') from error
    module.logging.set_verbosity(module.logging.ERROR)
    return module
