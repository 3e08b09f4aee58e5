"""What evaluation writes is the same from any world and any partition, in the user's ids, whole or absent."""

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nfdist.errors import CheckpointError
from nfdist.evaluation.gathered_writer import replaced_output, write_gathered, write_gathered_table
from nfdist.evaluation.outputs import answers, id_name, write_predictions
from nfdist.model.task import Task
from nfdist.store.schema import Schema
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import forward
from tests.evaluation.conftest import PARTS, SIZES, WRITTEN_KINDS
from tests.evaluation.trained import SEED, WRITTEN
from tests.store.building import build_graph, write
from tests.worlds import run_world

KINDS_AND_PARTS = list(product(WRITTEN_KINDS, PARTS))


@pytest.mark.parametrize(("kind", "parts"), KINDS_AND_PARTS)
def test_predictions_are_those_of_the_model_in_the_order_of_node_ids(kind: str, parts: int, written: Path) -> None:
    store = Store.open(written / f"{kind} {parts}")
    everyone = torch.arange(store.num_nodes)
    probabilities, classes = forward(WRITTEN[kind].build(5), store, SEED).softmax(1).topk(3, 1)
    for size in SIZES:
        table = pq.read_table(written / f"{kind} {parts} by {size}" / "predictions.parquet").to_pydict()
        assert table["id"] == store.original_ids(everyone).tolist()
        assert table["label"] == classes[:, 0].tolist()
        assert table["top_labels"] == classes.tolist()
        assert difference(torch.tensor(table["top_probabilities"]), probabilities.float()) < 1e-5
        assert table["probability"] == [best[0] for best in table["top_probabilities"]]
        names = ("unassigned", "train", "valid", "test")
        assert table["split"] == [names[number] for number in store.split(everyone)]
        assert table["true_label"] == [None if label < 0 else label for label in store.labels(everyone).tolist()]


@pytest.mark.parametrize("file", ["predictions.parquet", "embeddings.parquet", "edges.parquet"])
@pytest.mark.parametrize("kind", WRITTEN_KINDS)
def test_every_world_and_partition_writes_the_same_rows(kind: str, file: str, written: Path) -> None:
    keys = ["source", "target"] if file == "edges.parquet" else ["id"]
    sorting = [(key, "ascending") for key in keys]
    first = pq.read_table(written / f"{kind} 1 by 1" / file)
    for parts, size in product(PARTS, SIZES):
        table = pq.read_table(written / f"{kind} {parts} by {size}" / file)
        one = pq.read_table(written / f"{kind} {parts} by 1" / file)
        assert table.select(keys) == one.select(keys), (parts, size)
        assert table.schema == first.schema
        mine, others = table.sort_by(sorting), first.sort_by(sorting)
        assert mine.select(keys) == others.select(keys)
        for name in ("probability", "top_probabilities", "embedding", "weights"):
            if name in mine.column_names:
                numbers = [np.array(rows.column(name).to_pylist(), dtype=np.float64) for rows in (mine, others)]
                assert np.abs(numbers[0] - numbers[1]).max() < 1e-5 * np.abs(numbers[1]).max()


@pytest.mark.parametrize(("kind", "parts"), KINDS_AND_PARTS)
def test_states_are_the_same_bytes_from_any_world(kind: str, parts: int, written: Path) -> None:
    folders = [written / f"{kind} {parts} by {size}" / "states" for size in SIZES]
    names = sorted(path.name for path in folders[0].glob("*.npy"))
    partials = ["hidden-0-partial-1.npy", "hidden-1-partial-1.npy"] if WRITTEN[kind].relation.num_partials else []
    assert names == sorted([*partials, "hidden-0.npy", "hidden-1.npy", "roots.npy"])
    for name, folder in product(names, folders[1:]):
        mine, others = np.load(folder / name), np.load(folders[0] / name)
        assert mine.shape == others.shape
        assert np.abs(mine - others).max() < 1e-12


