"""The report of the doctor."""

from nfdist.cli.check import Finding, finding_lines


def test_report_says_what_will_not_work_and_the_remedy() -> None:
    lines = list(finding_lines([Finding("broken", "no wheel", "another Python")]))
    assert lines == ["will not work", "  - no wheel", "    another Python", "will be slow: nothing"]
