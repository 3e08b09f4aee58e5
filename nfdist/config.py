"""The settings of nfdist: one frozen dataclass a section, refused at construction when a value cannot work.

What each setting means stands beside it, and docs/configuration.md is made from that by `make docs`.
"""

from dataclasses import dataclass, field
from typing import Literal

from nfdist.errors import ConfigError
from nfdist.fields import MOST, Bounds, check_fields, setting
from nfdist.memory import parse_bytes

Cache = Literal["none", "device"]
Norm = Literal["layer", "batch", "none"]
Activation = Literal["elu", "none"]
JoinHeads = Literal["linear", "mean"]
AttentionKind = Literal["gumbel", "softmax"]
EvalDirections = Literal["seed", "step"]
Scope = Literal["rank", "world"]
RelationKind = Literal["pattern", "power"]
Gate = Literal["sigmoid", "identity", "none"]
BatchFrom = Literal["all", "train"]
Sampling = Literal["uniform", "local", "walks"]
EdgeLossMean = Literal["edges", "nodes"]
Schedule = Literal["constant", "milestones", "cosine"]
EarlyStopOn = Literal["score", "both"]
ClassWeights = Literal["none", "balanced"]
Recompute = Literal["auto", "never", "always"]
Precision = Literal["float32", "float64", "bf16"]
TwoClasses = Literal["roc_auc", "accuracy"]
Smoothing = Literal["auto", "none"]
Device = Literal["auto", "cpu", "cuda"]
TRACKERS = ("tensorboard", "mlflow", "wandb")

AT_LEAST_1 = Bounds(1)
AT_LEAST_0 = Bounds(0)
PROBABILITY = Bounds(0, 1, below=True)
FRACTION = Bounds(0, 1)
INSIDE = Bounds(1e-12, 1 - 1e-12)  # probabilities with a logit
POSITIVE = Bounds(1e-30)
MOST_ORDER = 20
LOSS_WITHOUT_GRAPH = ("glcn",)  # models whose own loss, train.edge_loss, is of a graph that they learn from nothing
TEMPERATURES = (1e-4, 1e4)  # outside them float32 has no digits left


@dataclass(frozen=True)
class DataConfig:
    """Which graph, and which of its nodes are for training, validation and test."""

    partition: str = setting("", "the folder that `nfdist partition` made, or its URI")
    split: str = setting("stored", 'that of the partition, or `"random:0.5/0.25/0.25"`, drawn anew for each seed')
    cache: Cache = setting("none", "device: rows of features that fit stay on the GPU", before="none")
    cache_memory: str = setting("", 'of a GPU for them, as in "4GiB"; empty: half of what is free there', before="")

    def __post_init__(self) -> None:
        check_fields("data", self)
        if self.cache_memory:
            parse_bytes("data.cache_memory", self.cache_memory)
        if self.split != "stored":
            parse_fractions("data.split", self.split, "stored")


@dataclass(frozen=True)
class DropEdgeConfig:
    """For model.name = "dropedge" alone."""

    edge_dropout: float = setting(
        0.0, "the fraction of edges that a step leaves out", PROBABILITY, before=0.0, was="model.edge_dropout"
    )

    def __post_init__(self) -> None:
        check_fields("model.dropedge", self)


@dataclass(frozen=True)
class IdglConfig:
    """For model.name = "idgl" alone, which learns a graph from similarities and mixes it with the input graph."""

    anchors: int = setting(
        0, "nodes that all others are compared with; 0: all of them", AT_LEAST_0, before=0, was="model.anchors"
    )
    refinements: int = setting(
        10, "most rounds of learning after the first", AT_LEAST_0, before=10, was="model.refinements"
    )
    graph_share: float = setting(
        0.8, "the share of the input graph in the mix", FRACTION, before=0.8, was="model.graph_share"
    )
    similarity_threshold: float = setting(
        0.0, "below it there is no learned edge", FRACTION, before=0.0, was="model.similarity_threshold"
    )

    def __post_init__(self) -> None:
        check_fields("model.idgl", self)