def test_questions_have_a_list_of_answers() -> None:
    logits = torch.tensor([[2.0, -1.0, 0.5], [-3.0, 4.0, -0.1]])
    columns = answers(Task("multi", 3), logits, 2, Schema.of_matrix(1))
    assert columns["label"].to_pylist() == [[1, 0, 1], [0, 1, 0]]
    assert np.allclose(columns["probability"].to_pylist(), logits.sigmoid())
    assert set(columns) == {"label", "probability"}


def test_there_are_never_more_likely_classes_than_classes() -> None:
    columns = answers(Task("binary", 2), torch.tensor([[0.0, 1.0]]), 9, Schema.of_matrix(1))
    assert columns["top_labels"].to_pylist() == [[1, 0]]


def test_classes_have_the_names_the_user_gave_them() -> None:
    logits = torch.tensor([[2.0, -1.0, 0.5], [-3.0, 4.0, 5.0]])
    named = Schema.of_matrix(1, class_names=("ant", "bee", "cat"))
    columns = answers(Task("single", 3), logits, 2, named, probabilities=True)
    assert columns["label"].to_pylist() == ["ant", "cat"]
    assert columns["top_labels"].to_pylist() == [["ant", "cat"], ["cat", "bee"]]
    each = [columns[f"probability_{name}"].to_pylist() for name in named.class_names]
    assert np.allclose(np.transpose(each), logits.softmax(1))
    booleans = answers(Task("single", 2), logits[:, :2], 1, Schema.of_matrix(1, class_names=(False, True)))
    assert booleans["label"].to_pylist() == [False, True]
    numbers = answers(Task("single", 3), logits, 1, Schema.of_matrix(1), probabilities=True)
    assert numbers["label"].to_pylist() == [0, 2]
    assert numbers["probability_2"].to_pylist() == columns["probability_cat"].to_pylist()


def test_ids_are_under_the_name_of_their_column_unless_it_is_taken() -> None:
    for name, column in (("user", "user"), ("id", "id"), ("label", "id"), ("probability_x", "id")):
        assert id_name(Schema.of_matrix(1, id_column=name)) == column


def test_ids_may_be_text_and_labels_many(tmp_path: Path) -> None:
    write(tmp_path / "graph", build_graph(ids="text", questions=3))
    store = Store.open(tmp_path / "graph")
    everyone, path = torch.arange(60), tmp_path / "predictions.parquet"
    write_predictions(
        path, store, World(), Task("multi", 3), range(60), torch.zeros(60, 3), store.split(everyone), top_k=1
    )
    table = pq.read_table(path).to_pydict()
    assert table["id"] == store.original_ids(everyone).tolist()
    assert table["true_label"] == [
        [None if answer < 0 else answer for answer in row] for row in store.labels(everyone).tolist()
    ]


def fail_halfway(path: Path) -> None:
    with replaced_output(path) as aside:
        aside.write_text("half")
        raise CheckpointError("no space")


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    with replaced_output(path) as aside:
        aside.write_text("old")
    with pytest.raises(CheckpointError, match="no space"):
        fail_halfway(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["some.parquet"]


def fail_on_one(world: World, folder: Path, who: int) -> list[str]:
    """What every rank is told when one of them cannot make, or rank 0 cannot write, its rows."""
    told = []

    def make(row: int) -> dict[str, pa.Array]:
        if row == 2 and world.rank == who:
            raise CheckpointError("part 2 is gone")
        return {"id": pa.array([row])}

    def refuse(content: torch.Tensor) -> None:
        raise CheckpointError("the disk is full")

    for attempt in (
        lambda: write_gathered_table(
            folder / "rows.parquet", world, [(row % world.size, row) for row in range(4)], make
        ),
        lambda: write_gathered(world, [(1, 0), (0, 1)], lambda row: torch.ones(3, dtype=torch.uint8), refuse),
    ):
        try:
            attempt()
            told.append("")
        except CheckpointError as error:
            told.append(f"{error.everywhere} {error}")
    return told


def test_what_fails_on_one_rank_fails_on_all_and_leaves_nothing(tmp_path: Path) -> None:
    for told in run_world(2, fail_on_one, tmp_path, 0):
        assert "True" in told[0]
        assert "part 2 is gone" in told[0]
        assert "the disk is full" in told[1]
    assert list(tmp_path.iterdir()) == []
