"""The parts of an examination: in order, each alone, a failure of one being a finding of it."""

import subprocess
import sys
from types import ModuleType

import pytest

from limbeck.diagnosis import checks
from limbeck.diagnosis.checks import PARTS, Finding, examine, gigabytes, worst


def line(status, name="x"):
    return Finding(name, status, "text")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"packages": [line("ok")], "devices": [line("absent"), line("ok", "y")]},
         [("packages", "ok", "text"), ("devices", "absent", "text"), ("devices", "ok", "text")]),
        # Without the packages nothing else is looked at.
        ({"packages": [line("failed"), line("ok")], "devices": [AssertionError("not reached")]},
         [("packages", "failed", "text"), ("packages", "ok", "text")]),
        # A part that raises is a finding, and the others follow.
        ({"devices": [line("ok"), RuntimeError("no\ndriver")], "kernels": [line("ok")]},
         [("devices", "ok", "text"), ("devices", "failed", "RuntimeError: no driver"), ("kernels", "ok", "text")]),
    ],
    ids=["order", "packages", "raises"],
)  # fmt: skip
def test_parts_come_in_order_each_alone(monkeypatch, parts, expected):
    def find(findings):
        for finding in findings:
            if isinstance(finding, Exception):
                raise finding
            yield finding

    module = ModuleType("parts_of_this_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, findings in parts.items():
        setattr(module, name, lambda findings=findings: find(findings))
    monkeypatch.setattr(checks, "PARTS", {name: f"{module.__name__}:{name}" for name in parts})
    begun = []
    found = list(examine(begun.append))
    assert [(part, finding.status, finding.text) for part, finding in found] == expected
    assert begun == list(dict.fromkeys(part for part, _, _ in expected))


def test_a_part_that_cannot_be_imported_is_a_finding(monkeypatch):
    monkeypatch.setattr(checks, "PARTS", {"devices": "limbeck.diagnosis.nowhere:find"})
    ((_, found),) = examine(len)
    assert found.status == "failed" and "ModuleNotFoundError" in found.text


def test_the_packages_are_first_and_need_no_torch():
    assert next(iter(PARTS)) == "packages"
    code = (
        "import sys\nfrom limbeck.diagnosis import checks\nlist(checks.find_packages())\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_worst_of_findings():
    assert worst([]) == worst([line("absent"), line("ok")]) == "ok"
    assert worst([line("ok"), line("warning"), line("absent")]) == "warning"
    assert worst([line("warning"), line("failed")]) == "failed"
    assert gigabytes(1_234_000_000) == "1.2 GB"
