"""The rows of the paper's tables as data, in order of importance: a run may be cut at any time.

A row names a recipe in partitions/, a configuration in launch/ and what it changes in it; `run.py --list` shows all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
GROUPS = {
    "nodeformer": "NodeFormer with the published settings",
    "published": "The recipe of the published code, on the same splits",
    "alike": "NodeFormer with the epsilon and the draws of the published code, too",
    "best": "NodeFormer with settings chosen on validation scores",
    "tuned": "NodeFormer and baselines with settings searched for, the same budget for each",
    "ablation": "Ablations",
    "baseline": "Baselines",
    "as-published": "Baselines with the settings of the paper's code",
    "structure": "Structure learners",
    "grid": "Temperature and random features on Cora",
    "stand-in": "Stand-ins for data that is not here",
}
QUICK_OVERRIDES = ("train.epochs=60", "train.seeds=[0]")
NAMES = {
    "cora": "Cora",
    "citeseer": "Citeseer",
    "actor": "Actor",
    "deezer-europe": "Deezer",
    "20news-k5": "20News, k = 5",
    "20news-k10": "20News, k = 10",
    "20news-k15": "20News, k = 15",
    "20news-k20": "20News, k = 20",
    "20news": "20News, no graph",
    "ogbn-proteins": "OGB-Proteins",
    "amazon2m": "Amazon2M",
    "mini-imagenet-knn": "Mini-ImageNet, k = 5",
    "mini-imagenet": "Mini-ImageNet, no graph",
    "pubmed": "Pubmed",
}
# Nodes of the graphs that rows are trained on.
NODES = {
    "cora": 2_708,
    "citeseer": 3_327,
    "actor": 7_600,
    "20news-k5": 9_607,
    "20news": 9_607,
    "pubmed": 19_717,
    "deezer-europe": 28_281,
    "ACL Anthology": 109_769,
    "amazon2m-like": 2_449_029,
    "NCBI taxonomy": 2_609_295,
}
# On these, five splits leave open which of NodeFormer and the published recipe is above: both have five more.
MORE_SPLITS = {name: f"{name}-more" for name in ("actor", "20news-k5", "deezer-europe")}
NAMES |= {more: f"{NAMES[name]}, five more splits" for name, more in MORE_SPLITS.items()}


@dataclass(frozen=True)
class Figure:
    """A published score in percent, with its deviation where one was published."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Experiment:
    """One row: `overrides` change the configuration, `rows` takes so many rows of the source instead of all, and
    `image_features` gives these images' features by image_features.py, with its split, in place of pixels.

    `script` is what trains it: `nfdist train`, or published.py or one of PAIRWISE beside this file, which takes
    `options`, too.
    """

    id: str
    group: str
    dataset: str
    method: str
    config: str
    recipe: str
    overrides: tuple[str, ...] = ()
    paper: Figure | None = None
    notes: str = ""
    script: str = "train"
    options: tuple[str, ...] = ()
    rows: int = 0
    image_features: bool = False
    quick: bool = False


PUBLISHED_FIGURES = {
    "cora": Figure(88.69, 0.46),
    "citeseer": Figure(76.33, 0.59),
    "actor": Figure(35.31, 1.29),
    "20news-k5": Figure(66.01),
    "20news-k10": Figure(65.21),
    "20news-k15": Figure(64.69),
    "20news-k20": Figure(64.55),
    "20news": Figure(64.71, 1.33),
    "deezer-europe": Figure(71.24, 0.32),
    "ogbn-proteins": Figure(77.45),
}
QUICK = ("cora", "citeseer", "actor")

GATES = "relation.gate=none"
ABLATIONS = {
    "no-edge-loss": ("without edge loss", ("train.edge_loss=0",)),
    "no-bias": ("without relational bias", (GATES,)),
    "neither": ("without both", (GATES, "train.edge_loss=0")),
    "dt": ("-dt: softmax at temperature 1", ("attention.kind=softmax", "attention.temperature=1.0")),
    "tp": ("-tp: softmax at temperature 0.25", ("attention.kind=softmax", "attention.temperature=0.25")),
    # The paper's text joins heads by their mean, the published code and nfdist's default by a linear map.
    "mean-heads": ("heads joined by their mean", ("model.join_heads=mean",)),
}
ABLATION_DATASETS = {"cora": tuple(ABLATIONS), "citeseer": tuple(ABLATIONS)}
ABLATION_DATASETS |= dict.fromkeys(("actor", "deezer-europe"), ("no-edge-loss", "no-bias"))
PUBLISHED_ABLATIONS = {
    "cora-no-bias": Figure(88.06),
    "citeseer-no-bias": Figure(74.12),
    "actor-no-edge-loss": Figure(35.15),
    "actor-no-bias": Figure(34.60),
    "deezer-europe-no-edge-loss": Figure(71.22),
    "deezer-europe-no-bias": Figure(71.10),
}
ABLATION_NOTES = {
    "cora-no-edge-loss": "in the paper 6.7 below NodeFormer",
    "citeseer-no-edge-loss": "in the paper 5.7 below NodeFormer",
}

