"""Where what is printed goes, and how: JSON alone, no colours in a pipe, tables as wide as they need."""

import io
import json
import logging
import math
import os
import re
from pathlib import Path

import pytest
import yaml
from rich.table import Table

from limbeck.cli import main
from limbeck.cli.messages import PIPED_WIDTH, Messages, print_json, print_line, result_console
from limbeck.core.logged_console import LoggedConsole
from limbeck.core.progress_bars import ProgressBar, print_plain
from tests.support.commands import assert_one_line_error
from tests.support.mrpc_recipe import mrpc_recipe


@pytest.fixture(autouse=True)
def _logger_as_it_was():
    logger = logging.getLogger("limbeck")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("arguments", "terminal", "before", "after"),
    [
        ("evaluate owner/model", True, None, None),
        ("evaluate owner/model", False, None, "1"),
        ("evaluate owner/model --quiet", True, None, "1"),
        ("evaluate -q owner/model", True, None, "1"),
        ("evaluate -vq", True, None, "1"),
        ("evaluate --json", True, None, "1"),
        ("evaluate --json", True, "0", "0"),
        ("evaluate -v quiet -quality", True, None, None),
    ],
)
def test_downloads_show_bars_where_somebody_looks_on(monkeypatch, arguments, terminal, before, after):
    for name in main._DOWNLOAD_BARS_OFF:
        monkeypatch.setenv(name, before or "")
        if before is None:
            monkeypatch.delenv(name)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    main._settle_download_bars(arguments.split())
    assert [os.environ.get(name) for name in main._DOWNLOAD_BARS_OFF] == [after] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        "methods --json",
        "methods mlkd_bert --json",
        "methods minilmv2 --recipe --json",
        "methods teacher_assistant --json",
        "recipe --example --json",
        "recipe --quickstart --json",
        "recipe RECIPE --set seed=5 --json",
        "validate RECIPE --json",
        "schema",
    ],
)
def test_a_result_as_json_is_json_alone(limbeck, arguments, tiny_recipe, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe))
    done = limbeck(*arguments.replace("RECIPE", str(path)).split())
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found
    assert "seed=5" not in arguments or found["seed"] == 5


def test_a_method_as_json_says_what_the_page_says(limbeck):
    found, listed = limbeck.json("methods", "minilmv2"), limbeck.json("methods")
    shown = limbeck.shown("methods", "minilmv2")
    assert found["recipe"] == yaml.safe_load(limbeck.shown("methods", "minilmv2", "--recipe"))
    assert [(term["objective"], term["weight"]) for term in found["terms"]] == [("relation_kl", 1.0)] * 3
    assert all(f"  {option}: {text}" in shown for option, text in found["options"].items())
    assert ("minilmv2", found["summary"]) in [(method["name"], method["summary"]) for method in listed]


def test_json_holds_what_json_has_no_value_for(capsys):
    name = os.fsdecode(b"a\xff")
    print_json({"a": math.nan, "b": [math.inf, 1.5], "c": (-math.inf, Path("x")), "d": {"é": None}, "e": Path(name)})
    expected = {"a": None, "b": [None, 1.5], "c": [None, "x"], "d": {"é": None}, "e": name}
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize(("columns", "width"), [(None, PIPED_WIDTH), ("70", 70)])
def test_a_table_in_a_pipe_is_not_squeezed(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns or "")
    if columns is None:
        monkeypatch.delenv("COLUMNS")
    assert result_console().width == width


def test_lines_are_printed_as_they_are_with_colours_only_where_they_are_wanted(capsys, monkeypatch):
    line = "[red]" + "word " * 60 + "[/] 'x' 1"
    print_line(line, style="bold")
    assert capsys.readouterr().out == line + "\n"
    table = Table("a", title="b")
    table.add_row("c", style="red")
    result_console().print(table)
    assert "\x1b" not in capsys.readouterr().out
    # As on a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    print_line("x", style="red")
    assert "\x1b[31m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_line("x", style="red")
    assert "31m" not in capsys.readouterr().out


def test_quiet_says_nothing_and_verbose_what_is_logged_once_until_its_command_ends(capsys):
    def said(messages):
        messages.console().print("x")
        logging.getLogger("limbeck.kernels").info("[backend] chosen")
        logging.getLogger("limbeck").warning("a cache is damaged")
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err.splitlines()

    said(Messages(verbose=True))
    versions, device, *rest = said(Messages(verbose=True))
    assert versions.startswith("info: limbeck ") and "torch" in versions
    assert device.startswith("info: device ") and "threads" in device
    assert rest == ["x", "info: [backend] chosen", "warning: a cache is damaged"]
    assert said(Messages()) == ["x", "warning: a cache is damaged"]
    assert said(Messages(quiet=True)) == []


def test_a_run_says_with_verbose_which_kernel_it_uses(limbeck, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.kernels.dispatch._announced", set())
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe))
    done = limbeck("distill", path, "--verbose", "--json")
    assert json.loads(done.stdout)["student"] == str(tmp_path / "run" / "student")
    assert "info: relation_kl on cpu: backend 'auto' is 'blocked'" in done.stderr


TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "


def lines_of(path):
    text = path.read_text(encoding="utf-8")
    assert all(re.match(TIME, line) for line in text.splitlines()), "each line has its time"
    return re.sub(f"(?m)^{TIME}", "", text)


@pytest.mark.parametrize("option", [[], ["--quiet"]])
def test_a_log_file_has_what_is_printed_on_the_way_and_the_error(limbeck, tmp_path, option):
    recipe = mrpc_recipe(tmp_path)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    log = tmp_path / "run.log"
    done = limbeck("distill", tmp_path / "recipe.yaml", "--log-file", log, *option)
    assert done.returncode == 0
    logged = lines_of(log)
    assert "output_distribution: step 0/7" in logged
    assert "\x1b" not in logged
    # On standard error a quiet command prints nothing, and any other what the file has.
    assert done.stderr == ("" if option else logged)

    again = limbeck("distill", tmp_path / "recipe.yaml", "--log-file", log, *option)
    assert again.returncode == 2
    assert lines_of(log).removeprefix(logged) == again.stderr


def test_a_log_file_has_lines_where_the_terminal_has_bars(tmp_path):
    log = tmp_path / "run.log"
    console = LoggedConsole(log, file=io.StringIO(), force_terminal=True)
    with ProgressBar(console, at_once=True) as bar:
        bar(0.0, "Reading [1] texts")
        bar(0.0, "Reading more")
        print_plain(console, "A note.")
    assert lines_of(log) == "0%: Reading [1] texts\nA note.\n"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("run/run.log", "lies in the output folder"),
        ("nowhere/run.log", "cannot be written"),
        (".", "cannot be written"),
    ],
)
def test_a_log_file_that_cannot_be_is_refused(limbeck, tmp_path, place, message):
    recipe = mrpc_recipe(tmp_path)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    done = limbeck("distill", tmp_path / "recipe.yaml", "--output", tmp_path / "run", "--log-file", tmp_path / place)
    assert_one_line_error(done, 2, "--log-file", message)
    assert not (tmp_path / "run").exists()
