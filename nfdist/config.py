"""The settings of nfdist: one frozen dataclass a section, refused at construction when a value cannot work."""

from dataclasses import dataclass, field
from typing import Any

from nfdist.errors import ConfigError

MOST = 10**9  # where nothing smaller follows from what a setting counts
MOST_OF_A_MODEL = {"layers": 1_000, "channels": 1 << 16, "heads": 1 << 12, "random_features": 1 << 16}
MOST_NOISE_DRAWS = 10_000
MOST_ORDER = 20
TEMPERATURES = (1e-4, 1e4)  # outside them float32 has no digits left
MOST_SECONDS = 1e7

BASELINES = ("mlp", "gcn", "sgc", "gat", "mixhop", "jknet", "dropedge", "idgl")


@dataclass(frozen=True)
class DataConfig:
    """[data]: which graph. `split` is the stored one, or random:train/valid/test, drawn anew for each seed."""

    partition: str = ""
    split: str = "stored"

    def __post_init__(self) -> None:
        if self.split != "stored":
            parse_fractions("data.split", self.split, "stored")


@dataclass(frozen=True)
class ModelConfig:
    """[model]: the stack. `channels` is the width of the hidden state and of each head.

    `edge_dropout` is the share of edges that DropEdge leaves out of a step. IDGL learns a graph from similarities above
    `similarity_threshold`, to all nodes or so many `anchors`, again in up to `refinements` rounds, and mixes it with
    the input graph, whose share is `graph_share`.
    """

    name: str = "nodeformer"
    layers: int = 2
    channels: int = 32
    heads: int = 4
    random_features: int = 30
    dropout: float = 0.0
    residual: bool = True
    norm: str = "layer"
    activation: str = "none"
    jumping_knowledge: bool = False
    edge_dropout: float = 0.0
    anchors: int = 0
    refinements: int = 10
    graph_share: float = 0.8
    similarity_threshold: float = 0.0

    def __post_init__(self) -> None:
        _one_of("model.name", self.name, "nodeformer", *BASELINES)
        for key, most in MOST_OF_A_MODEL.items():
            _between(f"model.{key}", getattr(self, key), 1, most)
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout must be at least 0 and below 1, got {self.dropout}")
        if not 0 <= self.edge_dropout < 1 or (self.edge_dropout > 0) != (self.name == "dropedge"):
            raise ConfigError(
                f"model.edge_dropout must be between 0 and 1 for dropedge and 0 for any other model, got "
                f"{self.edge_dropout} for {self.name}"
            )
        _one_of("model.norm", self.norm, "layer", "none")
        _one_of("model.activation", self.activation, "elu", "none")
        self._check_learned_graph()

    def _check_learned_graph(self) -> None:
        for key in ("anchors", "refinements"):
            _between(f"model.{key}", getattr(self, key), 0)
        for key in ("graph_share", "similarity_threshold"):
            if not 0 <= getattr(self, key) <= 1:
                raise ConfigError(f"model.{key} must be between 0 and 1, got {getattr(self, key)}")
        if self.anchors and self.name != "idgl":
            raise ConfigError(f"model.anchors = {self.anchors} is for idgl: set it to 0 for {self.name}")
        if self.name == "idgl" and self.layers != 2:
            raise ConfigError(f"model.layers must be 2 for idgl, got {self.layers}")


@dataclass(frozen=True)
class AttentionConfig:
    """[attention]: which weights. `eval_temperature` 0 means the training temperature.

    `eval_directions` is what the directions of an evaluation follow: the seed alone, or with "step" also how many steps
    the weights have been trained, as in the published code.
    `scope` is whom a node hears: its rank's batch, or the batches of all ranks of the world.
    """

    kind: str = "gumbel"
    temperature: float = 0.25
    eval_temperature: float = 0.0
    eval_directions: str = "seed"
    noise_draws: int = 10
    scope: str = "rank"
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        _one_of("attention.kind", self.kind, "gumbel", "softmax")
        _between("attention.temperature", self.temperature, *TEMPERATURES)
        if self.eval_temperature != 0:  # 0 is the training one
            _between("attention.eval_temperature", self.eval_temperature, *TEMPERATURES)
        _one_of("attention.eval_directions", self.eval_directions, "seed", "step")
        _between("attention.noise_draws", self.noise_draws, 1, MOST_NOISE_DRAWS)
        _one_of("attention.scope", self.scope, "rank", "world")
        _between("attention.epsilon", self.epsilon, 0, 1)


@dataclass(frozen=True)
class RelationConfig:
    """[relation]: the bias towards the input graph, over paths of up to `order` steps; order 0 ignores the graph.

    With gate "none" there is no bias, and only the edge loss knows of the graph.
    `scope` is whose edges count: those inside each rank's batch, or those among the batches of all ranks.
    """

    order: int = 2
    gate: str = "sigmoid"
    normalize: bool = True
    scope: str = "rank"

    def __post_init__(self) -> None:
        _between("relation.order", self.order, 0, MOST_ORDER)
        _one_of("relation.gate", self.gate, "sigmoid", "identity", "none")
        _one_of("relation.scope", self.scope, "rank", "world")


