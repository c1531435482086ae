"""What ends a command and is no mistake of the user: a fault, of which a file is written, or the machine."""

import errno
import re
import sys
from pathlib import Path

import pytest

from limbeck.cli import main

RECIPE = """output: {folder}
teacher: {{model: a/b}}
hub_token: hf_inTheRecipe
per_device_train_batch_size: 8
"""


def end(monkeypatch, capsys, error, *arguments):
    """Run a command that ends with an error; return what it prints."""

    def fail(**_):
        raise error

    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setattr(main, "build_app", lambda: fail)
    monkeypatch.setattr(sys, "argv", ["limbeck", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_a_fault_leaves_a_file_for_its_report(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_inTheEnvironment")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, recipe = tmp_path / "run", tmp_path / "mine.yaml"
    folder.mkdir()
    recipe.write_text(RECIPE.format(folder=folder))
    secrets = "storage=postgresql://me:pass@host/db", "--password=mine", "--api-key", "key-of-m@ine"
    for place in (tmp_path, folder):
        line = end(monkeypatch, capsys, KeyError("layers"), "distill", str(recipe), "--set", *secrets)
        file = Path(re.search("\\(a fault in limbeck; the details for a bug report are in '(.*)'\\)", line)[1])
        assert "KeyError: 'layers'" in line and file.parent == place
        (folder / "run.json").write_text("{}")
    text = file.read_text()
    for part in ("torch ", "limbeck distill", "per_device_train_batch_size: 8", "Traceback", "raise error", "@host/db"):
        assert part in text
    for secret in ("inTheRecipe", "inTheEnvironment", "pass@", "=mine", "key-of-m", "@ine"):
        assert secret not in text


@pytest.mark.parametrize("option", [["--output", "{}"], ["--output={}"], ["-o", "{}"]])
def test_the_file_is_in_the_folder_of_the_run(monkeypatch, capsys, tmp_path, option):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / "rate=1e-4"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    end(monkeypatch, capsys, KeyError("layers"), "distill", *(word.format(folder) for word in option))
    assert list(folder.glob("limbeck-fault-*.txt"))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/a/run.json"),
            "No space left on device: '/a/run.json'",
        ),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied; finished work is kept"),
        (MemoryError("4 TB"), "not enough memory: MemoryError: 4 TB"),
    ],
    ids=["disk", "rights", "memory"],
)
def test_what_the_machine_refuses_is_no_fault(monkeypatch, capsys, tmp_path, error, message):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    line = end(monkeypatch, capsys, error, "distill")
    assert message in line and "fault" not in line
    assert not list(tmp_path.iterdir())
