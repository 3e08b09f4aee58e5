"""Cleaning frees what nothing needs, and what is named; a run stays a run, and nobody loses what they work with."""

import mmap
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from nfdist import files
from nfdist.cleaning.candidates import Candidate, Kept
from nfdist.cleaning.kinds import KINDS, USUAL, parse_kinds
from nfdist.cleaning.removal import plan, remove
from nfdist.cli.main import main
from nfdist.errors import CheckpointError, ConfigError
from nfdist.runs.describe import describe_run
from nfdist.runs.ownership import owning
from nfdist.runs.run import Run
from tests.cleaning.building import build_folder, content, copied, leave_aside

EVERYTHING = tuple(name for name in KINDS if name != "cache")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_folder(tmp_path_factory.mktemp("cleaning"))


@pytest.fixture
def top(built: Path, tmp_path: Path) -> Path:
    return copied(built, tmp_path)


def names(found: Iterable[Candidate | Kept], top: Path) -> set[str]:
    return {str(one.path.relative_to(top)) for one in found}


def test_looking_changes_nothing_and_finds_all_kinds(top: Path) -> None:
    aside = [leave_aside(folder) for folder in (top, top / "graph.hops", top / "runs/cora/checkpoints/seed-0")]
    before = content(top)
    found = plan(top)
    assert content(top) == before
    assert found.kept == ()
    kinds = {kind: names(found.of([kind]), top) for kind in EVERYTHING}
    assert kinds["temporary"] == {str(path.relative_to(top)) for path in aside}
    assert kinds["states"] == {"runs/cora/states"}
    assert kinds["embeddings"] == {"runs/cora/embeddings.parquet"}
    assert kinds["hops"] == {"graph.hops/order-2"}
    assert kinds["tuning"] == set()
    assert all(one.size_bytes == sum(map(len, filter(None, _bytes(one.path)))) for one in found.candidates)


def _bytes(path: Path) -> list[bytes | None]:
    return [path.read_bytes()] if path.is_file() else list(content(path).values())


def test_old_checkpoints_are_all_but_the_best_and_the_last_of_each_seed(top: Path) -> None:
    run = Run.open(top / "runs/cora")
    kept = set()
    for seed in run.seeds:
        steps, best = list(run.checkpoint_paths(seed)), run.best_of(seed)
        assert best is not None
        kept |= {(seed, best["step"]), (seed, steps[-1])}
    saved = {(seed, step): path for seed in run.seeds for step, path in run.checkpoint_paths(seed).items()}
    expected = {str(path.relative_to(top)) for key, path in saved.items() if key not in kept}
    assert expected
    assert names(plan(top).of(["checkpoints"]), top) == expected