SCORE_ALONE = "train.early_stop_on=score"  # what is progress, as when these rows were run first
PATIENCE = ("train.early_stop=200", SCORE_ALONE)
# What the published code does besides its settings. The epsilon is 1e-6 / √30: it adds 1e-6 before the factor 1/√m of
# its features, nfdist after it.
ALIKE = ("attention.epsilon=1.826e-07", "attention.eval_directions=step", *PATIENCE)
MORE_SEEDS = "train.seeds=[5, 6, 7, 8, 9]"
USUAL = (
    *("model.layers=2", "model.dropout=0.5", "model.norm=none", "train.learning_rate=0.01", "train.weight_decay=5e-4"),
    *("train.edge_loss=0", "train.epochs=500", "train.early_stop=100", SCORE_ALONE),
)
HEARING = (*USUAL, "relation.order=1")
WALKS = "train.sampling=walks"
BASELINES = {
    "mlp": ("MLP", ("model.name=mlp", *USUAL, "relation.order=0")),
    "gcn": ("GCN", ("model.name=gcn", *HEARING)),
    # One map of averaged features: rows of Cora sum to 1, so it takes large steps to leave the majority class.
    "sgc": ("SGC", ("model.name=sgc", *HEARING, "train.learning_rate=0.2", "train.weight_decay=5e-5")),
    "gat": ("GAT", ("model.name=gat", *HEARING, "model.heads=4")),
    "mixhop": ("MixHop", ("model.name=mixhop", *HEARING)),
    "jknet": ("JKNet", ("model.name=jknet", *HEARING)),
    "dropedge": ("DropEdge", ("model.name=dropedge", *HEARING, "model.dropedge.edge_dropout=0.5")),
    "saint-gcn": ("GraphSAINT-GCN", ("model.name=gcn", *HEARING, WALKS)),
    "saint-gat": ("GraphSAINT-GAT", ("model.name=gat", *HEARING, "model.heads=4", WALKS)),
}
# The published code's own settings for its baselines, as far as it has them: of each dataset's learning rate and weight
# decay only the defaults could be found. BatchNorm is for text and images.
AS_PUBLISHED = (
    *("model.layers=2", "model.channels=32", "model.dropout=0.0", "model.norm=none", "train.learning_rate=0.01"),
    *("train.weight_decay=5e-3", "train.edge_loss=0", "train.epochs=500", "relation.order=1", *PATIENCE),
)
AS_PUBLISHED_BASELINES = {
    "gcn": ("GCN", ("model.name=gcn",)),
    "gat": ("GAT", ("model.name=gat", "model.heads=8", "model.activation=elu")),
    "mixhop": ("MixHop", ("model.name=mixhop",)),
    "jknet": ("JKNet", ("model.name=jknet",)),
}
BASELINE_DATASETS = {"cora": 800, "citeseer": 800, "actor": 2000, "deezer-europe": 6000, "20news-k5": 3000}  # a batch