@dataclass(frozen=True)
class GlcnConfig:
    """For model.name = "glcn" alone, which learns weights of the input graph's edges, or of all pairs without one."""

    width: int = setting(70, "the width of the rows that are compared", Bounds(1, 1 << 16), before=70)
    sparsity: float = setting(
        0.01,
        "the weight of the learned weights' squares beside the distances, in the loss of the graph",
        AT_LEAST_0,
        before=0.01,
    )

    def __post_init__(self) -> None:
        check_fields("model.glcn", self)


@dataclass(frozen=True)
class VgcnConfig:
    """For model.name = "vgcn" alone, which learns how likely each pair of nodes is joined, and draws graphs."""

    edge_prior: float = setting(0.99, "how likely the edges of the input graph are, before", INSIDE, before=0.99)
    other_prior: float = setting(1e-5, "how likely all other pairs are joined, before", INSIDE, before=1e-5)
    draw_temperature: float = setting(0.1, "of the draws", Bounds(*TEMPERATURES), before=0.1)
    prior_temperature: float = setting(0.1, "of draws of the prior", Bounds(*TEMPERATURES), before=0.1)
    samples: int = setting(3, "draws of a training step", Bounds(1, 1_000), before=3)
    eval_samples: int = setting(16, "draws whose answers an evaluation averages", Bounds(1, 10_000), before=16)

    def __post_init__(self) -> None:
        check_fields("model.vgcn", self)


@dataclass(frozen=True)
class ModelConfig:
    """The stack of layers."""

    name: str = setting("nodeformer", "NodeFormer, or one of the baselines it is compared with")
    layers: int = setting(2, "how many layers", Bounds(1, 1_000))
    channels: int = setting(32, "the width of the hidden state and of each head", Bounds(1, 1 << 16))
    heads: int = setting(4, "heads of the attention, each with queries, keys and values of its own", Bounds(1, 1 << 12))
    join_heads: JoinHeads = setting(
        "linear", "what joins the heads of a layer: a learned linear map, or their mean", before="linear"
    )
    random_features: int = setting(30, "directions of the kernel; more are closer to softmax", Bounds(1, 1 << 16))
    standardize: bool = setting(
        True, "whether features are centered and scaled by what the training nodes have", before=False
    )
    dropout: float = setting(0.0, "of hidden states, rounded to a multiple of 2^-16", PROBABILITY)
    input_dropout: float = setting(0.0, "of features, likewise", PROBABILITY, before=0.0)
    residual: bool = setting(True, "whether a layer adds its input to its output")
    norm: Norm = setting(
        "layer",
        "of hidden states: LayerNorm, nothing, or in baselines BatchNorm over the batches of all ranks",
    )
    activation: Activation = setting("none", "after each layer; baselines have ReLU where this is none")
    jumping_knowledge: bool = setting(False, "whether the output sees the states of all layers")
    feed_forward: int = setting(
        0,
        "the width of a feed-forward block after each layer, in multiples of channels; 0: none",
        Bounds(0, 64),
        before=0,
    )
    graph_layers: int = setting(0, "convolutions in a branch beside the attention; 0: none", Bounds(0, 100), before=0)
    branch_share: float = setting(
        0.5, "the branch's part of the logits; 0: learned, from one half", FRACTION, before=0.5
    )
    branch_residual: bool = setting(
        True,
        "whether convolutions of the branch add their input; without, the first takes features as they are, as GCN",
        before=True,
    )
    dropedge: DropEdgeConfig = field(default_factory=DropEdgeConfig)
    idgl: IdglConfig = field(default_factory=IdglConfig)
    glcn: GlcnConfig = field(default_factory=GlcnConfig)
    vgcn: VgcnConfig = field(default_factory=VgcnConfig)

    def __post_init__(self) -> None:
        check_fields("model", self)
        for name in ("dropout", "input_dropout"):
            if round(getattr(self, name) * 65536) == 65536:
                raise ConfigError(f"model.{name} = {getattr(self, name)} drops everything: set it to at most 0.9999")


