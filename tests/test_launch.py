"""Launchers are commands that torchrun and nfdist accept; run configurations say what was published."""

import argparse
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from torch.distributed.run import get_args_parser

from nfdist import settings
from nfdist.cli import evaluate, partition
from nfdist.config import Config
from nfdist.partitioning.recipe import Recipe

ROOT = Path(__file__).parent.parent
LAUNCH = ROOT / "launch"
SCRIPTS = sorted([*LAUNCH.glob("*.sh"), *LAUNCH.glob("*.sbatch")])
EVALUATING = [path for path in SCRIPTS if path.name.startswith(("evaluate", "follow"))]
PARTITIONING = [path for path in SCRIPTS if path.name.startswith("partition")]
TRAINING = [path for path in SCRIPTS if path not in (*EVALUATING, *PARTITIONING)]
PODS = sorted(LAUNCH.glob("*.yaml"))
CONFIGS = sorted(LAUNCH.rglob("*.toml"))
OWN_DATA = "partitions/mini-imagenet"  # brought by the user, as launch/README.md says

PUBLISHED = """
dataset            rate  decay layers channels heads order gate     lambda   m  K epochs metric
cora               1e-3  5e-3  2      32       4     2     sigmoid  1.0     30 10 1000   accuracy
citeseer           1e-3  5e-3  2      32       2     2     sigmoid  1.0     30 10 1000   accuracy
deezer-europe      1e-5  5e-2  2      32       1     2     sigmoid  0.01    30 10 1000   roc_auc
actor              1e-4  5e-2  2      32       1     2     sigmoid  0.01    30 10 1000   accuracy
ogbn-proteins      1e-2  0     3      64       1     1     identity 0.1     50  5 1000   roc_auc
amazon2m           1e-2  0     3      64       1     1     identity 0.01    50  5 1000   accuracy
mini-imagenet-knn  1e-3  5e-3  2      128      6     2     sigmoid  1.0     30 10 300    accuracy
mini-imagenet      1e-2  5e-3  2      64       6     0     -        0       30 10 250    accuracy
20news-k5          1e-3  5e-3  2      64       4     2     sigmoid  1.0     30 10 200    accuracy
20news-k10         1e-3  5e-3  2      64       4     2     sigmoid  1.0     30 10 200    accuracy
20news-k15         1e-3  5e-3  2      64       4     2     sigmoid  1.0     30 10 200    accuracy
20news-k20         1e-3  5e-3  2      64       4     2     sigmoid  1.0     30 10 200    accuracy
20news             5e-3  5e-2  2      128      8     0     -        0       30 10 300    accuracy
"""
DATASETS = [line.split() for line in PUBLISHED.strip().splitlines()[1:]]

# Stand-ins that show what a launcher would run, and for how many hosts.
STUBS = {
    "torchrun": 'printf "%s\\n" "$OMP_NUM_THREADS" "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT" "$@"',
    "srun": 'while [ "$1" != torchrun ]; do shift; done; exec "$@"',
    "scontrol": '[ "$*" = "show hostnames node[3-4]" ] && printf "node3\\nnode4\\n"',
}


def load_published(name: str) -> Config:
    return settings.load(LAUNCH / "paper" / f"{name}.toml")