# Every epoch of these is that of many pairs of nodes, so they get fewer, and IDGL larger steps: at 0.01 it does not
# leave the majority class of Cora within 40 epochs.
IDGL = (
    *("model.name=idgl", *HEARING, "train.edge_loss=0.1", "model.heads=2", "model.idgl.refinements=3"),
    *("train.learning_rate=0.03", "train.epochs=200", "train.seeds=[0, 1, 2]"),
)
LDS = ("train.epochs=100", "train.seeds=[0, 1, 2]")
# Widths, dropout, rate, decay and the weight of the graph's loss, 0.01 a node, are those of its authors' code.
GLCN = (
    *("model.name=glcn", *HEARING, "model.channels=30", "model.dropout=0.6", "model.input_dropout=0.6"),
    *("train.learning_rate=0.005", "train.weight_decay=1e-4"),
)
GLCN_GRAPH = 0.01
# An epoch is three draws of all pairs, so it gets fewer and larger steps than the 5,000 of its authors, and one seed;
# its patience is 100 epochs, as that of all baselines.
VGCN = (
    *("model.name=vgcn", *HEARING, "train.edge_loss=1.0", "train.evaluate_every=5", "train.early_stop=20"),
    "train.seeds=[0]",
)
STRUCTURE = {
    "idgl-anchors": ("IDGL-Anch", (*IDGL, "model.idgl.anchors=500"), "train"),
    "idgl": ("IDGL", IDGL, "train"),
    "lds": ("LDS", LDS, "lds"),
    "prognn": ("ProGNN", ("train.epochs=60", "train.seeds=[0, 1, 2]"), "prognn"),
    "bgcn": ("BGCN", ("train.epochs=300",), "bgcn"),
    "glcn": ("GLCN", GLCN, "train"),
    "vgcn": ("VGCN", VGCN, "train"),
}
STRUCTURE_NOTES = {
    "cora-bgcn": "more than a standard error below GCN. On splits 3 and 4 its network has 84.05 and 84.34 after the "
    "published 200 epochs on the input graph, 86.26 and 85.97 after 400 (GCN's rows: 85.52 and 86.56), and drawn "
    "graphs, which know no more than its classes, bring 0.7 to 0.9 less. It ran before its script was committed",
}
STRUCTURE_DATASETS = ("cora", "citeseer", "20news-k5")
PAIRWISE = ("lds", "prognn", "bgcn")  # learners of all pairs, with a command line of their own
# ProGNN's network has 10 steps for each of 60 moves of its graph, which cost most: published are 2 for each of 400. The
# weights of alike neighbors are those of its scripts for Cora and Citeseer.
PROGNN_OPTIONS = {"cora": (), "citeseer": ("--smoothness", "1e-4"), "20news-k5": ()}
SLOW = tuple(f"20news-k5-{name}" for name in ("idgl", "lds", "vgcn", "prognn", "bgcn"))  # over half an hour

# Settings that search.py found, a file for every dataset and method.
TUNED = ROOT / "launch" / "tuned"
TUNED_DATASETS = ("cora", "citeseer", "deezer-europe", "actor", "20news-k5", "20news", "pubmed")
TUNED_METHODS = {"nodeformer": "NodeFormer", "mlp": "MLP", "gcn": "GCN", "gat": "GAT", "mixhop": "MixHop"}
NO_GRAPH = "20news"  # where a convolution is an MLP

# The features were learned on one split's training labels, which every seed must keep: seeds differ in weights alone.
KEPT_SPLIT = ("data.split=stored", "train.seeds=[0]")

TEMPERATURES = (0.1, 0.25, 0.4, 0.7, 1.0)
FEATURES = (10, 30, 50, 100)


def experiments() -> list[Experiment]:
    """All rows, the most important first."""
    return list(
        chain(
            map(_nodeformer, ("cora", "citeseer", "actor", "20news-k5", "20news", "deezer-europe")),
            map(_published, ("cora", "citeseer", "actor", "20news-k5", "deezer-europe")),
            chain.from_iterable(map(_more_splits, MORE_SPLITS)),
            map(_alike, map(_nodeformer, ("deezer-europe", "20news-k5", "actor", "cora", "citeseer"))),
            [_alike(next(_more_splits("actor")))],
            _best(),
            _tuned(),
            _ablations(),
            map(_nodeformer, ("20news-k10", "20news-k15", "20news-k20")),
            _baselines(),
            _as_published(),
            _structure_learners(),
            _grid(),
            _stand_ins(),
            [_published("20news")],
            map(_nodeformer, ("ogbn-proteins", "amazon2m")),
            (_mini_imagenet(name) for name in ("mini-imagenet-knn", "mini-imagenet")),
        )
    )


def chosen_rows(quick: bool, patterns: Sequence[str]) -> list[Experiment]:
    """The rows asked for, in order of importance; quick ones with fewer epochs and one seed."""
    rows = [row for row in experiments() if not patterns or any(fnmatchcase(row.id, pattern) for pattern in patterns)]
    if not quick:
        return rows
    return [replace(row, overrides=(*row.overrides, *QUICK_OVERRIDES)) for row in rows if row.quick]


def _nodeformer(dataset: str) -> Experiment:
    return Experiment(
        dataset,
        "nodeformer",
        dataset,
        "NodeFormer",
        f"launch/paper/{dataset}.toml",
        dataset,
        paper=PUBLISHED_FIGURES.get(dataset),
        quick=dataset in QUICK,
    )


def _published(dataset: str) -> Experiment:
    return Experiment(
        f"{dataset}-published",
        "published",
        dataset,
        "published recipe",
        f"launch/paper/{dataset}.toml",
        dataset,
        (*PATIENCE, *(("train.seeds=[0, 1, 2]",) if dataset == "20news" else ())),  # there a seed takes an hour
        paper=PUBLISHED_FIGURES[dataset],
        script="published",
    )


