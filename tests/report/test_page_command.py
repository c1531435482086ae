"""`limbeck report` as a user types it."""

import json

from tests.golden.committed import FOLDERS
from tests.support.commands import assert_one_line_error

FOLDER = FOLDERS["search-teacher-layer"]


def test_json_has_paths_sections_and_warnings(limbeck, copied, tmp_path):
    folder = copied()
    (folder / "run.json").unlink()
    done = limbeck("report", FOLDER, folder, "--output", tmp_path / "two.html", "--markdown", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["html"] == str(tmp_path / "two.html") and found["markdown"] == str(tmp_path / "two.md")
    assert "Side by side" in found["sections"] and any("missing or damaged" in line for line in found["warnings"])
    assert len(found["figures"]) % 2 == 0
    assert all(path.startswith(str(tmp_path / "two-figures")) for path in found["figures"])


def test_warnings_are_printed_with_the_place(limbeck, tmp_path):
    (tmp_path / "search.json").write_text('{"kind": "mapping", "name": "slow", "status": "running"}')
    done = limbeck("report", tmp_path)
    assert done.returncode == 0 and "warning: The search 'slow'" in done.stdout
    assert f"Report: {tmp_path / 'report.html'}" in done.stdout
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_mistakes_are_one_line(limbeck, tmp_path):
    assert_one_line_error(limbeck("report", tmp_path), 2, "is no folder of a run", "run.json")
    assert_one_line_error(limbeck("report", FOLDER, "--output", tmp_path / "x.pdf"), 2, "ends with .html")
    assert limbeck("report").returncode == 2
    (tmp_path / "taken").write_text("")
    for place in ("taken", "taken/below"):
        done = limbeck("report", FOLDER, "--output", tmp_path / "x.html", "--figures", tmp_path / place)
        assert_one_line_error(done, 2, "is to be a folder", "taken' is a file")
    assert not (tmp_path / "x.html").exists()
