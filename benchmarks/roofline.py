"""How fast a device could make a step at best, by what the step asks of it and by the vendor's data sheets.

An operation takes as long as its bytes take at the memory's bandwidth or its products at the peak rate of float32,
whichever is longer; caches save none of the bytes. The host needs `LAUNCH_SECONDS` for every launch, while the device
works on earlier ones. So a step takes at least the larger of both sums. No data sheet has the time of a launch: it is a
round number, to be measured.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

LAUNCH_SECONDS = 5e-6
Asked = TypeVar("Asked", bound=Hashable)


@dataclass(frozen=True)
class Device:
    """A GPU with dense rates: floating-point operations a second, bytes a second; links in one direction."""

    name: str
    source: str
    float32: float
    tf32: float
    memory: float
    host_link: float
    device_link: float


# Rates of tensor cores are without sparsity, which is half of what the second data sheet prints.
DEVICES = (
    Device("A100 SXM 80 GB", "NVIDIA A100 Tensor Core GPU, data sheet", 19.5e12, 156e12, 2.039e12, 32e9, 300e9),
    Device("H100 SXM 80 GB", "NVIDIA H100 Tensor Core GPU, data sheet", 67e12, 494.5e12, 3.35e12, 64e9, 450e9),
)


@dataclass(frozen=True)
class Estimate:
    """Seconds that a step takes at least, of the device, of the host, and of what travels."""

    memory: float
    products: float
    products_tf32: float
    device: float
    launches: float
    batch: float
    gradients: float

    @property
    def step(self) -> float:
        return max(self.device, self.launches)


def estimate(
    device: Device,
    launches: int,
    moved: Mapping[Asked, int],
    products: Mapping[Asked, int],
    batch_bytes: int,
    gradient_bytes: int,
) -> Estimate:
    """Of a step by its launches, and the bytes and products of its operations.

    The batch comes from the host while the step before is made; the gradients of two ranks are added up after it.
    """
    together = Counter(
        {asked: max(moved[asked] / device.memory, products.get(asked, 0) / device.float32) for asked in moved}
    )
    return Estimate(
        memory=sum(moved.values()) / device.memory,
        products=sum(products.values()) / device.float32,
        products_tf32=sum(products.values()) / device.tf32,
        device=sum(together.values()),
        launches=launches * LAUNCH_SECONDS,
        batch=batch_bytes / device.host_link,
        gradients=gradient_bytes / device.device_link,
    )


def table(estimates: Mapping[str, Estimate]) -> str:
    """Milliseconds, a column a device."""
    rows = {
        "bytes at the memory's bandwidth": "memory",
        "products of matrices at float32's peak": "products",
        "the same at TF32's peak": "products_tf32",
        "device: the longer of both, operation by operation": "device",
        f"host: {LAUNCH_SECONDS * 1e6:g} us a launch": "launches",
        "**a step takes at least**": "step",
        "its batch over PCIe, beside the step before": "batch",
        "its gradients over NVLink, 2 ranks": "gradients",
    }
    lines = [f"| milliseconds | {' | '.join(estimates)} |", "|---" * (len(estimates) + 1) + "|"]
    for name, field in rows.items():
        figures = " | ".join(f"{1e3 * getattr(one, field):.3g}" for one in estimates.values())
        lines.append(f"| {name} | {figures} |")
    return "\n".join(lines)
