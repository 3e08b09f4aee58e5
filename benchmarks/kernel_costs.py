"""What each Triton kernel of a layer reads, writes and computes, by its sizes: the counts behind a roofline.

    python benchmarks/kernel_costs.py [nodes=100000 heads=1 channels=64 features=50 draws=5 edges=200000 width=4]

Bytes are those of every tensor, once each, which caches can make of them at best; the rows that edges gather count once
an edge. Arithmetic (`flops`) is that of products of tiles, and exponentials are counted apart: processors have other
units for them. `tests/attention/ops/triton_kernels/test_costs.py` holds the bytes against real launches.
"""

import sys
from dataclasses import dataclass, replace

from nfdist.attention.ops.triton_kernels.launch import count, parts, tile


@dataclass(frozen=True)
class Sizes:
    """Of a layer: `width` is the bytes of a number in features, hidden states and gradients; sums have 4 at least."""

    nodes: int = 100_000
    heads: int = 1
    channels: int = 64
    features: int = 50
    draws: int = 5
    edges: int = 200_000
    width: int = 4

    @property
    def wide(self) -> int:
        return max(4, self.width)


@dataclass(frozen=True)
class Cost:
    """Of one launch."""

    bytes: int
    flops: int = 0
    exponentials: int = 0


def costs(sizes: Sizes) -> dict[str, Cost]:
    """Every kernel of a training step's layer: noise, forward and backward, with an edge loss."""
    return {**_forward(sizes), **_backward(sizes), **_edges(sizes), **_epilogue(sizes)}


def _forward(sizes: Sizes) -> dict[str, Cost]:
    n, h, c, m, k, wide = sizes.nodes, sizes.heads, sizes.channels, sizes.features, sizes.draws, sizes.wide
    logs, rows, noise = sizes.width * n * h * m, sizes.width * n * c, wide * n * h * k
    masses, means = wide * h * (k + 1) * m, wide * h * k * m * c
    num_parts = _parts(sizes)
    return {
        "gumbel": Cost(8 * n + noise),
        "key_logs": Cost(sizes.width * (n * h + m) * c + logs, 2 * n * h * m * c),
        "summarize": Cost(
            logs + rows + noise + num_parts * (2 * masses + means), 2 * n * h * k * m * c, n * h * (k + 1) * m
        ),
        "merge": Cost(num_parts * (2 * masses + means) + 3 * masses + means),
        "attend": Cost(
            logs + rows + masses + means + wide * n * h * (2 * (k + 1) + 1),
            2 * n * h * k * m * c,
            n * h * (2 * k + 1) * m,
        ),
    }


def _backward(sizes: Sizes) -> dict[str, Cost]:
    n, h, c, m, k, wide = sizes.nodes, sizes.heads, sizes.channels, sizes.features, sizes.draws, sizes.wide
    logs, rows, noise, sums = sizes.width * n * h * m, sizes.width * n * c, wide * n * h * k, wide * n * h * (k + 1)
    masses, means = wide * h * (k + 1) * m, wide * h * k * m * c
    num_parts, product = _parts(sizes), 2 * n * h * k * m * c
    return {
        "attend_backward": Cost(
            logs + masses + means + 3 * sums + rows + wide * n * h + wide * n * h * m, product, n * h * (2 * k + 1) * m
        ),
        "share": Cost(logs + masses + 3 * sums + rows + num_parts * (masses + means), product, n * h * (k + 1) * m),
        "add_parts": Cost(num_parts * (masses + means) + 2 * means + masses),
        "summarize_backward": Cost(2 * logs + 2 * rows + noise + 3 * masses + means, 2 * product, n * h * (k + 1) * m),
        "key_logs_backward": Cost(sizes.width * (2 * n * h + m) * c + logs, 2 * n * h * m * c),
    }


def _edges(sizes: Sizes) -> dict[str, Cost]:
    n, h, m, e, wide = sizes.nodes, sizes.heads, sizes.features, sizes.edges, sizes.wide
    gathered, logs = sizes.width * e * h * m, sizes.width * n * h * m
    an_edge = wide * (h + 1) + 4
    return {
        "log_product": Cost(2 * gathered + wide * n * h + e * (an_edge + 4), 0, e * h * m),
        "pull_targets": Cost(2 * logs + gathered + 4 * n + e * an_edge + wide * n * h, 0, e * h * m),
        "pull_sources": Cost(2 * logs + gathered + 4 * n + e * (an_edge + 8), 0, e * h * m),
    }


def _epilogue(sizes: Sizes) -> dict[str, Cost]:
    """Of three terms with a norm, ELU and dropout."""
    rows, ids = sizes.width * sizes.nodes * sizes.channels, 8 * sizes.nodes
    cells = sizes.nodes * sizes.channels
    partial = 2 * sizes.wide * sizes.channels * parts(sizes.nodes, 1, 32)[0]
    return {"add_norm": Cost(5 * rows + ids, 0, cells), "add_norm_backward": Cost(3 * rows + ids + partial, 0, cells)}


def _parts(sizes: Sizes) -> int:
    """How many parts the sums over nodes have: as in summaries.py and attention.py."""
    tiles = count(sizes.features, tile(sizes.features)) * count(sizes.channels, tile(sizes.channels))
    return parts(sizes.nodes, sizes.heads * (sizes.draws + 1) * tiles, 32)[0]


def main() -> None:
    sizes = replace(Sizes(), **{name: int(value) for name, value in (word.split("=") for word in sys.argv[1:])})
    print(sizes, "\n")
    print("| kernel | MB | GFLOP | million exponentials |\n|---|---|---|---|")
    found = costs(sizes)
    whole = Cost(*(sum(getattr(cost, kind) for cost in found.values()) for kind in ("bytes", "flops", "exponentials")))
    for name, cost in {**found, f"all {len(found)}": whole}.items():
        print(f"| {name} | {cost.bytes / 1e6:.1f} | {cost.flops / 1e9:.2f} | {cost.exponentials / 1e6:.1f} |")


if __name__ == "__main__":
    main()
