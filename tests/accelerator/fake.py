"""A fake accelerator: tensors that claim a device of their own and keep their values on the CPU.

Operations compute as the CPU does, so results equal the CPU's, but they are refused where a GPU would refuse them: with
a tensor that was left on the CPU, or a generator of the CPU. `observers` are told of each, so that launches and waits
of the host can be counted (counts.py). It serves any thread of a process, and processes of its own. What it cannot
tell: real kernels, streams, NCCL, time and memory.

Torch's PrivateUse1 is a device that Python may define. Operations on its tensors come to `__torch_dispatch__`; those
that make one without having any, such as `torch.empty`, to implementations registered for the device.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

import nfdist

TYPE = "fake"
_PACKAGE = str(Path(nfdist.__file__).parent) + "/"
# What makes a tensor of nothing, and what is called where torch.tensor has switched `__torch_dispatch__` off.
_MAKERS = ("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step", "randperm")
_LIFTED = ("_to_copy", "copy_", "lift_fresh", "detach", "alias")
_PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm")  # of those that autocast knows on a GPU
_COPIES = ("_to_copy", "copy_")
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")


@dataclass(frozen=True)
class Operation:
    """One operation on the device: what was called, the line of nfdist that asked for it, and what it made.

    `arguments` and `results` have tensors of the CPU. A copy `crosses` from one device to the other, and keeps the host
    waiting if it is `blocking`; so does a `foreign_index`, an index on the CPU of a tensor that is not.
    """

    call: Any
    line: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    results: Any
    crosses: bool = False
    blocking: bool = False
    foreign_index: bool = False

    @property
    def name(self) -> str:
        return name_of(self.call)


observers: list[Callable[[Operation], None]] = []


@contextmanager
def observed(observer: Callable[[Operation], None]) -> Iterator[None]:
    """Tell an observer of every operation of this process, until the block ends."""
    observers.append(observer)
    try:
        yield
    finally:
        observers.remove(observer)


def available() -> bool:
    """Whether this torch lets Python define a device."""
    return hasattr(torch._C, "_acc") and hasattr(torch._C._acc, "register_python_privateuseone_hook")


@cache
def device() -> torch.device:
    """The device, which is made known to torch by the first call in a process: one before any backward pass there."""
    from torch.utils import _foreach_utils
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(TYPE, _Module())
    _foreach_utils._foreach_supported_types.append(FakeTensor)  # type: ignore[arg-type]  # as on a GPU, one launch for all of a model's weights
    library = torch.library.Library("aten", "IMPL")
    for full_name in _MAKERS + _LIFTED:
        name, _, overload = full_name.partition(".")
        call = getattr(getattr(torch.ops.aten, name), overload or "default")
        library.impl(full_name, partial(operate, call), "PrivateUse1")
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name in _PRODUCTS:
        library.impl(name, partial(_autocast, getattr(torch.ops.aten, name).default), "AutocastPrivateUse1")
    _registered.extend([library, every])
    _let_replicas_be_made()
    return torch.device(TYPE, 0)


_registered: list[torch.library.Library] = []  # they end with the objects that made them


def _let_replicas_be_made() -> None:
    """Make replicas on the device not look for unused parameters: to tell of them torch pins memory, which it lacks."""
    make = nn.parallel.DistributedDataParallel.__init__

    def made(self: Any, module: nn.Module, *arguments: Any, **options: Any) -> None:
        if any(isinstance(parameter, FakeTensor) for parameter in module.parameters()):
            options["find_unused_parameters"] = False
        make(self, module, *arguments, **options)

    nn.parallel.DistributedDataParallel.__init__ = made  # type: ignore[method-assign]


def _autocast(call: Any, *arguments: Any) -> Any:
    """A product under autocast: in its type."""
    kind = torch.get_autocast_dtype(TYPE)
    with torch._C._DisableAutocast():
        return call(*_each(arguments, lambda one: one.to(kind) if _is_float32(one) else one))


def _is_float32(one: Any) -> bool:
    return isinstance(one, Tensor) and one.dtype == torch.float32


def host(tensor: Tensor) -> Tensor:
    """The values of a tensor on the fake device, the very same memory."""
    assert isinstance(tensor, FakeTensor)
    return tensor.values_on_host


class FakeTensor(Tensor):
    """A tensor of the fake device around the tensor that has its values."""

    values_on_host: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "FakeTensor":
        facts: dict[str, Any] = {"dtype": values.dtype, "layout": values.layout, "device": device()}
        if values.layout == torch.strided:
            facts |= {"strides": values.stride(), "storage_offset": values.storage_offset()}
        made: FakeTensor = torch.Tensor._make_wrapper_subclass(cls, values.size(), **facts)
        made.values_on_host = values
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"FakeTensor({self.values_on_host!r})"

    @property
    def layout(self) -> torch.layout:  # type: ignore[override]
        """Torch knows that of a subclass only if it is strided."""
        return self.values_on_host.layout

    def tolist(self) -> Any:
        """As torch does for devices, and not for subclasses: one copy to the CPU."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, call: Any, _types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        return operate(call, *arguments, **(keywords or {}))

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


