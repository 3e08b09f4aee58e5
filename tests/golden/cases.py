"""The configurations whose numbers are kept."""

from dataclasses import dataclass, replace

BASIS = (
    "model.layers=2",
    "model.channels=8",
    "model.heads=2",
    "model.random_features=6",
    "attention.noise_draws=2",
    "train.epochs=2",
    "train.batch_nodes=60",
    "train.learning_rate=0.01",
    "train.checkpoint_every=0",
    "observe.port=0",
    "run.device=cpu",
)
BASELINE = ("relation.order=1", "train.edge_loss=0.0", "model.dropout=0.2")
WORLD = ("attention.scope=world", "relation.scope=world", "train.batch_nodes=20")
EXPORTS = ("--edges", "--top-neighbors", "3,17,118", "--count", "4")


@dataclass(frozen=True)
class Case:
    """A training by `world` ranks of a graph, its evaluation, and maybe predictions and learned links.

    `tolerance` is relative to the largest entry of a list: other processors add in other orders.
    """

    name: str
    settings: tuple[str, ...] = ()
    graph: str = "plain"
    world: int = 1
    new_nodes: bool = False
    exports: tuple[str, ...] = ()
    tolerance: float = 1e-9

    @property
    def overrides(self) -> tuple[str, ...]:
        return (*BASIS, *self.settings)


def case(name: str, *settings: str, graph: str = "plain", world: int = 1) -> Case:
    return Case(name, settings, graph, world)


def predicting(name: str, *settings: str, graph: str = "plain", world: int = 1, links: bool = False) -> Case:
    return Case(name, settings, graph, world, True, EXPORTS if links else ())


def baseline(name: str, *settings: str, graph: str = "plain", world: int = 1) -> Case:
    model = name.split()[0]
    return Case(name, (f"model.name={model}", *BASELINE, *settings), graph, world)


ORDERS = (
    predicting("order 0", "relation.order=0", "train.edge_loss=0.0", "model.heads=3"),
    predicting("order 1", "relation.order=1", "model.heads=1", links=True),
    predicting("order 2", "relation.order=2", links=True),
    predicting("order 3", "relation.order=3", "relation.gate=identity"),
    predicting("order 2 as it is", "relation.normalize=false", "relation.gate=identity", links=True),
    predicting("order 1 as it is", "relation.order=1", "relation.normalize=false"),
    predicting("no gate", "relation.gate=none", links=True),
    predicting("directed", "relation.order=2", graph="directed", links=True),
    predicting("directed as it is", "relation.normalize=false", graph="directed"),
)
MODELS = (
    predicting("jumping knowledge", "model.jumping_knowledge=true", "model.layers=3"),
    predicting("no norm", "model.norm=none", "model.activation=elu", "model.jumping_knowledge=true"),
    predicting("no residual", "model.residual=false", "model.activation=elu", "relation.order=1"),
    case("dropout", "model.dropout=0.5"),
    case("one layer", "model.layers=1", "relation.order=1", "model.dropout=0.1"),
    predicting("epsilon", "attention.epsilon=1e-3", links=True),
    predicting("softmax", "attention.kind=softmax", "attention.temperature=0.7"),
    predicting("evaluation draws", "attention.eval_temperature=0.5", "attention.eval_directions=step"),
    case("heavy keys", "attention.temperature=0.02", "train.batch_nodes=0", "train.epochs=4"),
    case("heavy keys, epsilon", "attention.temperature=0.02", "train.batch_nodes=0", "attention.epsilon=1e-6"),
)
TRAININGS = (
    case("edge loss by nodes", "train.edge_loss_mean=nodes", "train.edge_loss=0.5"),
    case("no edge loss", "train.edge_loss=0.0", "train.weight_decay=0.01"),
    case("whole graph", "train.batch_nodes=0", "train.epochs=4"),
    case("train nodes", "train.batch_from=train", "train.batch_nodes=30"),
    case("local", "train.sampling=local", "train.clip_norm=0.1", graph="sparse"),
    case("walks", "train.sampling=walks", "train.walk_length=3"),
    case("cosine", "train.schedule=cosine", "train.warmup_steps=2", "train.clip_norm=0.5"),
    case("milestones", "train.schedule=milestones", "train.milestones=[1,3]", "train.warmup_steps=1"),
    case("two seeds", "train.seeds=[5,3]", 'data.split="random:0.4/0.3/0.3"'),
    predicting("sparse features", "relation.order=2", graph="sparse"),
    predicting("binary", "evaluate.metric=roc_auc", graph="binary"),
    predicting("multi", "relation.order=1", graph="multi"),
    case("made graph", "train.batch_nodes=40", "evaluate.metric=f1_macro", graph="made"),
)
BASELINES = (
    baseline("mlp"),
    baseline("mlp order 0", "relation.order=0", graph="sparse"),
    baseline("gcn", graph="directed"),
    baseline("gcn walks", "train.sampling=walks"),
    baseline("sgc", "train.batch_nodes=0"),
    # Its first weights are normal numbers in float32, whose last bit differs between kinds of processors.
    replace(baseline("gat", "model.activation=elu"), tolerance=1e-6),
    baseline("mixhop", "model.norm=none"),
    baseline("jknet", graph="multi"),
    baseline("jknet all states", "model.jumping_knowledge=true"),
    baseline("dropedge", "model.edge_dropout=0.3"),
    baseline("idgl", "model.refinements=3", "train.edge_loss=0.1"),
    baseline("idgl anchors", "model.anchors=20", "model.refinements=3", "train.edge_loss=0.1", "train.batch_nodes=0"),
)
WORLDS = (
    predicting("2 ranks", *WORLD, world=2),
    case("2 ranks apart", "train.batch_nodes=30", "relation.order=1", world=2),
    case("2 ranks, own relations", *WORLD, "relation.scope=rank", "model.dropout=0.5", world=2),
    case("2 ranks, own attention", *WORLD, "attention.scope=rank", "relation.order=1", world=2),
    case("2 ranks, whole graph", *WORLD, "train.batch_nodes=0", "train.epochs=4", world=2),
    case("2 ranks, heavy keys", *WORLD, "train.batch_nodes=0", "attention.temperature=0.02", world=2),
    case("2 ranks, as it is", *WORLD, "relation.normalize=false", graph="directed", world=2),
    case("2 ranks, softmax", *WORLD, "attention.kind=softmax", "attention.epsilon=1e-3", world=2),
    baseline("mlp by 2 ranks", "train.batch_nodes=30", world=2),
    case("3 ranks", *WORLD, "train.edge_loss_mean=nodes", world=3),
    case("3 ranks, order 1", *WORLD, "relation.order=1", "relation.gate=identity", graph="directed", world=3),
    case("3 ranks, local", *WORLD, "train.sampling=local", "train.clip_norm=0.2", graph="sparse", world=3),
    case("3 ranks, binary", *WORLD, "train.batch_nodes=0", "model.jumping_knowledge=true", graph="binary", world=3),
)
CASES = (*ORDERS, *MODELS, *TRAININGS, *BASELINES, *WORLDS)