def run_launcher(script: Path, folder: Path, word: str = "train.epochs=3", **variables: str) -> list[str]:
    """What a launcher hands to torchrun, after its threads and its seconds to stop."""
    for name, body in STUBS.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "node[3-4]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "16"}
    environment = {"PATH": f"{folder}:/usr/bin:/bin", **slurm, **variables}
    done = subprocess.run(
        ["bash", str(script), word],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.splitlines()


def check_training_command(words: list[str]) -> dict[str, object]:
    """That torchrun takes these words and nfdist the rest of them; returns torchrun's options."""
    options = vars(get_args_parser().parse_args(words))
    command, path, *rest = options["training_script_args"]
    assert (options["module"], options["training_script"], command) == (True, "nfdist", "train")
    assert rest[-1] == "--resume"
    assert settings.load(ROOT / path, rest[:-1]).run.dir
    return options


def command_of_pods(path: Path) -> list[str]:
    """The words that a job of Kubernetes runs."""
    lines = [line.partition(" #")[0].strip() for line in path.read_text().splitlines()]
    return [line.removeprefix("- ") for line in lines[lines.index("command:") + 1 : lines.index("env:")]]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_launcher_is_variables_and_one_command(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=30)
    code = [line.partition("#")[0] for line in script.read_text().splitlines()]
    assert not [line for line in code if re.search(r"(?<![\w-])(if|for|while|until|case|function)\b", line)]
    assert sum("torchrun" in line for line in code) == 1
    assert script.suffix == ".sbatch" or script.stat().st_mode & 0o111


def check_evaluating_command(words: list[str], wanted: ModuleType = evaluate) -> argparse.Namespace:
    """That torchrun takes these words, and nfdist evaluate the rest of them; returns the options of both.

    Or another command that is `wanted`.
    """
    options = get_args_parser().parse_args(words)
    command, *rest = options.training_script_args
    name = wanted.__name__.rpartition(".")[2]
    assert (options.module, options.training_script, command) == (True, "nfdist", name)
    parser = argparse.ArgumentParser()
    wanted.add_arguments(parser)
    return parser.parse_args(rest, options)


@pytest.mark.parametrize("script", TRAINING, ids=lambda path: path.name)
def test_torchrun_and_nfdist_accept_what_a_launcher_runs(script: Path, tmp_path: Path) -> None:
    threads, seconds, *words = run_launcher(script, tmp_path, WORKERS="3", OMP_NUM_THREADS="5", RUN_DIR="runs/tried")
    assert threads == "5"
    assert 30 < int(seconds) <= 120  # Slurm's own limit, and more than what torchrun gives unasked
    options = check_training_command(words)
    assert options["nproc_per_node"] == "3"
    assert {"run.dir=runs/tried", "train.epochs=3"} <= set(words)


@pytest.mark.parametrize("script", EVALUATING, ids=lambda path: path.name)
def test_evaluating_launchers_pass_on_what_they_are_told(script: Path, tmp_path: Path) -> None:
    variables = {"WORKERS": "3", "OMP_NUM_THREADS": "5", "RUN_DIR": "runs/tried", "HOSTS": "3", "NODE_RANK": "2"}
    threads, _, *words = run_launcher(script, tmp_path, "--memory=4GiB", **variables)
    options = check_evaluating_command(words)
    assert (threads, options.nproc_per_node, options.run_dir, options.memory) == ("5", "3", "runs/tried", "4GiB")
    follows = script.name.startswith("follow")
    assert (options.follow, options.until_done) == (follows, follows)
    assert options.device in (["cpu"] if follows else ["cpu", None])
    if script.suffix == ".sbatch":
        assert (options.nnodes, options.rdzv_backend, options.rdzv_id) == ("2", "c10d", "7")
        assert options.rdzv_endpoint.startswith("node3:")
    else:
        assert (options.nnodes, options.node_rank) == ("3", 2)


@pytest.mark.parametrize("script", PARTITIONING, ids=lambda path: path.name)
def test_partitioning_launchers_pass_on_what_they_are_told(script: Path, tmp_path: Path) -> None:
    variables = {"WORKERS": "3", "OMP_NUM_THREADS": "5", "SOURCE": "shop", "HOSTS": "3", "NODE_RANK": "2"}
    threads, _, *words = run_launcher(script, tmp_path, "--memory=4GiB", **variables)
    options = check_evaluating_command(words, partition)
    assert (threads, options.nproc_per_node, options.source, options.memory) == ("5", "3", "shop", "4GiB")
    slurm = script.suffix == ".sbatch"
    assert (options.nnodes, options.node_rank) == (("2", 0) if slurm else ("3", 2))
    assert options.rdzv_endpoint.startswith("node3:") == slurm


def test_launchers_of_one_cluster_have_ports_of_their_own() -> None:
    ports = [re.findall(r"PORT=\$\{\w+:-(\d+)\}", path.read_text()) for path in SCRIPTS]
    named = [port for found in ports for port in found]
    assert len(set(named)) == len(named) > 5


def test_launchers_meet_where_their_variables_say(tmp_path: Path) -> None:
    def options_of(name: str, **variables: str) -> dict[str, object]:
        return check_training_command(run_launcher(LAUNCH / name, tmp_path, **variables)[2:])

    assert options_of("one-host.sh")["standalone"]
    static = options_of("many-hosts-static.sh", HOSTS="3", NODE_RANK="2", MASTER_ADDR="ten", MASTER_PORT="1234")
    assert [static[key] for key in ("nnodes", "node_rank", "master_addr", "master_port")] == ["3", 2, "ten", 1234]
    elastic = options_of("many-hosts-c10d.sh", ENDPOINT="ten:1234", JOB="job", RDZV_CONF="is_host=1")
    meeting = ("nnodes", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf")
    assert [elastic[key] for key in meeting] == ["2:4", "c10d", "ten:1234", "job", "is_host=1"]
    slurm = options_of("slurm.sbatch")
    assert [slurm[key] for key in meeting] == ["2", "c10d", "node3:29400", "7", ""]


def test_slurm_warns_before_it_kills() -> None:
    lines = (LAUNCH / "slurm.sbatch").read_text().splitlines()
    assert {"#SBATCH --signal=TERM@120", "#SBATCH --requeue", "#SBATCH --ntasks-per-node=1"} <= set(lines)


def test_the_kubernetes_job_has_its_essential_lines() -> None:
    text = (LAUNCH / "kubernetes.yaml").read_text()
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    for line in (
        "apiVersion: kubeflow.org/v1",
        "kind: PyTorchJob",
        "pytorchReplicaSpecs:",
        "Master:",
        "Worker:",
        "template: &pod",
        "template: *pod",
        "- name: pytorch",
        "restartPolicy: OnFailure",
        "- { name: shared-memory, mountPath: /dev/shm }",
        "- { name: partitions, mountPath: /partitions, readOnly: true }",
    ):
        assert line in lines, line
    grace = next(int(line.split()[1]) for line in lines if line.startswith("terminationGracePeriodSeconds:"))
    assert grace > int(lines[lines.index("- name: TORCH_ELASTIC_SHUTDOWN_TIMEOUT") + 1].split('"')[1])
    words = command_of_pods(LAUNCH / "kubernetes.yaml")
    mounted = "/config/"  # the config map holds files of launch/paper
    check_training_command([word.replace(mounted, "launch/paper/") for word in words[1:]])
    assert words[0] == "torchrun"
    assert "\t" not in text


def test_training_asks_for_as_many_gpus_as_workers(tmp_path: Path) -> None:
    slurm = (LAUNCH / "slurm.sbatch").read_text()
    gpus = re.findall(r"^#SBATCH --gpus-per-node=(\d+)$", slurm, re.MULTILINE)
    words = run_launcher(LAUNCH / "slurm.sbatch", tmp_path)[2:]
    assert [check_training_command(words)["nproc_per_node"]] == gpus
    assert "run.device=cuda" in words
    pod = (LAUNCH / "kubernetes.yaml").read_text()
    assert re.findall(r'nvidia.com/gpu: "(\d+)"', pod) == re.findall(r'nprocPerNode: "(\d+)"', pod)
    assert "- run.device=cuda" in pod


def test_partitioning_pods_run_what_torchrun_and_nfdist_accept() -> None:
    first, *words = command_of_pods(LAUNCH / "partition-kubernetes.yaml")
    options = check_evaluating_command([word.partition(" #")[0] for word in words], partition)
    assert (first, options.parts, options.out, options.max_restarts) == ("torchrun", 8, "/partitions/shop", 0)


@pytest.mark.parametrize("path", sorted(LAUNCH.glob("[ef]*.yaml")), ids=lambda path: path.name)
def test_evaluating_pods_run_what_torchrun_and_nfdist_accept(path: Path) -> None:
    first, *words = command_of_pods(path)
    options, follows = check_evaluating_command(words), path.name.startswith("follow")
    assert (first, options.device, options.partition) == ("torchrun", "cpu", "/partitions/amazon2m")
    assert (options.follow, options.until_done) == (follows, follows)
    training, own = ((LAUNCH / name).read_text() for name in ("kubernetes.yaml", path.name))
    assert own.count("nvidia") == 0
    assert set(re.findall("claimName: [a-z-]+", own)) == set(re.findall("claimName: [a-z-]+", training))
    assert re.findall("^  name: .*", own, re.MULTILINE) != re.findall("^  name: .*", training, re.MULTILINE)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_loads_and_its_partition_can_be_made(path: Path) -> None:
    partition = settings.load(path).data.partition
    if partition == OWN_DATA:
        assert f"--out {OWN_DATA}" in (LAUNCH / "README.md").read_text()
    else:
        recipe = Recipe.build(str(ROOT / f"{partition}.toml"), {})
        assert recipe.out == str(ROOT / partition)


@pytest.mark.parametrize("path", sorted((ROOT / "partitions").glob("*.toml")), ids=lambda path: path.stem)
def test_a_recipe_named_after_its_neighbors_has_as_many(path: Path) -> None:
    recipe = Recipe.build(str(path), {})
    source, _, neighbors = path.stem.replace("fashion-features", "fashion-mnist").partition("-k")
    if neighbors:
        assert (recipe.source, recipe.options.knn) == (source, int(neighbors))


def test_every_published_dataset_has_a_configuration_and_no_other() -> None:
    assert sorted(row[0] for row in DATASETS) == sorted(path.stem for path in (LAUNCH / "paper").iterdir())


@pytest.mark.parametrize("row", DATASETS, ids=lambda row: row[0])
def test_a_configuration_says_what_was_published(row: list[str]) -> None:
    name, rate, decay, layers, channels, heads, order, gate, edge_loss, features, draws, epochs, metric = row
    config = load_published(name)
    train, model, relation = config.train, config.model, config.relation
    assert (train.learning_rate, train.weight_decay, train.edge_loss) == (float(rate), float(decay), float(edge_loss))
    assert (model.layers, model.channels, model.heads) == (int(layers), int(channels), int(heads))
    assert (model.random_features, config.attention.noise_draws) == (int(features), int(draws))
    assert relation.order == int(order)
    assert gate in (relation.gate, "-")
    assert (train.epochs, train.seeds, config.evaluate.metric) == (int(epochs), (0, 1, 2, 3, 4), metric)
    assert config.data.split == ("stored" if name == "ogbn-proteins" else "random:0.5/0.25/0.25")
    assert (config.attention.kind, config.attention.temperature, config.attention.epsilon) == ("gumbel", 0.25, 0.0)
    assert model.dropout == (0.3 if name == "20news" else 0.0)


@pytest.mark.parametrize(("name", "batch_nodes"), [("ogbn-proteins", 10_000), ("amazon2m", 100_000)])
def test_the_large_graphs_train_in_batches_with_every_layer_heard(name: str, batch_nodes: int) -> None:
    config = load_published(name)
    assert (config.train.batch_nodes, config.train.batch_from) == (batch_nodes, "all")
    assert (config.model.activation, config.model.jumping_knowledge) == ("elu", True)


def test_only_proteins_halves_its_learning_rate() -> None:
    halving = load_published("ogbn-proteins").train
    assert (halving.schedule, halving.milestones, halving.gamma) == ("milestones", (100, 200), 0.5)
    assert {load_published(row[0]).train.schedule for row in DATASETS if row[0] != "ogbn-proteins"} == {"constant"}


def test_the_made_graph_is_trained_on_with_the_published_model() -> None:
    made, published = settings.load(LAUNCH / "amazon2m-like.toml"), load_published("amazon2m")
    assert (made.model, made.attention, made.relation) == (published.model, published.attention, published.relation)
    assert made.train.batch_nodes == published.train.batch_nodes
    assert made.data.partition == "partitions/amazon2m-like"