def operate(call: Any, *arguments: Any, **keywords: Any) -> Any:
    """Do an operation on the CPU, for tensors of the device and those beside them."""
    line, tensors = _line(), _tensors((arguments, keywords))
    foreign_index = _check_devices(call, line, tensors, keywords)
    values = _each(arguments, _to_host)
    named = {name: _each(value, _to_host) for name, value in keywords.items()}
    made = call(*values, **named)
    crosses, arrives = _crosses(call, tensors, keywords), _arrives(call, tensors, keywords)
    blocking = crosses and not _non_blocking(call, arguments, keywords)
    for observer in list(observers):
        observer(Operation(call, line, values, named, made, crosses, blocking, foreign_index))
    return _returned(call, arguments, keywords, made, arrives)


def name_of(call: Any) -> str:
    """The name of an operation without that of its overload."""
    return str(call.__name__).split(".")[0]


def _returned(call: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], made: Any, arrives: bool) -> Any:
    """What is made, on the device if it `arrives` there; what an operation writes to is returned as itself."""
    written: dict[str, Any] = {}
    for place, argument in enumerate(call._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = arguments[place] if place < len(arguments) and not argument.kwarg_only else keywords[argument.name]
            written |= dict.fromkeys(argument.alias_info.before_set, given)

    def one_returned(alias: Any, value: Any) -> Any:
        if alias is not None and alias.is_write:
            return written[next(iter(alias.before_set))]
        return _each(value, lambda one: FakeTensor(one) if isinstance(one, Tensor) and arrives else one)

    results = [result.alias_info for result in call._schema.returns]
    if len(results) < 2:
        return one_returned(results[0], made) if results else None
    return tuple(one_returned(alias, value) for alias, value in zip(results, made, strict=True))


def _check_devices(call: Any, line: str, tensors: list[Tensor], keywords: dict[str, Any]) -> bool:
    """Refuse what a GPU refuses; whether a tensor of the device is indexed by one of the CPU, which is copied first."""
    generator = keywords.get("generator")
    if generator is not None and generator.device.type != TYPE:
        raise RuntimeError(f"{call} at {line}: expected a generator of the device {TYPE}, got one of the CPU")
    if name_of(call) in _COPIES or call.namespace == "c10d" or not any(isinstance(one, FakeTensor) for one in tensors):
        return False
    left = [one for one in tensors if not isinstance(one, FakeTensor)]
    if torch.Tag.pointwise in call.tags:  # a number among tensors may stay where it is
        left = [one for one in left if one.ndim > 0]
    if left and name_of(call) in _INDEXING and isinstance(tensors[0], FakeTensor):
        return True
    if left:
        shapes = ", ".join(f"{list(one.shape)} on {one.device}" for one in tensors)
        raise RuntimeError(f"{call} at {line}: expected all tensors to be on the same device, got {shapes}")
    return False


def _arrives(call: Any, tensors: list[Tensor], keywords: dict[str, Any]) -> bool:
    """Whether what an operation makes is on the device: all but copies to the CPU."""
    if name_of(call) == "copy_":
        return isinstance(tensors[0], FakeTensor)
    wanted = keywords.get("device")
    return wanted is None or torch.device(wanted).type == TYPE


def _crosses(call: Any, tensors: list[Tensor], keywords: dict[str, Any]) -> bool:
    """Whether values go from one device to the other."""
    if name_of(call) not in _COPIES:
        return False
    return isinstance(tensors[-1], FakeTensor) != _arrives(call, tensors, keywords)


def _non_blocking(call: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    position = [argument.name for argument in call._schema.arguments].index("non_blocking")
    return bool(keywords.get("non_blocking", position < len(arguments) and arguments[position]))


def _to_host(one: Any) -> Any:
    if isinstance(one, FakeTensor):
        return one.values_on_host
    return torch.device("cpu") if isinstance(one, torch.device) and one.type == TYPE else one


def _each(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same lists and tuples with every entry changed."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(_each(one, change) for one in tree)
    return change(tree)


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [tensor for one in tree for tensor in _tensors(one)]
    return [tree] if isinstance(tree, Tensor) else []


def _line() -> str:
    """The line of nfdist that an operation was asked for in; "torch" where a backward pass of torch's own asks."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            return f"{frame.f_code.co_filename.removeprefix(_PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return "torch"


class _Module:
    """What torch asks a kind of device."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def set_device(self, _: Any) -> None:
        pass

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, _: int) -> None:
        pass

    def mem_get_info(self, _: Any = None) -> tuple[int, int]:
        return 1 << 40, 1 << 40

    def memory_reserved(self, _: Any = None) -> int:
        return 0

    def memory_allocated(self, _: Any = None) -> int:
        return 0

    def max_memory_allocated(self, _: Any = None) -> int:
        return 0

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]
