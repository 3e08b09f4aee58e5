"""Features of images, as the paper has them: a network of four convolutions and a linear map to 128 numbers.

    python benchmarks/paper/image_features.py IMAGES --out FILE.npz [--split random:0.5/0.25/0.25] [--seed 0]

IMAGES is a folder with a folder of images for each class, or an .npz with pixels in `feat` [n, side x side] (or three
colors one after another, [n, 3 x side x side]) and classes in `label`. The network learns the classes of the training
images alone: labels of validation and test images are never looked at. FILE has the 128 features, the labels, no edges
and that very split, which every training with these features must keep:

    nfdist partition FILE.npz --knn 5 --split official --parts 1 --out DIR        and data.split = "stored"

A convolution is followed by a batch norm, a ReLU and a maximum over 2 x 2. The last epoch is the one that is kept, so
that nothing is chosen by validation scores either.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from nfdist import seeds
from nfdist.config import parse_fractions
from nfdist.errors import ConfigError, NfdistError
from nfdist.store.source_graph import TEST, TRAIN, VALID, draw_split

NUM_FEATURES = 128
SPLITS = {"train_idx": TRAIN, "valid_idx": VALID, "test_idx": TEST}
FORMATS = (".png", ".jpg", ".jpeg", ".bmp")


@dataclass(frozen=True)
class Images:
    """Images [n, colors, side, side] between 0 and 1, and their classes [n], -1 for none."""

    pixels: Tensor
    labels: NDArray[np.int64]

    @staticmethod
    def read(source: Path, side: int) -> "Images":
        if source.is_dir():
            return Images.read_folder(source, side)
        if source.suffix == ".npz" and source.exists():
            return Images.read_array(source)
        raise ConfigError(f"{source} is no folder of images and no .npz: name one of these")

    @staticmethod
    def read_array(path: Path) -> "Images":
        try:
            with np.load(path, allow_pickle=False) as arrays:
                absent = {"feat", "label"} - set(arrays.files)
                if absent:
                    raise ConfigError(f"{path} has no array {', '.join(sorted(absent))}: save it with feat and label")
                flat, labels = arrays["feat"], arrays["label"]
        except (OSError, ValueError, BadZipFile) as error:
            raise ConfigError(f"{path} cannot be read ({error}): save it again with numpy") from None
        if flat.ndim != 2 or labels.shape != flat.shape[:1]:
            raise ConfigError(f"feat and label of {path} must be [n, pixels] and [n], got {flat.shape}, {labels.shape}")
        if (labels != np.rint(labels)).any() or (labels < -1).any():
            raise ConfigError(f"label of {path} must have whole numbers from -1, for none: number the classes")
        colors, side = _shape(flat.shape[1])
        if not np.isfinite(flat).all():
            raise ConfigError(f"feat of {path} has pixels that are NaN or infinite: leave these images out")
        scale = 255.0 if flat.dtype == np.uint8 else 1.0
        pixels = torch.from_numpy(flat.astype(np.float32) / scale).view(-1, colors, side, side)
        return Images(pixels, labels.astype(np.int64))

    @staticmethod
    def read_folder(folder: Path, side: int) -> "Images":
        from PIL import Image  # imported late: arrays need it not

        classes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
        files = [(file, label) for label, entry in enumerate(classes) for file in sorted(entry.iterdir())]
        files = [(file, label) for file, label in files if file.suffix.lower() in FORMATS]
        if not files:
            raise ConfigError(
                f"{folder} has no folders with images ({', '.join(FORMATS)}): one for each class is needed"
            )
        pixels = np.empty((len(files), 3, side, side), np.float32)
        for row, (file, _) in enumerate(files):
            try:
                with Image.open(file) as image:
                    small = np.asarray(image.convert("RGB").resize((side, side)), np.float32)
            except OSError as error:
                raise ConfigError(f"{file} is no image that can be read ({error}): remove it") from None
            pixels[row] = small.transpose(2, 0, 1) / 255
        return Images(torch.from_numpy(pixels), np.array([label for _, label in files], np.int64))


class FeatureNetwork(nn.Module):
    """Four convolutions, a linear map to the features, and one to the classes."""

    def __init__(self, colors: int, side: int, channels: int, num_classes: int, seed: int) -> None:
        super().__init__()
        widths = [colors, *[channels] * 4]
        with torch.random.fork_rng(devices=[]):  # weights are drawn again below, by name
            self.convolutions = nn.ModuleList(
                nn.Conv2d(before, after, 3, padding=1) for before, after in pairwise(widths)
            )
            self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(4))
            for _ in range(4):
                side = max(side // 2, 1)
            self.features = nn.Linear(channels * side**2, NUM_FEATURES)
            self.classes = nn.Linear(NUM_FEATURES, num_classes)
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                _draw(layer, seeds.generator(seed, "image weights", name))

    def embed(self, pixels: Tensor) -> Tensor:
        """The features of images, [n, 128]."""
        rows = pixels
        for convolve, norm in zip(self.convolutions, self.norms, strict=True):
            rows = norm(convolve(rows)).relu()
            rows = F.max_pool2d(rows, 2) if rows.shape[-1] > 1 else rows
        features: Tensor = self.features(rows.flatten(1))
        return features

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.classes(self.embed(pixels).relu())
        return logits


def train(images: Images, split: NDArray[np.int8], options: argparse.Namespace, say: Callable[[str], None]) -> Tensor:
    """The features of all images by a network that has seen the labels of training images alone."""
    rows = torch.from_numpy(np.flatnonzero(split == TRAIN))
    labels = torch.from_numpy(images.labels)[rows]
    if len(rows) < 2:
        raise ConfigError(f"the split {options.split} leaves {len(rows)} training images: give it more")
    mean, deviation = images.pixels[rows].mean(), images.pixels[rows].std().clamp(min=1e-6)
    colors, side = images.pixels.shape[1:3]
    num_classes = int(labels.max()) + 1
    network = FeatureNetwork(colors, side, options.channels, num_classes, options.seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)
    for epoch in range(options.epochs):
        order = torch.randperm(len(rows), generator=seeds.generator(options.seed, "image order", epoch))
        total = 0.0
        for some in order.split(options.batch):
            if len(some) == 1:
                continue  # a batch norm of one image is no norm
            optimizer.zero_grad()
            loss = F.cross_entropy(network((images.pixels[rows[some]] - mean) / deviation), labels[some])
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(some)
        say(f"epoch {epoch + 1}: training loss {total / len(rows):.4f}")
    network.eval()
    with torch.no_grad():
        return torch.cat([network.embed((some - mean) / deviation) for some in images.pixels.split(options.batch)])


def make(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Read, train and write; what was done."""
    began = time.perf_counter()
    for name, least in (
        ("epochs", 1),
        ("batch", 2),
        ("channels", 1),
        ("side", 2),
        ("seed", 0),
        ("learning_rate", 1e-12),
    ):
        if not least <= getattr(options, name) < float("inf"):
            raise ConfigError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(options, name)}")
    if not options.out.parent.is_dir() or options.out.suffix != ".npz":
        raise ConfigError(f"--out {options.out} must be a file .npz in a folder that exists")
    images = Images.read(options.images, options.side)
    fractions = parse_fractions("--split", options.split, "such fractions")
    split = draw_split(images.labels >= 0, fractions, options.seed)
    features = train(images, split, options, say)
    rows = {name: np.flatnonzero(split == code) for name, code in SPLITS.items()}
    aside = options.out.with_suffix(".part.npz")
    arrays: dict[str, Any] = {"feat": features.numpy(), "label": images.labels, **rows}
    np.savez(aside, edge_index=np.zeros((2, 0), np.int64), **arrays)
    aside.replace(options.out)
    counts = {name.removesuffix("_idx"): len(found) for name, found in rows.items()}
    return {"images": len(features), **counts, "seconds": round(time.perf_counter() - began, 1)}


def _shape(pixels: int) -> tuple[int, int]:
    """The colors and the side of images of so many pixels."""
    for colors in (1, 3):
        side = round((pixels / colors) ** 0.5)
        if colors * side**2 == pixels:
            return colors, side
    raise ConfigError(
        f"images must be square, of one or three colors, and feat has {pixels} columns: cut them to squares"
    )


def _draw(layer: nn.Conv2d | nn.Linear, generator: torch.Generator) -> None:
    """Weights in torch's usual ranges."""
    bound = layer.weight[0].numel() ** -0.5
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * bound)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", metavar="IMAGES", type=Path)
    parser.add_argument("--out", metavar="FILE.npz", type=Path, required=True)
    parser.add_argument("--split", default="random:0.5/0.25/0.25")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights and the order of images")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--channels", type=int, default=32, help="of each convolution")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--side", type=int, default=84, help="to which images of a folder are made")
    options = parser.parse_args()
    try:
        done = make(options, lambda line: print(line, file=sys.stderr, flush=True))
    except NfdistError as error:
        print(f"image_features: {error}", file=sys.stderr)
        return 2
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
