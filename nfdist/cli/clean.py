"""nfdist clean: what a folder of runs and partitions could do without; removed only with --yes."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nfdist import log
from nfdist.cleaning.candidates import Candidate, Kept
from nfdist.cleaning.kinds import KINDS, USUAL, parse_kinds
from nfdist.cleaning.removal import Plan, plan, remove
from nfdist.memory import format_bytes

LOADS = ()
EXAMPLES = (
    ("nfdist clean runs", "what would be freed without any loss: nothing is removed"),
    ("nfdist clean runs --yes", "remove that"),
    ("nfdist clean runs/cora --what states,embeddings --yes", "more, which nfdist evaluate makes again"),
    ("nfdist clean /data --what hops --json", "the paths beside partitions, as one line for scripts"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a run, a partition, or a folder of them")
    parser.add_argument(
        "--what", metavar="KINDS", help=f"some of {','.join(KINDS)} (default {','.join(USUAL)}, which nothing needs)"
    )
    parser.add_argument("--yes", action="store_true", help="remove it; without this it is only shown")
    parser.add_argument("--json", action="store_true", help="print everything as one line, the last of stdout")
    parser.epilog = "\n".join(["what can be removed:", *(f"  {name:12} {_told(name)}" for name in KINDS)])


def _told(name: str) -> str:
    kind = KINDS[name]
    return kind.meaning + (f"; then {kind.lost}: {kind.again.format(run='RUN')}" if kind.lost else "")


def run(options: argparse.Namespace) -> int:
    top, kinds = Path(options.directory), parse_kinds(options.what)
    found = plan(top)
    if "cache" in kinds:
        from nfdist.cleaning.fetched import unused  # here, since it loads numpy

        found = Plan((*found.candidates, *unused()), found.kept)
    chosen, kept = found.of(kinds), [one for one in found.kept if one.kind in ("", *kinds)]
    outcomes = list(remove(chosen)) if options.yes else []
    removed = [one for one in outcomes if isinstance(one, Candidate)]
    kept += [one for one in outcomes if isinstance(one, Kept)]
    print("\n".join(describe(top, removed if options.yes else chosen, found, removed=options.yes)))
    for one in kept:
        log.notice(f"{one.path} stays: {one.reason}")
    if options.json:
        print(json.dumps(_facts(top, kinds, chosen, removed, kept)))
    return 0


def describe(top: Path, chosen: Sequence[Candidate], found: Plan, *, removed: bool) -> list[str]:
    """What is removed or would be, what will no longer work without it, and what more could be named."""
    if not chosen:
        lines = [f"{top}: nothing to remove"]
    else:
        total = format_bytes(sum(one.size_bytes for one in chosen))
        lines = [f"{top}: {'freed' if removed else 'would free'} {total}"]
    for one in chosen:
        kind = KINDS[one.kind]
        then = f"; then {kind.lost}: {kind.again.format(run=one.owner)}" if kind.lost else ""
        lines.append(f"  {format_bytes(one.size_bytes):>10}  {one.path} ({one.kind}{then})")
    if not removed:
        lines += ["nothing was removed: give --yes"] if chosen else []
        lines += _more(chosen, found)
    return lines


def _more(chosen: Sequence[Candidate], found: Plan) -> list[str]:
    """The kinds that were not named, where there is something of them."""
    named = {one.kind for one in chosen}
    lines = []
    for name in KINDS:
        rest = [] if name in named else found.of([name])
        if rest:
            lines.append(
                f"  {format_bytes(sum(one.size_bytes for one in rest)):>10}  more with --what {name}: {_told(name)}"
            )
    return lines


def _facts(
    top: Path,
    kinds: Sequence[str],
    chosen: Sequence[Candidate],
    removed: Sequence[Candidate],
    kept: Sequence[Kept],
) -> dict[str, Any]:
    gone = {one.path for one in removed}
    return {
        "directory": str(top),
        "what": list(kinds),
        "bytes": sum(one.size_bytes for one in chosen),
        "freed_bytes": sum(one.size_bytes for one in removed),
        "items": [
            {"path": str(one.path), "kind": one.kind, "bytes": one.size_bytes, "removed": one.path in gone}
            for one in chosen
        ],
        "kept": [{"path": str(one.path), "reason": one.reason} for one in kept],
    }
