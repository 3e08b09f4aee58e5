"""The operations of attention: one signature each, its meaning in `definition.py`, and one implementation a device.

This is the one place that chooses. A device that is not listed takes the operations that any device can run.
"""

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import ParamSpec, TypeVar

from torch import Tensor

from nfdist.attention.ops import cpu, definition, gpu

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

IMPLEMENTATIONS: dict[str, ModuleType] = {"cpu": cpu}


def _by_device(defined: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The operation as the device of its first tensor has it."""

    @wraps(defined)
    def operation(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        device = next(argument.device.type for argument in arguments if isinstance(argument, Tensor))
        implementation: Callable[Arguments, Result] = getattr(IMPLEMENTATIONS.get(device, gpu), defined.__name__)
        return implementation(*arguments, **options)

    return operation


key_logs = _by_device(definition.key_logs)
project = _by_device(definition.project)
summarize = _by_device(definition.summarize)
attend = _by_device(definition.attend)
edge_log_likelihood = _by_device(definition.edge_log_likelihood)
gumbel = _by_device(definition.gumbel)
keep_mask = _by_device(definition.keep_mask)
add_norm = _by_device(definition.add_norm)
