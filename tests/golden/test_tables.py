"""Tables and cards of committed records, byte for byte: files, and terminals of three widths."""

from __future__ import annotations

import shutil

import pytest

import limbeck
from tests.golden.committed import FOLDERS
from tests.golden.renderers import TABLES, console_text, read, run_card
from tests.golden.snapshot import check

WIDTHS = (60, 80, 120)


@pytest.mark.parametrize("folder", TABLES)
def test_tables_on_a_terminal(folder):
    shown, _ = TABLES[folder](folder)
    parts = [f"== {name}, {width} columns\n{console_text(shown[name], width)}" for name in shown for width in WIDTHS]
    check(f"tables/{folder}/console.txt", "\n".join(parts))


@pytest.mark.parametrize("folder", TABLES)
def test_tables_as_files(folder):
    _, files = TABLES[folder](folder)
    for name, text in files.items():
        check(f"tables/{folder}/{name}", text)


@pytest.mark.parametrize("folder", ["finished", "large-run"])
@pytest.mark.parametrize("export", [False, True], ids=["student", "export"])
def test_the_model_card(tmp_path, folder, export):
    student = tmp_path / "student"
    student.mkdir()
    config = FOLDERS[folder] / "student" / "config.json"
    if config.is_file():
        shutil.copy(config, student)
    card = run_card(student, read(folder, "run.json"), read("export-onnx-int8", "export.json") if export else None)
    assert str(tmp_path) not in card
    name = f"cards/{folder}-{'export' if export else 'student'}.md"
    check(name, card.replace(f"limbeck {limbeck.__version__}", "limbeck VERSION"))
