"""What a run has not is a sentence with the command that makes it; what is damaged is an error of one line."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from nfdist import api
from nfdist.errors import CheckpointError, NfdistError, PartitionError
from nfdist.reporting.page import one_run
from nfdist.reporting.run_facts import gather
from nfdist.store.store import Store
from tests.reporting.building import train_run
from tests.reporting.explained import Explained


@pytest.fixture
def copy(explained: Explained, tmp_path: Path) -> Path:
    return Path(shutil.copytree(explained.path, tmp_path / "run"))


def test_a_whole_run_lacks_nothing(explained: Explained) -> None:
    assert explained.facts.absent == {}
    assert explained.facts.map is not None
    assert explained.facts.map.links
    assert explained.facts.structure is not None


def test_mistakes_are_told_with_their_neighbors(explained: Explained) -> None:
    facts = explained.facts
    truth = {row["id"]: row["true_label"] for row in pq.read_table(explained.path / "predictions.parquet").to_pylist()}
    edges = pq.read_table(explained.graph.parent / "tables" / "edges.parquet").to_pylist()
    assert facts.mistakes
    for one in facts.mistakes:
        own = one.mistake.original_id
        ends = {edge["source"] for edge in edges if edge["target"] == own}
        ends |= {edge["target"] for edge in edges if edge["source"] == own}
        ends.discard(own)
        assert one.num_heard == len(ends)
        assert one.heard_classes == Counter(truth[end] or "no label" for end in ends)
        assert {neighbor.original_id for neighbor in one.heard} <= ends
        shares = [neighbor.weight or 0 for neighbor in one.heard]
        assert shares == sorted(shares, reverse=True)
        assert all(neighbor.label == (truth[neighbor.original_id] or "no label") for neighbor in one.attended)


def test_labels_on_the_map_are_those_of_the_graph(explained: Explained) -> None:
    facts, store = explained.facts, Store.open(explained.graph)
    assert facts.map is not None
    assert facts.labels is not None
    assert facts.labels.tolist() == store.labels(torch.from_numpy(facts.map.node_ids)).tolist()
    assert np.unique(facts.map.node_ids).tolist() == facts.map.node_ids.tolist()


@pytest.mark.parametrize(
    ("gone", "section", "said"),
    [
        ("predictions.parquet", "answers", "no predictions.parquet: `nfdist evaluate"),
        ("embeddings.parquet", "map", "no embeddings.parquet: `nfdist evaluate"),
        ("states", "attention", "no states/ to take its attention from: `nfdist evaluate"),
        ("result.json", "result", "goes on with `nfdist train"),
        ("evaluation.json", "checksum", "recorded no checksum of it"),
    ],
)
def test_what_is_gone_is_told_in_a_sentence(gone: str, section: str, said: str, copy: Path) -> None:
    path = copy / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    facts = gather(copy)
    assert said in facts.absent[section]
    assert said.replace("`", "").split(":")[0] in one_run(facts).replace("<code>", "").replace("</code>", "")


def test_a_graph_that_is_elsewhere_is_named_by_an_option(copy: Path, explained: Explained, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(explained.graph, moved)
    hidden = explained.graph.rename(explained.graph.with_name("hidden"))
    try:
        facts = gather(copy)
        assert "--partition DIR" in facts.absent["graph"]
        assert facts.answers is not None
        assert "nodes" in one_run(facts)
        assert gather(copy, moved).absent == {}
    finally:
        hidden.rename(explained.graph)
    with pytest.raises(PartitionError, match="not a directory"):
        gather(copy, tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["predictions.parquet", "embeddings.parquet", "states/hidden-1.npy", "result.json"])
@pytest.mark.parametrize("place", [0.3, 0.9])
def test_any_altered_byte_is_refused(name: str, place: float, copy: Path) -> None:
    content = bytearray((copy / name).read_bytes())
    content[int(place * len(content))] ^= 0x10
    (copy / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name.rpartition('/')[2]} was altered since it was written"):
        gather(copy)


def test_a_torn_or_wrong_line_of_metrics_is_refused(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write("[1]\n")
    with pytest.raises(NfdistError, match=r"metrics\.jsonl"):
        gather(copy)


def test_a_run_that_was_never_evaluated_and_a_baseline_have_their_sentences(
    explained: Explained, tmp_path: Path
) -> None:
    path = train_run(
        tmp_path / "mlp", explained.graph, False, model={"name": "mlp"}, relation={"order": 0}, train={"edge_loss": 0.0}
    )
    facts = gather(path)
    assert set(facts.absent) == {"answers", "map", "attention"}
    assert "A mlp has no attention" in facts.absent["attention"]
    assert "A mlp has no attention" in one_run(facts)
    api.evaluate(path)
    facts = gather(path)
    assert set(facts.absent) == {"map", "attention"}
    assert facts.mistakes
    assert not facts.mistakes[0].attended


def test_states_and_answers_of_another_checkpoint_are_not_mixed(copy: Path) -> None:
    best = gather(copy)
    assert best.model is not None
    others = [
        path for path in sorted(copy.glob("checkpoints/seed-*/step-*")) if path.name != f"step-{best.model.step:08d}"
    ]
    api.evaluate(copy, checkpoint=others[0], outputs=False)
    facts = gather(copy)
    assert facts.model is not None
    assert facts.model.step != best.model.step
    assert facts.answered_by == best.model.facts()
    assert not facts.mistakes[0].attended
    assert facts.map is not None
    assert facts.map.links == ()
