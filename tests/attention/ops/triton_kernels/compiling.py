"""Compiles for real GPUs, without one, every kernel that a step launches, and prints what each takes of a processor.

    TRITON_INTERPRET=0 python -m tests.attention.ops.triton_kernels.compiling 80 90

A line each: kernel, architecture, registers of a thread, bytes of them that are spilled, bytes of shared memory.
"""

import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nfdist.attention.ops import triton_kernels
from nfdist.attention.ops.triton_kernels import attention, edges, epilogue, features, noise, summaries
from nfdist.sparse.adjacency import Adjacency

PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
POINTERS = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
}
NODES, HEADS, DRAWS = 4096, 2, 5
OPTIONS = ("num_warps", "num_stages")


def launches(dtype: torch.dtype, channels: int, num_features: int) -> list[tuple[Any, tuple[Any, ...], Any]]:
    """Kernel, arguments and constants of each launch of a step; nothing is launched."""
    found = []

    def record(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        found.append((kernel, arguments, constants))

    with ExitStack() as stack:
        for module in (attention, edges, epilogue, features, noise, summaries):
            stack.enter_context(patch.object(module, "launch", record))
        _step(dtype, channels, num_features)
    return found


def _step(dtype: torch.dtype, channels: int, num_features: int) -> None:
    """Every operation of a layer once, forward and backward."""
    nodes, draws, heads = NODES, DRAWS, HEADS
    hidden, keys = (
        torch.zeros(nodes, *shape, dtype=dtype).requires_grad_() for shape in ((channels,), (heads, channels))
    )
    node_ids, ends = torch.arange(nodes), torch.arange(nodes).flip(0)
    drawn = triton_kernels.gumbel(1 << 62, node_ids, heads * draws).unflatten(1, (heads, draws))
    triton_kernels.keep_mask(1 << 62, node_ids, channels, 0.2)
    logs = triton_kernels.key_logs(keys, torch.zeros(num_features, channels, dtype=dtype), 0.7)
    attended = triton_kernels.attend(logs, *triton_kernels.summarize(logs, hidden, drawn, 0.25))
    graph = Adjacency.from_edges(node_ids, ends, nodes)
    likelihood = triton_kernels.edge_log_likelihood(logs, logs, attended[1], graph, torch.ones(nodes))
    norm = (torch.zeros(channels).requires_grad_() for _ in range(2))
    options = dict(zip(("scale", "shift"), norm, strict=True))
    terms = (attended[0], hidden, torch.zeros_like(hidden))
    made = triton_kernels.add_norm(*terms, elu=True, dropout=(1 << 62, node_ids, 0.2), **options)
    (made.sum() + likelihood).backward()


def compiled(kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any], capability: int) -> Any:
    """The kernel as a first launch with these arguments would have it compiled."""
    options = {name: constants[name] for name in OPTIONS if name in constants}
    values = {**dict(zip(kernel.arg_names, arguments, strict=False)), **constants}
    signature: dict[str, str] = {}
    fixed: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], Any] = {}
    for index, parameter in enumerate(kernel.params):
        value, specialized = values[parameter.name], not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1 and specialized):
            signature[parameter.name], fixed[(index,)] = "constexpr", value
            continue
        if isinstance(value, Tensor):
            signature[parameter.name] = POINTERS[value.dtype]
        else:
            signature[parameter.name] = "i64" if value >= 1 << 31 else "i32"
        if isinstance(value, Tensor) or (specialized and value % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, fixed, attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def resources(made: Any, capability: int) -> tuple[int, int, int]:
    """Registers, spilled bytes and shared bytes, as NVIDIA's assembler counts them."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(made.asm["ptx"])
        file.flush()
        architecture = f"-arch=sm_{capability}{'a' if capability >= 90 else ''}"
        command = [str(PTXAS), "-v", architecture, file.name, "-o", "/dev/null"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, spilled = (re.search(rf"(\d+) {what}", report) for what in ("registers", "bytes spill stores"))
    assert registers, report
    return int(registers[1]), int(spilled[1]) if spilled else 0, made.metadata.shared


def main() -> None:
    shapes = [(torch.float32, 64, 50), (torch.float32, 256, 30), (torch.bfloat16, 64, 30)]
    for dtype, channels, num_features in shapes:
        for kernel, arguments, constants in launches(dtype, channels, num_features):
            for capability in map(int, sys.argv[1:]):
                registers, spilled, shared = resources(compiled(kernel, arguments, constants, capability), capability)
                kind = f"{str(dtype)[6:]:8} c {channels:3} m {num_features}  {kernel.__name__:26} sm_{capability}"
                print(f"{kind}  {registers:3} registers  {spilled:4} spilled  {shared:6} shared", flush=True)


if __name__ == "__main__":
    main()
