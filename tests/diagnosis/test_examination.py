"""The parts of an examination: in order, each alone, a failure of one being a finding of it."""

import sys
from types import ModuleType

import pytest

from limbeck.diagnosis import checks
from limbeck.diagnosis.checks import PARTS, Finding, examine, gigabytes, worst


@pytest.fixture
def parts(monkeypatch):
    """Replace the parts by ones that yield what they are told, or raise it."""

    def put(**found):
        modules = {}
        for name, findings in found.items():
            module = ModuleType(f"part_{name}")

            def find(findings=findings):
                for finding in findings:
                    if isinstance(finding, Exception):
                        raise finding
                    yield finding

            module.find = find
            monkeypatch.setitem(sys.modules, module.__name__, module)
            modules[name] = f"{module.__name__}:find"
        monkeypatch.setattr(checks, "PARTS", modules)

    return put


def line(status, name="x"):
    return Finding(name, status, "text")


def test_parts_come_in_order_and_are_announced(parts):
    parts(packages=[line("ok")], devices=[line("absent"), line("ok", "y")])
    begun = []
    found = [(part, finding.name) for part, finding in examine(begun.append)]
    assert found == [("packages", "x"), ("devices", "x"), ("devices", "y")]
    assert begun == ["packages", "devices"]


def test_without_the_packages_nothing_else_is_looked_at(parts):
    parts(packages=[line("failed"), line("ok")], devices=[AssertionError("not reached")])
    assert [finding.status for _, finding in examine(len)] == ["failed", "ok"]


def test_a_part_that_raises_is_a_finding_and_the_others_follow(parts):
    parts(devices=[line("ok"), RuntimeError("no\ndriver")], kernels=[line("ok")])
    found = list(examine(len))
    assert [(part, finding.status) for part, finding in found] == [
        ("devices", "ok"), ("devices", "failed"), ("kernels", "ok")
    ]  # fmt: skip
    assert found[1][1].text == "RuntimeError: no driver"


def test_a_part_that_cannot_be_imported_is_a_finding(monkeypatch):
    monkeypatch.setattr(checks, "PARTS", {"devices": "limbeck.diagnosis.nowhere:find"})
    ((_, found),) = examine(len)
    assert found.status == "failed" and "ModuleNotFoundError" in found.text


def test_the_packages_are_first_and_need_no_torch():
    import subprocess

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