def _more_splits(dataset: str) -> Iterator[Experiment]:
    """The pair of NodeFormer and the published recipe on splits of their own."""
    more = MORE_SPLITS[dataset]
    for row in (_nodeformer(dataset), _published(dataset)):
        name = row.id.replace(dataset, more)
        yield replace(row, id=name, dataset=more, overrides=(*PATIENCE, MORE_SEEDS), quick=False)


def _alike(row: Experiment) -> Experiment:
    """NodeFormer as in a row, and with what the published code does besides."""
    overrides = tuple(dict.fromkeys((*ALIKE, *row.overrides)))
    row = replace(row, id=f"{row.id}-alike", group="alike", overrides=overrides, quick=False)
    return replace(row, method="NodeFormer, epsilon and draws as published")


def _best() -> Iterator[Experiment]:
    """Every configuration in launch/best; its name is its dataset's."""
    for path in sorted((ROOT / "launch" / "best").glob("*.toml")):
        name = path.stem
        yield Experiment(
            f"{name}-best",
            "best",
            name,
            "NodeFormer, best settings",
            f"launch/best/{path.name}",
            name,
            paper=PUBLISHED_FIGURES.get(name),
        )


def tuned_row(dataset: str, method: str) -> Experiment:
    """The row of a search, whether or not it has been made."""
    config = TUNED / f"{dataset}-{method}.toml"
    name = f"{TUNED_METHODS[method]}, tuned"
    return Experiment(f"{dataset}-tuned-{method}", "tuned", dataset, name, str(config.relative_to(ROOT)), dataset)


def tuned_rows() -> Iterator[Experiment]:
    """The rows of all searches."""
    for dataset in TUNED_DATASETS:
        for method in TUNED_METHODS:
            if dataset != NO_GRAPH or method in ("nodeformer", "mlp"):
                yield tuned_row(dataset, method)


def _tuned() -> Iterator[Experiment]:
    """Every configuration in launch/tuned."""
    return (row for row in tuned_rows() if (ROOT / row.config).exists())


def _ablations() -> Iterator[Experiment]:
    for name, (method, overrides) in ABLATIONS.items():
        for dataset in (dataset for dataset, names in ABLATION_DATASETS.items() if name in names):
            yield Experiment(
                f"{dataset}-{name}",
                "ablation",
                dataset,
                method,
                f"launch/paper/{dataset}.toml",
                dataset,
                (*overrides, *PATIENCE),
                paper=PUBLISHED_ABLATIONS.get(f"{dataset}-{name}"),
                notes=ABLATION_NOTES.get(f"{dataset}-{name}", ""),
                quick=name == "no-edge-loss" and dataset in ("cora", "citeseer"),
            )


def _baselines() -> Iterator[Experiment]:
    for name, (method, overrides) in BASELINES.items():
        for dataset, batch_nodes in BASELINE_DATASETS.items():
            size = (f"train.batch_nodes={batch_nodes}",) if WALKS in overrides else ()
            yield _baseline(name, method, dataset, (*overrides, *size))
    method, overrides = BASELINES["mlp"]
    yield _baseline("mlp", method, "20news", (*overrides, "model.channels=64"))


def _baseline(name: str, method: str, dataset: str, overrides: tuple[str, ...]) -> Experiment:
    return Experiment(
        f"{dataset}-{name}",
        "baseline",
        dataset,
        method,
        f"launch/paper/{dataset}.toml",
        dataset,
        overrides,
        quick=dataset in QUICK and name in ("gcn", "mlp"),
    )


def _as_published() -> Iterator[Experiment]:
    for dataset in BASELINE_DATASETS:
        norm = ("model.norm=batch",) if dataset == "20news-k5" else ()
        for name, (method, overrides) in AS_PUBLISHED_BASELINES.items():
            row = _baseline(f"{name}-as-published", method, dataset, (*AS_PUBLISHED, *norm, *overrides))
            yield replace(row, group="as-published", quick=False)


def _structure_learners() -> Iterator[Experiment]:
    for dataset in STRUCTURE_DATASETS:
        config = f"launch/paper/{dataset}.toml"
        for name, (method, overrides, script) in STRUCTURE.items():
            row = f"{dataset}-{name}"
            more = ("train.seeds=[0]",) if row in SLOW else ()
            if name == "glcn":
                more = (f"train.edge_loss={GLCN_GRAPH * NODES[dataset]:g}",)  # nfdist's is a mean over nodes
            options = ("--steps", "10", *PROGNN_OPTIONS[dataset]) if name == "prognn" else ()
            changes = (*overrides, *more)
            yield Experiment(
                row,
                "structure",
                dataset,
                method,
                config,
                dataset,
                changes,
                script=script,
                options=options,
                notes=STRUCTURE_NOTES.get(row, ""),
            )


