"""The kinds of things that can be removed: what each is, what no longer works without it, and what makes it again."""

from dataclasses import dataclass

from nfdist.errors import ConfigError


@dataclass(frozen=True)
class Kind:
    """`lost` is what no longer works, `again` what makes it again; `{run}` stands for the run. Without `lost` a kind is
    removed by default.
    """

    meaning: str
    lost: str = ""
    again: str = ""


KINDS = {
    "checkpoints": Kind("checkpoints that are neither the best nor the last one of their seed"),
    "temporary": Kind("what killed processes of this host left half-written"),
    "states": Kind("states/ of evaluations", "nfdist predict does not answer", "nfdist evaluate {run} --no-outputs"),
    "embeddings": Kind(
        "embeddings.parquet of evaluations",
        "nobody finds the embeddings",
        "nfdist evaluate {run} --no-states",
    ),
    "hops": Kind(
        "paths of several steps beside partitions",
        "the next training or evaluation with relation.order above 1 begins later",
        "it builds them again by itself",
    ),
    "last": Kind(
        "last checkpoints of trainings that are over, where the best one is another",
        "nfdist train --resume with more epochs goes on from the best epoch",
        "only another training makes them again",
    ),
    "tuning": Kind(
        "the journals of searches that are over",
        "the search cannot go on, its best.toml and trials.csv stay",
        "nfdist tune makes all trials again",
    ),
    "cache": Kind(
        "partitions that were fetched from URIs, wherever DIR is",
        "the next command that needs one waits until it is fetched",
        "it fetches it by itself",
    ),
}
USUAL = tuple(name for name, kind in KINDS.items() if not kind.lost)


def parse_kinds(text: str | None) -> tuple[str, ...]:
    """The kinds that a list of names with commas between them asks for; by default those that nothing depends on."""
    if text is None:
        return USUAL
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in KINDS:
            raise ConfigError(f"--what {name!r:.100} is none of {', '.join(KINDS)}")
    if not names:
        raise ConfigError(f"--what is empty: name some of {', '.join(KINDS)}")
    return names