@dataclass(frozen=True)
class AttentionConfig:
    """Which weights a node gives to all others."""

    kind: AttentionKind = setting("gumbel", "with Gumbel noise in training, or without noise")
    temperature: float = setting(0.25, "of the softmax: lower is sharper", Bounds(*TEMPERATURES))
    eval_temperature: float = setting(0.0, "in evaluations; 0: as in training", Bounds(*TEMPERATURES, or_zero=True))
    eval_directions: EvalDirections = setting(
        "seed", "what directions of evaluations follow: the seed, or also the step, as published", before="seed"
    )
    noise_draws: int = setting(10, "draws of noise, whose answers are averaged", Bounds(1, 10_000))
    scope: Scope = setting("rank", "which nodes a node attends to: its rank's batch, or the batches of all ranks")
    epsilon: float = setting(
        0.0, "is added to every feature; the published code's is 1e-6 / sqrt(random_features)", FRACTION
    )

    def __post_init__(self) -> None:
        check_fields("attention", self)


@dataclass(frozen=True)
class RelationConfig:
    """The bias towards the input graph."""

    order: int = setting(2, "paths of up to so many steps count as edges; 0 ignores the graph", Bounds(0, MOST_ORDER))
    gate: Gate = setting("sigmoid", "of the bias; identity gates start at 1, none leaves the graph to the edge loss")
    normalize: bool = setting(True, "whether edges are weighted by the degrees of their ends")
    scope: Scope = setting("rank", "edges inside each rank's batch, or among the batches of all ranks")
    weights: bool = setting(False, "whether edges of order 1 count by the weights of the partition", before=False)
    kind: RelationKind = setting(
        "pattern",
        "what j steps are: edges from all that they reach, built once and kept, or the j-th power of one step",
        before="pattern",
    )

    def __post_init__(self) -> None:
        check_fields("relation", self)

    @property
    def num_patterns(self) -> int:
        """How many patterns of edges the orders are made from: powers need but one."""
        return self.order if self.kind == "pattern" else min(self.order, 1)

    @property
    def num_partials(self) -> int:
        """How many partial sums of all rows come before a relational bias (graph/neighbors.py)."""
        return self.order - self.num_patterns