def test_a_cleaned_run_is_inspected_evaluated_and_continued_as_before(
    top: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = top / "runs/cora"
    scores = Run.open(run).result()
    outcomes = list(remove(plan(top).of(EVERYTHING)))
    assert not [one for one in outcomes if isinstance(one, Kept)]
    assert plan(top).candidates == ()
    assert {path.name for path in run.iterdir()} >= {"run.json", "checkpoints", "predictions.parquet", "result.json"}
    assert not (top / "graph.hops").exists()
    facts = describe_run(Run.open(run))
    assert (facts["problems"], facts["result"]) == ([], scores)

    assert main(["evaluate", str(run)]) == 0  # which makes states and embeddings again
    assert {path.name for path in run.iterdir()} >= {"states", "embeddings.parquet"}
    assert main(["train", str(run / "config.toml"), f"run.dir={run}", "train.epochs=4", "--resume"]) == 0
    result = Run.open(run).result()
    assert result is not None
    assert result["final"]["epoch"] == 4
    assert "Traceback" not in capsys.readouterr().err


def test_of_a_training_that_was_stopped_what_it_goes_on_from_stays(top: Path) -> None:
    run = Run.open(top / "runs/cora")
    (run.path / "result.json").unlink()
    last = {seed: list(run.checkpoint_paths(seed))[-1] for seed in run.seeds}
    newest = run.checkpoint_paths(0)[last[0]]
    (newest / "weights.safetensors").write_bytes(b"damaged")  # then the one before is the one to go on from
    before_it = list(run.checkpoint_paths(0))[-2]
    list(remove(plan(top).of(EVERYTHING)))
    assert {before_it, last[0]} <= set(run.checkpoint_paths(0))
    checkpoint = run.last_checkpoint([1, 0])
    assert checkpoint is not None
    assert checkpoint.state["step"] == before_it
    assert not plan(top).of(["last"])


@pytest.mark.parametrize("deed", ["train", "evaluate", "follow"])
def test_nothing_of_a_run_at_work_is_removed(top: Path, deed: str) -> None:
    leave_aside(top / "runs/cora/checkpoints")
    found = plan(top)
    with owning(top / "runs/cora" / f"{deed}.lock", "used"):
        before = content(top)
        assert not [one for one in plan(top).candidates if one.owner.name == "cora"]
        assert names(plan(top).kept, top) >= names(found.of(["checkpoints", "states"]), top)
        kept = list(remove(found.of(["checkpoints", "states", "embeddings", "temporary"])))  # found before it began
        assert all(isinstance(one, Kept) and "by process" in one.reason for one in kept)
        assert content(top) == before


def test_hops_stay_while_a_run_of_their_graph_is_at_work(built: Path) -> None:
    with owning(built / "runs/cora/train.lock", "trained"):
        assert names(plan(built).kept, built) >= {"graph.hops/order-2"}
        assert not plan(built).of(["hops"])


def test_what_a_process_has_mapped_stays(top: Path) -> None:
    file = top / "graph.hops/order-2/part-00000/sources.arrow"
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ):
        assert names(plan(top).kept, top) == {"graph.hops/order-2"}
    assert plan(top).of(["hops"])


def test_links_are_not_followed(top: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for name in ("runs/cora/states", "runs/cora/checkpoints/seed-0", "graph.hops"):
        outside.mkdir(exist_ok=True)
        shutil.move(top / name, outside / Path(name).name)
        (top / name).symlink_to(outside / Path(name).name)
    (top / "linked").symlink_to(outside)
    leave_aside(outside)
    before = content(outside)
    list(remove(plan(top).of(EVERYTHING)))
    assert content(outside) == before
    assert (top / "runs/cora/states").is_symlink()


def test_what_a_living_process_or_another_host_has_aside_stays(top: Path) -> None:
    leave_aside(top, process=os.getpid())
    leave_aside(top, host="elsewhere")
    assert plan(top).of(["temporary"]) == []


def test_a_removal_that_is_killed_leaves_a_run_and_something_to_clean(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        raise SystemExit

    run = top / "runs/cora"
    with monkeypatch.context() as patched:
        patched.setattr(files, "_delete", killed)
        with pytest.raises(SystemExit):
            list(remove(plan(top).of(["states"])))
    assert not (run / "states").exists()
    assert describe_run(Run.open(run))["problems"] == []
    files.abandon()  # by this process, which still lives


def test_a_damaged_run_is_left_alone(top: Path) -> None:
    (top / "runs/cora/config.toml").write_text("[model]\n")
    found = plan(top)
    assert not [one for one in found.candidates if one.owner.name == "cora"]
    assert ["config.toml" in one.reason for one in found.kept] == [True]


def test_the_hops_of_a_partition_that_is_named_itself_are_beside_it(top: Path) -> None:
    assert [one.path for one in plan(top / "graph").candidates] == [top / "graph.hops/order-2"]


def test_kinds() -> None:
    assert parse_kinds(None) == USUAL == ("checkpoints", "temporary")
    assert parse_kinds("states, hops,states") == ("states", "hops")
    for text in ("nosuch", "", ",", "states,nosuch"):
        with pytest.raises(ConfigError, match="--what"):
            parse_kinds(text)
    assert all(bool(kind.lost) == bool(kind.again) for kind in KINDS.values())


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(CheckpointError, match="nosuch cannot be read"):
        plan(Path("nosuch"))
