"""`make gpu`: parts that fail or take too long stop nothing, and a dry run measures all parts without rare packages."""

import io
import json
import os
import subprocess
import sys
import zipfile
from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.gpu import __main__ as command
from benchmarks.gpu.parts import PARTS, Part, run_part
from benchmarks.gpu.tables import render
from benchmarks.gpu.wheels import install_missing

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")])}
#: What only a CPU runs, where the host has all numbers at once.
OF_CPUS = ("training/module.py", "models/packing.py", "kernels/packed_attention.py", "kernels/dropout.py",
           "training/guard.py")  # fmt: skip


def test_a_part_that_breaks_or_takes_too_long_is_told(tmp_path, capfd):
    def measure(part, seconds):
        return command.measure_part(command.start_part(part, True, tmp_path, ENVIRONMENT), seconds)

    broken = measure(Part("unknown", "", "", 9), 60)
    assert (broken["status"], broken["problem"]) == ("failed", "the process ended with 1")
    assert "StopIteration" in capfd.readouterr().err
    slow = measure(PARTS[0], 0.01)
    assert (slow["status"], slow["rows"]) == ("out of time", [])


def test_parts_that_are_measured_again_leave_the_others_as_they_were(tmp_path, monkeypatch, capsys):
    def measure(started, seconds):
        row = {"machine": {"device": "A GPU", "commit": commits[-1], "created": "today"}}
        rows = [] if (started.name, commits[-1]) == ("loop", "second") else [row]
        return {"part": started.name, "status": "done", "seconds": 1, "problem": None, "rows": rows}

    monkeypatch.setattr(command, "start_part", lambda part, *_: part)
    monkeypatch.setattr(command, "measure_part", measure)
    monkeypatch.setattr(command, "stop", lambda started: None)
    monkeypatch.setattr(command, "render", lambda result: "")
    common = {"minutes": 9, "dry": True, "output": tmp_path}
    commits = []
    for commit, parts in (("first", []), ("second", ["tests", "loop"])):
        commits.append(commit)
        assert command.measure_all(Namespace(parts=parts, **common), tmp_path, {}) == 0
    result = json.loads((tmp_path / "a-gpu.json").read_text())["parts"]
    assert [row["part"] for row in result] == [part.name for part in PARTS]
    assert all(row["rows"] for row in result)
    assert {row["part"] for row in result if row["commit"] == "second"} == {"device", "tests"}


def test_an_error_is_the_last_row(tmp_path, monkeypatch):
    def measure(request):
        yield {"a": request.device}
        raise ValueError("no\nmore")

    monkeypatch.setattr("benchmarks.gpu.checks.measure", measure)
    monkeypatch.setattr("sys.stdin", io.StringIO("9\n"))
    assert run_part("tests", True, tmp_path / "rows") == 1
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert rows == [{"a": "cpu"}, {"problem": "ValueError: no"}]


def test_tables_say_what_was_left_out():
    row = {"side": "limbeck", "dtype": "bfloat16", "batch": 256, "length": 128, "median_ms": 12.34,
           "tokens_per_second": 123456.7, "limbeck_is_faster": 1.0, "share_of_measured_peak": 0.314}  # fmt: skip
    left_out = {"part": "loop", "status": "left out", "seconds": 0, "problem": "no time was left", "rows": []}
    done = {"part": "step_base", "status": "done", "seconds": 9, "problem": None, "rows": [row, row | {"side": "peer"}]}
    text = render({"parts": [done, left_out]})
    assert "| limbeck, bfloat16 | 256 x 128 | 12.3 | 123,457 | 1 | – | – | – | 31% |  |" in text
    assert text.endswith("### Host syncs in the training loop\n\nleft out: no time was left")


def test_wheels_of_what_is_not_here_are_installed(tmp_path):
    for name in ("Some_Rare.Package", "torch"):
        plain = name.replace(".", "_")
        with zipfile.ZipFile(tmp_path / f"{plain}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{plain}.py", "HERE = True\n")
            for file, text in (
                ("METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"),
                ("WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
                ("RECORD", ""),
            ):
                wheel.writestr(f"{plain}-1.0.dist-info/{file}", text)
    assert install_missing(tmp_path, tmp_path / "packages") == ["Some_Rare_Package"]
    assert (tmp_path / "packages" / "Some_Rare_Package.py").is_file()
    assert not (tmp_path / "packages" / "torch.py").exists()


@pytest.mark.slow
def test_a_dry_run_measures_all_parts_without_rare_packages(tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "def without(cls, name, path=None, target=None):\n"
        "    return None if name.split('.')[0] in ('datasets', 'optuna') else find(name, path, target)\n"
        "PathFinder.find_spec = classmethod(without)\n"
    )
    options = ["--dry", "--minutes", "30", "--output", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(hidden)}
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *options], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    (file,) = tmp_path.glob("*.json")
    result = json.loads(file.read_text(encoding="utf-8"))
    assert {part["part"]: part["status"] for part in result["parts"]} == {part.name: "done" for part in PARTS}
    rows = {part["part"]: part["rows"] for part in result["parts"]}
    problems = [row["problem"] for part in rows.values() for row in part if row.get("problem")]
    assert all("bertdistiller" in problem for problem in problems), problems
    assert all(row["syncs_a_step"] for row in rows["loop"])
    places = {place.rsplit(":", 1)[0] for row in rows["loop"] for place in row["places"]}
    assert all(place.endswith(OF_CPUS) for place in places), places
    assert rows["generation"][0]["largest_difference"] == 0
    assert rows["tests"][0]["skipped"] > 0
    assert render(result) in ran.stdout