@dataclass(frozen=True)
class TrainConfig:
    """[train]: `batch_nodes` is the most a rank takes in a step; 0 divides the whole graph among the ranks.

    Zero switches off: `clip_norm`, `early_stop` (evaluations without improvement), `evaluate_every` (epochs) and
    `checkpoint_every` (steps; best and final checkpoints are written anyway).
    """

    epochs: int = 100
    batch_nodes: int = 0
    batch_from: str = "all"
    sampling: str = "uniform"
    walk_length: int = 2
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    edge_loss: float = 0.1
    edge_loss_mean: str = "edges"
    schedule: str = "constant"
    warmup_steps: int = 0
    milestones: tuple[int, ...] = ()
    gamma: float = 0.5
    clip_norm: float = 0.0
    early_stop: int = 0
    seeds: tuple[int, ...] = (0,)
    evaluate_every: int = 1
    checkpoint_every: int = 100
    keep: int = 2
    init_from: str = ""
    precision: str = "float32"

    def __post_init__(self) -> None:
        for key in ("epochs", "keep", "walk_length"):
            _between(f"train.{key}", getattr(self, key), 1)
        for key in ("batch_nodes", "warmup_steps", "early_stop", "evaluate_every", "checkpoint_every"):
            _between(f"train.{key}", getattr(self, key), 0)
        for key in ("weight_decay", "edge_loss", "clip_norm"):
            _between(f"train.{key}", getattr(self, key), 0)
        for key in ("learning_rate", "gamma"):
            _between(f"train.{key}", getattr(self, key), 1e-30)
        _one_of("train.batch_from", self.batch_from, "all", "train")
        _one_of("train.sampling", self.sampling, "uniform", "local", "walks")
        _one_of("train.edge_loss_mean", self.edge_loss_mean, "edges", "nodes")
        _one_of("train.schedule", self.schedule, "constant", "milestones", "cosine")
        _one_of("train.precision", self.precision, "float32", "float64", "bf16")
        if (self.schedule == "milestones") != bool(self.milestones):
            raise ConfigError(
                f'train.schedule "milestones" and train.milestones go together, got "{self.schedule}" and '
                f"{list(self.milestones)}"
            )
        if list(self.milestones) != sorted(set(self.milestones)) or not all(
            1 <= step <= MOST for step in self.milestones
        ):
            raise ConfigError(f"train.milestones must be ascending steps from 1 to {MOST}, got {list(self.milestones)}")
        if (
            not self.seeds
            or len(set(self.seeds)) < len(self.seeds)
            or not all(0 <= seed < 2**63 for seed in self.seeds)
        ):
            raise ConfigError(f"train.seeds must be distinct numbers from 0 to 2^63 - 1, got {list(self.seeds)}")
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
        if self.batch_from != "all":
            raise ConfigError(
                f'train.sampling = "walks" takes whatever nodes a walk meets: set train.batch_from=all, '
                f"got {self.batch_from!r}"
            )


@dataclass(frozen=True)
class EvaluateConfig:
    """[evaluate]: the metric that chooses the best epoch; "auto" is accuracy, or ROC-AUC for yes-or-no tasks."""

    metric: str = "auto"

    def __post_init__(self) -> None:
        _one_of("evaluate.metric", self.metric, "auto", "accuracy", "roc_auc", "f1_macro", "f1_micro")


@dataclass(frozen=True)
class RunConfig:
    """[run]: where results go and where the model lives; a rank that waits `timeout_seconds` for another gives up."""

    dir: str = ""
    device: str = "auto"
    timeout_seconds: float = 300.0

    def __post_init__(self) -> None:
        _one_of("run.device", self.device, "auto", "cpu", "cuda")
        _between("run.timeout_seconds", self.timeout_seconds, 1, MOST_SECONDS)


@dataclass(frozen=True)
class ObserveConfig:
    """[observe]: Prometheus metrics of local rank r are at host:port + r; port 0 serves none."""

    host: str = "127.0.0.1"
    port: int = 9400

    def __post_init__(self) -> None:
        _between("observe.port", self.port, 0, 65535)


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
        if self.model.name in BASELINES:
            self._check_baseline()
        if self.relation.order == 0 and self.train.edge_loss > 0:
            raise ConfigError(
                f"train.edge_loss = {self.train.edge_loss} needs a graph, and relation.order is 0: "
                "set train.edge_loss=0 or relation.order to at least 1"
            )

    def _check_baseline(self) -> None:
        """Baselines know the input graph, by its usual weights, and no edge loss."""
        name, relation, train = self.model.name, self.relation, self.train
        orders = (0, 1) if name == "mlp" else (1,)
        wrong = {
            f"relation.order={orders[0]}": relation.order if relation.order not in orders else None,
            "relation.normalize=true": "false" if not relation.normalize else None,
            "train.edge_loss=0": train.edge_loss if train.edge_loss > 0 and name != "idgl" else None,
        }
        cures = [f"{cure} (is {value})" for cure, value in wrong.items() if value is not None]
        if cures:
            raise ConfigError(f"model.name = {name} needs other settings: set {' and '.join(cures)}")


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


def _one_of(name: str, value: Any, *choices: str) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _between(name: str, value: float, least: float, most: float = MOST) -> None:
    if not value >= least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")
    if value > most:
        raise ConfigError(f"{name} must be at most {most}, got {value}")
