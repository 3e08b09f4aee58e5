"""Features of images: by training labels alone, with the split that they keep, and one line where there are none."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import image_features
import numpy as np
import pytest
import torch
from PIL import Image

from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.store.source_graph import TEST, TRAIN, VALID
from nfdist.store.store import Store

SIDE, COUNT = 8, 60


def drawn_images() -> tuple[np.ndarray, np.ndarray]:
    """Bytes with noise and a bright half, the upper or the lower one by the class."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, COUNT)
    pixels = generator.integers(0, 100, (COUNT, SIDE, SIDE))
    for image, label in zip(pixels, labels, strict=True):
        image[SIDE // 2 * label : SIDE // 2 * (label + 1)] += 100
    return pixels.reshape(COUNT, -1).astype(np.uint8), labels


def made(folder: Path, labels: np.ndarray, monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, np.ndarray]:
    folder.mkdir()
    np.savez(folder / "images.npz", feat=drawn_images()[0], label=labels)
    common = ["--out", str(folder / "made.npz"), "--epochs", "4", "--batch", "10", "--channels", "4"]
    monkeypatch.setattr(sys, "argv", ["image_features.py", str(folder / "images.npz"), *common, *words])
    assert image_features.main() == 0
    with np.load(folder / "made.npz") as arrays:
        return dict(arrays)


def test_they_tell_classes_apart_and_know_training_labels_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = drawn_images()[1]
    arrays = made(tmp_path / "one", labels, monkeypatch)
    assert json.loads(capsys.readouterr().out) | {"seconds": 0} == {
        "images": 60,
        "train": 30,
        "valid": 15,
        "test": 15,
        "seconds": 0,
    }
    features, train, test = arrays["feat"], arrays["train_idx"], arrays["test_idx"]
    assert features.shape == (60, 128)
    assert features.dtype == np.float32
    centers = np.stack([features[train][labels[train] == label].mean(0) for label in range(2)])
    nearest = np.square(features[test][:, None] - centers).sum(2).argmin(1)
    assert (nearest == labels[test]).mean() > 0.9
    others = labels.copy()
    others[np.concatenate([arrays["valid_idx"], test])] = 1 - others[np.concatenate([arrays["valid_idx"], test])]
    assert np.array_equal(made(tmp_path / "two", others, monkeypatch)["feat"], features)
    others[train[0]] = 1 - others[train[0]]
    assert not np.array_equal(made(tmp_path / "three", others, monkeypatch)["feat"], features)
    seeded = made(tmp_path / "four", labels, monkeypatch, "--seed", "1")
    assert sorted(seeded["train_idx"]) != sorted(train)


def test_a_partition_of_them_keeps_the_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = made(tmp_path / "one", drawn_images()[1], monkeypatch)
    given = {"parts": 1, "out": str(tmp_path / "graph"), "split": "official", "knn": 3}
    partition(Recipe.build(str(tmp_path / "one" / "made.npz"), given))
    store = Store.open(tmp_path / "graph")
    everyone = torch.arange(60)
    split, original = store.split(everyone).numpy(), store.original_ids(everyone)
    for name, code in (("train_idx", TRAIN), ("valid_idx", VALID), ("test_idx", TEST)):
        assert sorted(np.asarray(original)[split == code]) == sorted(arrays[name])
    assert store.num_features == 128
    assert store.num_edges >= 180


def test_a_folder_has_a_folder_of_images_for_each_class(tmp_path: Path) -> None:
    pixels, labels = drawn_images()
    for row, (image, label) in enumerate(zip(pixels[:6], labels[:6], strict=True)):
        (tmp_path / f"class-{label}").mkdir(exist_ok=True)
        Image.fromarray(image.reshape(SIDE, SIDE)).save(tmp_path / f"class-{label}" / f"{row}.png")
    (tmp_path / "class-0" / "notes.txt").write_text("no image")
    images = image_features.Images.read(tmp_path, SIDE)
    order = np.argsort(labels[:6], kind="stable")
    assert images.labels.tolist() == labels[:6][order].tolist()
    assert torch.equal(images.pixels[:, 0].reshape(6, -1), torch.from_numpy(pixels[:6][order].astype(np.float32) / 255))


@pytest.mark.parametrize(
    ("arrays", "words", "said"),
    [
        (None, (), "is no folder of images and no .npz"),
        ({"feat": np.zeros((4, 9))}, (), "has no array label"),
        ({"feat": np.zeros((4, 10)), "label": np.zeros(4)}, (), "feat has 10 columns"),
        ({"feat": np.zeros((4, 9)), "label": np.zeros(5)}, (), r"must be \[n, pixels\] and \[n\]"),
        ({"feat": np.full((4, 9), np.nan), "label": np.zeros(4)}, (), "NaN or infinite"),
        ({"feat": np.zeros((4, 9)), "label": np.full(4, 0.5)}, (), "whole numbers from -1"),
        ({"feat": np.zeros((4, 9)), "label": np.zeros(4)}, ("--epochs", "0"), "--epochs must be at least 1, got 0"),
        ({"feat": np.zeros((4, 9)), "label": np.zeros(4)}, ("--out", "nowhere/made.npz"), "in a folder that exists"),
        ({"feat": np.zeros((4, 9)), "label": np.zeros(4)}, ("--split", "half"), "--split must be such fractions"),
        ({"feat": np.zeros((4, 9)), "label": np.zeros(4)}, ("--split", "random:0.1/0.2/0.7"), "leaves 0 training"),
    ],
)
def test_what_is_no_images_is_one_line(
    arrays: dict[str, Any] | None,
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if arrays is not None:
        np.savez(tmp_path / "images.npz", **arrays)
    monkeypatch.setattr(
        sys, "argv", ["image_features.py", str(tmp_path / "images.npz"), "--out", str(tmp_path / "made.npz"), *words]
    )
    assert image_features.main() == 2
    captured = capsys.readouterr()
    assert re.search(said, captured.err)
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert not (tmp_path / "made.npz").exists()
