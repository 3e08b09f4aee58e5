"""What tests of the doctor look for."""

from nfdist.cli.check import Check, Finding


def only(check: Check, kind: str) -> Finding:
    assert [finding.kind for finding in check.findings] == [kind]
    return check.findings[0]
