"""`limbeck doctor` as a user types it: lines, JSON, ways out, exit codes."""

import json

import pytest

from limbeck.diagnosis import checks
from limbeck.diagnosis.checks import Finding


@pytest.fixture
def found(monkeypatch):
    """Let the examination find something else."""

    def put(*findings):
        monkeypatch.setattr(checks, "examine", lambda begin: iter(findings))

    return put


def test_this_machine_as_json(limbeck):
    done = limbeck("doctor", "--json", "--quiet")
    result = json.loads(done.stdout)
    assert done.stderr == ""
    assert {finding["part"] for finding in result["findings"]} == set(checks.PARTS)
    tested = [finding for finding in result["findings"] if finding["part"] == "self-test"]
    assert len(tested) >= 6 and all(finding["status"] == "ok" for finding in tested)
    assert all(finding["way_out"] for finding in result["findings"] if finding["status"] in ("warning", "failed"))
    assert done.returncode == (1 if result["status"] == "failed" else 0)


@pytest.mark.parametrize(
    ("status", "code", "end"),
    [("ok", 0, "works here."), ("warning", 0, "could be better"), ("failed", 1, "does not work here as it should")],
)
def test_lines_and_the_exit_code(limbeck, found, status, code, end):
    found(
        ("devices", Finding("a [gpu]", "ok", "is here")),
        ("devices", Finding("b", "absent", "is not")),
        ("folders", Finding("c", status, "so [x]", "do 'this'" if status != "ok" else None)),
    )
    done = limbeck("doctor", "--quiet")
    assert done.returncode == code
    lines = done.stdout.splitlines()
    assert lines[:5] == ["devices", "  ok      a [gpu]: is here", "  absent  b: is not", "folders",
                         f"  {status:<8}c: so [x]"]  # fmt: skip
    assert lines[5:-1] == ([] if status == "ok" else ["          → do 'this'"])
    assert lines[-1].endswith(end) or end in lines[-1]


def test_json_has_facts_and_says_failures_with_1(limbeck, found):
    found(("folders", Finding("c", "failed", "full", "make room", {"free_bytes": 0})))
    done = limbeck("doctor", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "status": "failed",
        "findings": [
            {"part": "folders", "name": "c", "status": "failed", "text": "full", "way_out": "make room",
             "facts": {"free_bytes": 0}}
        ],
    }  # fmt: skip