@dataclass(frozen=True)
class TrainConfig:
    """Batches, losses, the optimizer, and how often the training is evaluated and saved."""

    epochs: int = setting(100, "passes over the nodes that batches come from", AT_LEAST_1)
    batch_nodes: int = setting(0, "most nodes of a rank in a batch; 0: all, divided (with scopes world)", AT_LEAST_0)
    accumulate: int = setting(1, "so many batches make a step, by the mean of their gradients", AT_LEAST_1, before=1)
    batch_from: BatchFrom = setting("all", "all nodes come into batches, or only those to train on; where walks start")
    sampling: Sampling = setting("uniform", "of all nodes, of each rank's own parts, or by random walks")
    walk_length: int = setting(2, "steps of a walk, which has one node more", AT_LEAST_1, before=2)
    learning_rate: float = setting(1e-3, "the step size of Adam", POSITIVE)
    weight_decay: float = setting(0.0, "the L2 penalty of Adam", AT_LEAST_0)
    edge_loss: float = setting(0.1, "the weight λ of the edge loss", AT_LEAST_0)
    edge_loss_mean: EdgeLossMean = setting("edges", "its mean is over edges (published code) or nodes (paper)")
    schedule: Schedule = setting("constant", "of the learning rate; cosine falls until the last epoch")
    warmup_steps: int = setting(0, "steps in which the learning rate rises to its value", AT_LEAST_0)
    milestones: tuple[int, ...] = setting((), "the steps at which the learning rate is multiplied by `gamma`")
    gamma: float = setting(0.5, "the factor at milestones", POSITIVE)
    clip_norm: float = setting(0.0, "the largest norm of the gradient; 0: any", AT_LEAST_0)
    ema: float = setting(
        0.0, "the decay of a moving average of the weights, which is evaluated; 0: none", PROBABILITY, before=0.0
    )
    early_stop: int = setting(0, "evaluations without progress until the end; 0: never", AT_LEAST_0)
    early_stop_on: EarlyStopOn = setting(
        "both", "what is progress: a better validation score, or a lower validation loss too", before="score"
    )
    least_epochs: int = setting(30, "no early stop before so many epochs", AT_LEAST_0, before=0)
    class_weights: ClassWeights = setting("none", "balanced: classes count alike, however rare", before="none")
    label_smoothing: float = setting(0.0, "how uncertain labels are taken to be", PROBABILITY, before=0.0)
    label_inputs: float = setting(
        0.0, "the share of training labels that a step gives as inputs; evaluations give all", PROBABILITY, before=0.0
    )
    seeds: tuple[int, ...] = setting((0,), "one training each; the result has mean and deviation")
    evaluate_every: int = setting(1, "epochs between evaluations; 0: none", AT_LEAST_0)
    checkpoint_every: int = setting(100, "steps between checkpoints; 0: the best and the final ones only", AT_LEAST_0)
    keep: int = setting(2, "how many checkpoints stay beside the best", AT_LEAST_1)
    init_from: str = setting("", "a run or checkpoint to take the first weights from")
    precision: Precision = setting("float32", "bf16 is of the factors of products, with exponents and sums in float32")
    recompute: Recompute = setting(
        "auto",
        "whether the backward pass makes layers again instead of keeping them; auto: where a rank's share of a whole "
        "graph is large",
        before="never",
    )
    tf32: bool = setting(
        False,
        "whether GPUs round factors of float32 products to TF32; exponents and evaluations stay exact",
        before=False,
    )

    def __post_init__(self) -> None:
        check_fields("train", self)
        if (self.schedule == "milestones") != bool(self.milestones):
            raise ConfigError(
                f'train.schedule "milestones" and train.milestones go together, got "{self.schedule}" and '
                f"{list(self.milestones)}"
            )
        steps, seeds = self.milestones, self.seeds
        if list(steps) != sorted(set(steps)) or not all(1 <= step <= MOST for step in steps):
            raise ConfigError(f"train.milestones must be ascending steps from 1 to {MOST}, got {list(steps)}")
        if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**63 for seed in seeds):
            raise ConfigError(f"train.seeds must be distinct numbers from 0 to 2^63 - 1, got {list(seeds)}")
        if self.accumulate > 1 and self.batch_nodes == 0:
            raise ConfigError(
                f"train.accumulate = {self.accumulate} needs several batches an epoch, and with train.batch_nodes = 0 "
                "the whole graph is one: set train.batch_nodes to at least 1 or train.accumulate=1"
            )
        if self.sampling == "walks":
            self._check_walks()
        if self.early_stop and not self.evaluate_every:
            raise ConfigError("train.early_stop needs evaluations: set train.evaluate_every to at least 1")

    def _check_walks(self) -> None:
        visited = self.walk_length + 1
        if self.batch_nodes < visited:
            raise ConfigError(
                f'train.sampling = "walks" takes walks of {visited} nodes: set train.batch_nodes to at least '
                f"{visited}, got {self.batch_nodes}"
            )


@dataclass(frozen=True)
class EvaluateConfig:
    """How a model is scored."""

    metric: str = setting(
        "auto", "what chooses the best epoch; auto: accuracy, or ROC-AUC for two classes and yes-or-no tasks"
    )
    two_classes: TwoClasses = setting(
        "roc_auc", "what auto is where nodes have one label of two classes", before="accuracy"
    )
    smoothing: Smoothing = setting(
        "auto", "of final answers by the training labels nearby, as validation scores choose, or none", before="none"
    )

    def __post_init__(self) -> None:
        check_fields("evaluate", self)


