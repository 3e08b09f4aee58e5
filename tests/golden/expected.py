"""What golden.json says, and whether a case has these numbers."""

import json
from pathlib import Path
from typing import Any

from tests.golden.cases import Case
from tests.golden.facts import Facts, differences, sampled

GOLDEN: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "golden.json").read_text())


def assert_golden(case: Case, facts: Facts) -> None:
    apart = differences(sampled(facts), GOLDEN[case.name])
    assert {fact: difference for fact, difference in apart.items() if difference > case.tolerance} == {}
