"""The jobs of the scoreboard and their stages: which commands, on which graph, for how long."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stage import ROOT, Stage

HERE = Path(__file__).parent
CONTENDERS = ("transcription", "GraphSAGE", "GCN", "SGFormer")
PLUMBING = ("observe.port=0", "run.device=cpu", "train.checkpoint_every=0", "train.keep=1", "train.epochs=1000000000")
CONTENDER_SECONDS = 600.0  # for loading and evaluating, beside twice those of training
WRITTEN = ("states", "predictions.parquet", "embeddings.parquet")  # by an evaluation
TAXONOMY = "ncbi-taxonomy.npz"


@dataclass(frozen=True)
class Job:
    """A graph, what is trained on it for how many `seconds`, and how much a `nfdist` process may hold.

    `overrides` come on top of the launch configuration of Amazon2M. An evaluation of the whole graph on the way costs
    too much where `evaluate_every` is 0, and contenders that can do so are then scored by sampled neighbors.
    """

    name: str
    title: str
    source: str
    parts: int
    seconds: float
    memory: str
    new_nodes: int
    options: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    evaluate_every: int = 1
    evaluate_memory: str = ""
    most_seconds: float = 900.0  # of a stage
    absent: str = ""
    ranks: bool = False  # whether two ranks train and evaluate, too
    contenders: tuple[str, ...] = CONTENDERS


def jobs(quick: bool, work: Path) -> list[Job]:
    """All of them; a quick one is the same at a small scale."""
    return [_amazon2m(quick), _taxonomy(quick, work), _papers(quick)]


def _amazon2m(quick: bool) -> Job:
    scale = 0.01 if quick else 1.0
    return Job(
        name="amazon2m",
        title="a graph of Amazon2M's shape" + (f", at {scale:g}" if quick else ""),
        source="amazon2m-like",
        parts=8,
        seconds=6.0 if quick else 240.0,
        memory="4GiB",
        new_nodes=200 if quick else 10_000,
        options=("--scale", f"{scale:g}"),
        overrides=_batches(quick),
        evaluate_every=4 if quick else 2,
        ranks=True,
    )


def _taxonomy(quick: bool, work: Path) -> Job:
    folder = os.environ.get("NFDIST_DATA")
    there = bool(folder) and (Path(folder or "") / TAXONOMY).is_file()
    return Job(
        name="taxonomy",
        title="NCBI's taxonomy" + (", its first 50,000 taxa" if quick else ""),
        source=str(work / "taxonomy-quick.npz") if quick else str(Path(folder or "") / TAXONOMY),
        parts=8,
        seconds=6.0 if quick else 120.0,
        memory="4GiB",
        new_nodes=200 if quick else 10_000,
        options=("--split", "random:0.5/0.25/0.25"),
        overrides=("model.layers=2", *_batches(quick)),
        evaluate_every=8 if quick else 2,
        absent="" if there else f"$NFDIST_DATA has no {TAXONOMY}",
    )


def _papers(quick: bool) -> Job:
    scale = 0.0005 if quick else 0.25
    return Job(
        name="papers100m",
        title=f"a graph of ogbn-papers100M's shape, at {scale:g}",
        source="papers100m-like",
        parts=4 if quick else 32,
        seconds=6.0 if quick else 180.0,
        memory="8GiB",
        # What lies in files at the peak of an evaluation: states and logits that have no room in memory, states and
        # embeddings that are written, and the partition, 42 GB together; with 64 channels it would be 60.
        evaluate_memory="16GiB",
        new_nodes=50 if quick else 10_000,
        options=("--scale", f"{scale:g}"),
        overrides=(
            "model.layers=2",
            "model.channels=32",
            *_batches(quick),
            "train.batch_from=train",
        ),
        evaluate_every=0,
        most_seconds=2400.0,
    )


def _batches(quick: bool) -> tuple[str, ...]:
    return ("train.batch_nodes=5000",) if quick else ()


def stages(job: Job, work: Path) -> list[Stage]:
    """The stages of a job in their order: those of nfdist, then its contenders."""
    folder = work / job.name
    partition, run = folder / "partition", folder / "run"
    overrides = (*PLUMBING, *job.overrides, f"data.partition={partition}")
    config = (str(ROOT / "launch" / "amazon2m-like.toml"), *overrides)
    every = f"train.evaluate_every={job.evaluate_every}"

    def stage(
        name: str,
        *command: str,
        out: Iterable[Path] = (),
        needs: Sequence[str] = (),
        seconds: float = 0,
        discards: Iterable[Path] = (),
    ) -> Stage:
        limit = job.most_seconds + seconds
        return Stage(job.name, name, command, limit, tuple(needs), tuple(out), tuple(discards), job.absent)

    words = ("--parts", str(job.parts), "--memory", job.memory, *job.options, "--out", str(partition), "--json")
    train = (str(HERE / "train_for.py"), f"{job.seconds:g}")
    evaluate = ("-m", "nfdist", "evaluate", str(run), "--memory", job.evaluate_memory or job.memory, "--json")
    twins = (str(HERE / "predict_twins.py"), str(partition), str(run), str(job.new_nodes), str(folder / "new"))
    made = [
        stage("partition", "-m", "nfdist", "partition", job.source, *words, out=[partition]),
        stage(
            "train", *train, "--", *config, every, f"run.dir={run}",
            out=[run], needs=["partition"], seconds=3 * job.seconds,
        ),
        stage("evaluate", *evaluate, out=[run / name for name in WRITTEN], needs=["train"]),
        stage("predict", *twins, out=[folder / "new"], needs=["evaluate"], discards=[run / name for name in WRITTEN]),
    ]  # fmt: skip
    if job.ranks:
        both = folder / "run-of-2-ranks"
        shared = ("attention.scope=world", "train.evaluate_every=0", f"run.dir={both}")
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "nfdist")
        made += [
            stage(
                "train, 2 ranks", train[0], f"{job.seconds / 4:g}", "--ranks", "2", "--", *config, *shared,
                out=[both], needs=["partition"], seconds=job.seconds,
            ),
            stage(
                "evaluate, 2 ranks", *torchrun, "evaluate", str(both), "--memory", job.memory, "--json", "--no-outputs",
                "--no-states", needs=["train, 2 ranks"],
            ),
        ]  # fmt: skip
    for contender in job.contenders:
        given = () if job.evaluate_every else ("--sampled", "--evaluations", "1")
        command = (str(HERE / "contender.py"), contender, f"{job.seconds:g}", *given, "--", *config)
        limit = CONTENDER_SECONDS + 2 * job.seconds
        made.append(Stage(job.name, contender, command, limit, ("partition",), absent=job.absent))
    return made


def prepare(job: Job) -> None:
    """Make the source of a quick job, which is a part of another one."""
    source = Path(job.source)
    if job.absent or not source.name.endswith("-quick.npz") or source.exists():
        return
    import numpy as np

    with np.load(Path(os.environ["NFDIST_DATA"]) / TAXONOMY, allow_pickle=False) as every:
        arrays = {name: every[name] for name in ("edge_index", "feat_indptr", "feat_indices", "feat_data", "label")}
        width = int(every["feat_shape"][1])
    count = 50_000
    edges, ends = arrays["edge_index"], arrays["feat_indptr"][: count + 1]
    source.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        source,
        edge_index=edges[:, (edges < count).all(0)],
        feat_indptr=ends,
        feat_indices=arrays["feat_indices"][: ends[-1]],
        feat_data=arrays["feat_data"][: ends[-1]],
        feat_shape=np.array([count, width]),
        label=arrays["label"][:count],
    )
