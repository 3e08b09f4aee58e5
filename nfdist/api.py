"""The commands as functions, for notebooks and scripts: each does what the command of its name does.

    store = nfdist.partition("/data/shop", "/data/shop-partition", parts=4)
    run = nfdist.train("shop.toml", train={"epochs": 50}, run={"dir": "runs/shop"})
    scores = nfdist.evaluate(run)
    answers = nfdist.Predictor(run).predict(table)

A mistake is raised as an NfdistError whose text is the line that the command would print.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from signal import SIGINT
from typing import Any

import pyarrow as pa

from nfdist import log, settings
from nfdist.collectives import together
from nfdist.config import Config, Device, RunConfig
from nfdist.errors import ConfigError
from nfdist.evaluation.evaluator import Wanted, evaluate_run
from nfdist.evaluation.gathered_writer import Columns
from nfdist.evaluation.new_nodes import NewNodes, as_arrow
from nfdist.evaluation.outputs import answers, id_name
from nfdist.evaluation.predict import StatesPredictor
from nfdist.evaluation.states import States
from nfdist.memory import parse_bytes
from nfdist.model.loading import load_model, run_directory
from nfdist.model.task import Task
from nfdist.remote import is_uri, last_name, refuse_uri
from nfdist.rendezvous import Place, choose_device, join
from nfdist.runs.run import Run
from nfdist.signals import Stopped
from nfdist.store.manifest import MANIFEST_NAME
from nfdist.store.store import Store


def partition(source: Path | str, out: Path | str | None = None, **options: Any) -> Store:
    """Turn a graph into a partition on disk, and open it; a recipe has an `out` of its own.

    Options are those of the command, as in parts=4, method="random", split="random:0.5/0.25/0.25", directed=True.
    """
    from nfdist.partitioning.pipeline import partition as write_partition  # here, since nfdist predict needs none of it
    from nfdist.partitioning.recipe import Recipe

    recipe = Recipe.build(str(source), options if out is None else {**options, "out": str(out)})
    write_partition(recipe)
    return Store.open(recipe.out)


def configure(
    config: Config | Path | str | None,
    overrides: list[str],
    below: Mapping[str, Any] | None = None,
    **sections: Mapping[str, Any],
) -> Config:
    """A configuration or a file with `section.key=value` overrides and whole sections on top, its run.dir resolved.

    What is not given comes from `below`, such as the settings of a run that goes on, and else from the defaults. A
    partition instead of a file stands for settings that suit its graph, which are told where `below` is None.
    """
    tables: Any = {}
    if isinstance(config, Config):
        tables = settings.parse_toml(settings.dump(config), "configuration")
    elif config is not None and (is_uri(config) or (Path(config) / MANIFEST_NAME).exists()):
        tables = {"data": {"partition": str(config)}}
        if not below:
            from nfdist.training import defaults  # here, since nfdist predict needs none of it

            model_name = settings.parse(settings.merged(tables, sections), overrides).model.name
            store = Store.open(config, Store.available_parts(config))
            homophily = defaults.training_homophily(store)
            chosen = defaults.graph_settings(store, model_name, homophily)
            if below is None and Place.read(os.environ).rank == 0:
                found = settings.parse(settings.merged(tables, sections), overrides, below=chosen)
                log.notice(defaults.describe_choice(store, found, homophily))
            below = chosen
    elif config is not None:
        tables = settings.read_toml(Path(config))
        tables.pop("search", None)  # nfdist tune's
    found = settings.parse(settings.merged(tables, sections), overrides, below=below)
    named = found.data.partition if config is None or isinstance(config, Config) else config
    refuse_uri("run.dir", found.run.dir, "train in a folder of this host, and set run.mirror to a URI")
    name = last_name(named) if isinstance(named, str) and is_uri(named) else named
    directory = found.run.dir or str(Path("runs") / Path(name).stem)
    return replace(found, run=replace(found.run, dir=directory))


def train(
    config: Config | Path | str | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    **sections: Mapping[str, Any],
) -> Run:
    """Train as a configuration or a TOML file says, or as suits a partition, with sections on top; the run.

    Sections are as in train={"epochs": 5}. Where memory is too small by all estimates that is refused, without `force`.

    In a script under torchrun every worker must call this. `run.result()` has the scores.
    """
    from nfdist.plan.fitting import check_training  # here and below, since nfdist predict needs none of it
    from nfdist.training.job import begun_settings
    from nfdist.training.job import train as train_job

    place, found = Place.read(os.environ), configure(config, [], {} if resume else None, **sections)
    device = choose_device(found.run.device, place)
    with join(place, device, found.run.timeout_seconds) as world:
        if resume:
            below = begun_settings(world, place, found.run)
            found = together(world, lambda: configure(config, [], below, **sections))
        if not force:
            together(world, lambda: check_training(found, place, device))
        _, stopped = train_job(found, place, world, device, resume)
    if stopped is not None:
        raise KeyboardInterrupt if stopped == SIGINT else Stopped(stopped)
    return Run.open(Path(found.run.dir))


def evaluate(
    run: Run | Path | str,
    *,
    checkpoint: Path | str | None = None,
    partition: Path | str | None = None,
    memory: str | None = None,
    outputs: bool = True,
    states: bool = True,
    top_k: int = 3,
    edges: bool = False,
    top_neighbors: str = "",
    count: int = 10,
    probabilities: bool = False,
    device: Device = "auto",
    force: bool = False,
) -> dict[str, Any]:
    """The exact scores of a run on its whole graph, as `--json` prints them; files go into the run directory.

    `memory` is the most this process may hold privately, such as "4GiB", and `device` is "cpu", "cuda" or "auto", a GPU
    where there is one. Without `force` that is refused where memory is too small by all estimates. In a script under
    torchrun every worker must call this.
    """
    from nfdist.plan.fitting import check_evaluation

    place = Place.read(os.environ)
    wanted = Wanted(outputs, top_k, states, edges, top_neighbors, count, probabilities, smoothing=True)
    memory_bytes = parse_bytes("memory", memory) if memory else None
    chosen = choose_device(device, place, "device=")
    with join(place, chosen, RunConfig().timeout_seconds) as world:
        if not force:
            where = str(partition) if partition else None
            given = _directory(run), where, place, chosen, memory_bytes
            together(world, lambda: check_evaluation(*given) if place.rank == 0 else None)
        return evaluate_run(
            _directory(run),
            wanted,
            place,
            world,
            checkpoint=checkpoint,
            partition=partition,
            memory_bytes=memory_bytes,
            device=chosen,
            wanted_device=device,
        )


def report(
    run: Run | Path | str,
    *others: Run | Path | str,
    out: Path | str | None = None,
    partition: Path | str | None = None,
) -> Path:
    """Write the page that explains a run, or compares it with others, and return its place."""
    from nfdist.reporting.page import write_report  # here, since nfdist predict needs none of it

    place, _ = write_report([_directory(one) for one in (run, *others)], out, partition)
    return place


class Predictor:
    """A run that was evaluated, ready to answer for any number of nodes that training never saw.

    The model is that of its best checkpoint, else the last, or of the one given. `partition` is where the graph is, if
    no longer where it was trained on. `device` is "cpu", "cuda" or "auto".
    """

    def __init__(
        self,
        run: Run | Path | str,
        *,
        checkpoint: Path | str | None = None,
        partition: Path | str | None = None,
        device: Device = "cpu",
    ) -> None:
        trained = load_model(_directory(run), checkpoint)
        trained.check_inductive()
        self.store = Store.open(partition or trained.config.data.partition)
        trained.check_graph(self.store)
        states = States.open(_directory(run), trained)
        self.smoothed = states.smoothing is not None  # whether answers are, as those of the evaluation
        self._predictor = StatesPredictor(trained, states, self.store, choose_device(device, Place(), "device="))

    def predict(
        self,
        table: Any,
        *,
        edges: Any = None,
        together: bool = False,
        top_k: int = 3,
        probabilities: bool = False,
    ) -> Any:
        """Labels and probabilities of the new nodes in a pandas or Arrow table, as a table of the same kind.

        Columns have the names of the graph's own, in any order; `neighbors`, lists of ids, may be one more, or `edges`
        another table. New nodes that are `together` hear each other along their edges.
        """
        given = as_arrow(table)
        new_nodes = NewNodes.from_table(given, self.store, as_arrow(edges), together)
        answer = pa.table(self.answers(new_nodes, top_k, probabilities))
        return answer if given is table else answer.to_pandas()

    def answers(self, new_nodes: NewNodes, top_k: int, probabilities: bool = False) -> Columns:
        """The columns of ids, labels and probabilities."""
        if top_k < 1:
            raise ConfigError(f"top_k must be at least 1, got {top_k}")
        if lonely := new_nodes.count_without_edges(self.store):
            log.notice(
                f"{lonely:,} of the rows are nodes of the graph that have edges there and none here: they are answered "
                "as if they had none; give theirs as edges, or in a column neighbors"
            )
        schema, task = self.store.manifest.schema, Task(self.store.task, self.store.num_classes)
        logits = self._predictor.logits(new_nodes)
        return {id_name(schema): new_nodes.ids, **answers(task, logits, top_k, schema, probabilities)}


def _directory(run: Run | Path | str) -> Path:
    return run.path if isinstance(run, Run) else run_directory(run)