@dataclass(frozen=True)
class RunConfig:
    """Where results go and where the model lives."""

    dir: str = setting("", "the folder of the run; empty: `runs/` and the name of the configuration file")
    mirror: str = setting(
        "", "a URI such as `s3://bucket/runs/name` that gets a copy of every checkpoint and the result", before=""
    )
    device: Device = setting("auto", "auto: a GPU for each rank where there are any")
    timeout_seconds: float = setting(300.0, "a rank that waits longer for another gives up", Bounds(1, 1e7))

    def __post_init__(self) -> None:
        check_fields("run", self)
        if self.mirror and "://" not in self.mirror:
            raise ConfigError(f"run.mirror must be a URI, such as file:///backup/name, got {self.mirror!r}")


@dataclass(frozen=True)
class ObserveConfig:
    """Prometheus metrics of a training, and experiment trackers."""

    host: str = setting("127.0.0.1", "the address they are served at")
    port: int = setting(9400, "that of local rank 0, the next ranks have the next ports; 0: none", Bounds(0, 65535))
    last_scrape_seconds: float = setting(
        30.0,
        "at its end a training that is scraped waits for one more scrape, at most so long",
        Bounds(0, 3600),
        before=0.0,
    )
    trackers: tuple[str, ...] = setting((), f"that get what metrics.jsonl gets, of {', '.join(TRACKERS)}", before=())

    def __post_init__(self) -> None:
        check_fields("observe", self)
        if len(set(self.trackers)) < len(self.trackers) or not set(self.trackers) <= set(TRACKERS):
            raise ConfigError(
                f"observe.trackers must be different ones of {', '.join(TRACKERS)}, got {list(self.trackers)}"
            )


@dataclass(frozen=True)
class Config:
    """All sections of a configuration file."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    relation: RelationConfig = field(default_factory=RelationConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    run: RunConfig = field(default_factory=RunConfig)
    observe: ObserveConfig = field(default_factory=ObserveConfig)

    def __post_init__(self) -> None:
        if self.relation.order == 0 and self.train.edge_loss > 0 and self.model.name not in LOSS_WITHOUT_GRAPH:
            raise ConfigError(
                f"train.edge_loss = {self.train.edge_loss} needs a graph, and relation.order is 0: "
                "set train.edge_loss=0 or relation.order to at least 1"
            )
        if self.relation.weights and self.relation.order == 0:
            raise ConfigError(
                "relation.weights = true is of edges, and relation.order is 0: set relation.weights=false or "
                "relation.order to at least 1"
            )
        if self.model.graph_layers and not (self.relation.order and self.relation.normalize):
            raise ConfigError(
                f"model.graph_layers = {self.model.graph_layers} needs a graph with normalized weights: set "
                "relation.order to at least 1 and relation.normalize=true, or model.graph_layers=0"
            )


def parse_fractions(name: str, split: str, otherwise: str) -> tuple[float, float, float]:
    """The fractions of `random:train/valid/test`; messages call the setting `name` and its other value `otherwise`."""
    kind, _, text = split.partition(":")
    try:
        fractions = tuple(float(part) for part in text.split("/"))
    except ValueError:
        fractions = ()
    if kind != "random" or len(fractions) != 3 or not all(0 <= part <= 1 for part in fractions):
        raise ConfigError(
            f"{name} must be {otherwise} or random:train/valid/test, such as random:0.5/0.25/0.25, got {split!r}"
        )
    if sum(fractions) > 1 + 1e-9:
        raise ConfigError(f"the fractions of {name} {split!r} must sum to at most 1, got {sum(fractions):g}")
    return fractions
