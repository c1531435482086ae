"""`limbeck doctor` as a user types it: lines, JSON, ways out, exit codes."""

import json

import pytest

from limbeck.diagnosis import examination
from limbeck.diagnosis.findings import Finding


def test_this_machine_as_json(limbeck):
    done = limbeck("doctor", "--json", "--quiet")
    result = json.loads(done.stdout)
    assert done.stderr == ""
    assert {finding["part"] for finding in result["findings"]} == set(examination.PARTS)
    tested = [finding for finding in result["findings"] if finding["part"] == "self-test"]
    assert len(tested) >= 6 and all(finding["status"] == "ok" for finding in tested)
    assert all(finding["way_out"] for finding in result["findings"] if finding["status"] in ("warning", "failed"))
    assert done.returncode == (1 if result["status"] == "failed" else 0)


@pytest.mark.parametrize(
    ("status", "code", "end"),
    [("ok", 0, "works here."), ("warning", 0, "could be better."), ("failed", 1, "does not work properly here.")],
)
def test_lines_json_and_the_exit_code(limbeck, monkeypatch, status, code, end):
    found = [
        ("devices", Finding("a [gpu]", "ok", "is here")),
        ("devices", Finding("b", "absent", "is not")),
        ("folders", Finding("c", status, "so [x]", "do 'this'" if status != "ok" else None, {"free_bytes": 0})),
    ]
    monkeypatch.setattr(examination, "examine", lambda begin, teacher: iter(found))
    done = limbeck("doctor", "--quiet")
    assert done.returncode == code
    *lines, last = done.stdout.splitlines()
    ways_out = [] if status == "ok" else ["          → do 'this'"]
    expected = ["devices", "  ok      a [gpu]: is here", "  absent  b: is not", "folders", f"  {status:<8}c: so [x]"]
    assert lines == expected + ways_out
    assert last.endswith(end)
    done = limbeck("doctor", "--json")
    assert done.returncode == code
    findings = [{"part": part, **vars(finding)} for part, finding in found]
    assert json.loads(done.stdout) == {"status": status, "findings": findings}