def _grid() -> Iterator[Experiment]:
    for temperature in TEMPERATURES:
        for features in FEATURES:
            yield Experiment(
                f"grid-tau{temperature}-m{features}",
                "grid",
                "cora",
                f"tau = {temperature}, m = {features}",
                "launch/paper/cora.toml",
                "cora",
                (
                    *(f"attention.temperature={temperature}", f"model.random_features={features}"),
                    *("train.epochs=300", "train.seeds=[0, 1]"),
                ),
            )


def _stand_ins() -> Iterator[Experiment]:
    """Data of about the size and kind of what is not here; their scores are comparable with nothing in the paper."""
    images, no_graph = "launch/paper/mini-imagenet-knn.toml", "launch/paper/mini-imagenet.toml"
    for_images = "for Mini-ImageNet: 1,797 images of handwritten digits"
    yield _stand_in("digits-k5", "digits, k = 5", images, "digits", (), for_images)
    yield _stand_in("digits", "digits, no graph", no_graph, "digits", (), for_images)
    short = ("train.epochs=100", "train.seeds=[0, 1]", "train.evaluate_every=5")
    for_images = "for Mini-ImageNet: as many images of Fashion-MNIST, pixels as features"
    yield _stand_in("fashion-k5", "Fashion-MNIST, k = 5", images, "fashion-mnist", short, for_images, rows=18_000)
    yield _stand_in("fashion", "Fashion-MNIST, no graph", no_graph, "fashion-mnist", short, for_images, rows=18_000)
    yield from _images()
    yield _stand_in(
        "acl-anthology",
        "ACL Anthology",
        "launch/paper/ogbn-proteins.toml",
        "acl-anthology",
        ("evaluate.metric=accuracy", "train.epochs=30", "train.seeds=[0, 1]", "train.evaluate_every=5"),
        "for OGB-Proteins' scale: 110,000 papers, 4.7M pairs with a common author, 59 venues",
    )
    few = ("train.epochs=5", "train.seeds=[0]", "train.evaluate_every=5")
    yield _stand_in(
        "ncbi-taxonomy",
        "NCBI taxonomy",
        "launch/paper/amazon2m.toml",
        "ncbi-taxonomy",
        few,
        "for Amazon2M's scale: a tree of 2.6M taxa, 12 divisions",
    )
    yield _stand_in(
        "amazon2m-like",
        "amazon2m-like",
        "launch/amazon2m-like.toml",
        "amazon2m-like",
        few,
        "for Amazon2M's scale: a made graph of its shape",
    )


def _stand_in(
    name: str, title: str, config: str, recipe: str, overrides: tuple[str, ...], notes: str, rows: int = 0
) -> Experiment:
    return Experiment(name, "stand-in", title, "NodeFormer", config, recipe, overrides, notes=notes, rows=rows)


def _images() -> Iterator[Experiment]:
    """Features of a network in place of pixels, on the graphs of the paper's table, by its methods."""
    title, note = "Fashion-MNIST, features", "for Mini-ImageNet: as many images, with features as in the paper"
    for k in (5, 10, 15, 20):
        recipe = f"fashion-features-k{k}"
        nodeformer = Experiment(
            recipe,
            "stand-in",
            f"{title}, k = {k}",
            "NodeFormer",
            "launch/paper/mini-imagenet-knn.toml",
            recipe,
            (*KEPT_SPLIT, "train.epochs=100", "train.evaluate_every=5"),
            notes=note,
            rows=18_000,
            image_features=True,
        )
        yield nodeformer
        if k == 5:
            no_graph = replace(nodeformer, id="fashion-features", dataset=f"{title}, no graph", notes=note)
            yield replace(no_graph, config="launch/paper/mini-imagenet.toml")
        for name in ("gcn", "gat", "dropedge"):
            method, overrides = BASELINES[name]
            changes = (*overrides, *KEPT_SPLIT)
            yield replace(nodeformer, id=f"{recipe}-{name}", method=method, overrides=changes, notes="")


def _mini_imagenet(name: str) -> Experiment:
    return Experiment(name, "nodeformer", name, "NodeFormer", f"launch/paper/{name}.toml", "mini-imagenet")
