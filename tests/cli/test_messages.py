"""Where what is printed goes, and how: JSON alone, no colours in a pipe, tables as wide as they need."""

import json
import logging
import math
import os
from pathlib import Path

import pytest
import yaml
from rich.table import Table

from limbeck.cli import main
from limbeck.cli.messages import PIPED_WIDTH, Messages, print_json, print_line, result_console


@pytest.fixture(autouse=True)
def _logger_as_it_was():
    logger = logging.getLogger("limbeck")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("arguments", "terminal", "shown"),
    [
        (["evaluate", "owner/model"], True, True),
        (["evaluate", "owner/model"], False, False),
        (["evaluate", "owner/model", "--quiet"], True, False),
        (["evaluate", "-q", "owner/model"], True, False),
        (["evaluate", "-vq"], True, False),
        (["evaluate", "--json"], True, False),
        (["evaluate", "-v", "quiet", "-quality"], True, True),
    ],
)
def test_downloads_show_bars_where_somebody_looks_on(monkeypatch, arguments, terminal, shown):
    for name in main._DOWNLOAD_BARS_OFF:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    main._settle_download_bars(arguments)
    assert [os.environ.get(name) for name in main._DOWNLOAD_BARS_OFF] == [None if shown else "1"] * 2


def test_whoever_switched_the_bars_of_downloads_is_left_alone(monkeypatch):
    for name in main._DOWNLOAD_BARS_OFF:
        monkeypatch.setenv(name, "0")
    main._settle_download_bars(["--json"])
    assert [os.environ[name] for name in main._DOWNLOAD_BARS_OFF] == ["0", "0"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("methods", "--json"),
        ("methods", "mlkd_bert", "--json"),
        ("methods", "minilmv2", "--recipe", "--json"),
        ("methods", "teacher_assistant", "--json"),
        ("recipe", "--example", "--json"),
        ("recipe", "--quickstart", "--json"),
        ("schema",),
    ],
)
def test_a_result_as_json_is_json_alone(limbeck, arguments):
    done = limbeck(*arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert done.stderr == ""


def test_a_method_as_json_says_what_the_page_says(limbeck):
    found = json.loads(limbeck("methods", "minilmv2", "--json").stdout)
    shown = limbeck("methods", "minilmv2").stdout
    assert found["recipe"] == yaml.safe_load(limbeck("methods", "minilmv2", "--recipe").stdout)
    assert [(term["objective"], term["weight"]) for term in found["terms"]] == [("relation_kl", 1.0)] * 3
    assert all(f"  {option}: {text}" in shown for option, text in found["options"].items())
    listed = json.loads(limbeck("methods", "--json").stdout)
    of_its_name = {method["name"]: method for method in listed}["minilmv2"]
    assert {"name": "minilmv2", "summary": found["summary"]}.items() <= of_its_name.items()


def test_a_checked_recipe_as_json(limbeck, tiny_recipe, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe))
    assert json.loads(limbeck("validate", path, "--json").stdout)
    assert json.loads(limbeck("recipe", path, "--set", "seed=5", "--json").stdout)["seed"] == 5


def test_numbers_that_json_does_not_have_are_null(capsys):
    print_json({"a": math.nan, "b": [math.inf, 1.5], "c": (-math.inf, Path("x")), "d": {"é": None}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": [None, "x"], "d": {"é": None}}


def test_a_file_name_that_is_no_text_is_still_json(capsys):
    name = os.fsdecode(b"a\xff")
    print_json({"file": Path(name)})
    assert json.loads(capsys.readouterr().out) == {"file": name}


def test_a_line_is_printed_as_it_is(capsys):
    line = "[red]" + "word " * 60 + "[/] 'x' 1"
    print_line(line, style="bold")
    assert capsys.readouterr().out == line + "\n"


@pytest.mark.parametrize(("columns", "width"), [(None, PIPED_WIDTH), ("70", 70)])
def test_a_table_in_a_pipe_is_not_squeezed(monkeypatch, columns, width):
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    assert result_console().width == width


def test_no_colours_in_a_pipe_or_where_they_are_not_wanted(capsys, monkeypatch):
    table = Table("a", title="b")
    table.add_row("c", style="red")
    result_console().print(table)
    print_line("x", style="bold red")
    assert "\x1b" not in capsys.readouterr().out
    # As on a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    print_line("x", style="red")
    assert "\x1b[31m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_line("x", style="red")
    assert "31m" not in capsys.readouterr().out


def test_quiet_says_nothing(capsys):
    Messages(quiet=True).console().print("x")
    logging.getLogger("limbeck").info("y")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_verbose_says_versions_device_and_what_is_logged_once(capsys):
    for _ in range(2):
        Messages(verbose=True).console()
    capsys.readouterr()
    Messages(verbose=True).console()
    logging.getLogger("limbeck.kernels").info("[backend] chosen")
    captured = capsys.readouterr()
    assert captured.out == ""
    versions, device, chosen = captured.err.splitlines()
    assert versions.startswith("info: limbeck ") and "torch" in versions
    assert device.startswith("info: device ") and "threads" in device
    assert chosen == "info: [backend] chosen"


def test_verbose_ends_with_its_command(capsys):
    Messages(verbose=True).console()
    Messages().console()
    capsys.readouterr()
    logging.getLogger("limbeck.kernels").warning("x")
    assert capsys.readouterr().err == ""


def test_a_run_says_with_verbose_which_kernel_it_uses(limbeck, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.kernels.dispatch._announced", set())
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe))
    done = limbeck("distill", path, "--verbose", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["student"] == str(tmp_path / "run" / "student")
    assert "info: relation_kl on cpu: backend 'auto' is 'blocked'" in done.stderr
