"""Helps: examples that can be typed, options in panels, commands in groups; shown at once, without torch."""

import subprocess
import sys

import pytest

from limbeck.cli.main import PANELS
from limbeck.cli.messages import UsageError
from tests.support.command_tree import arguments_of, examples_of, leaves, parse, root, walk

COMMANDS = list(walk())
EXAMPLES = [(name, example) for name, command in COMMANDS for example in examples_of(command)]
# What needs no model, corpus or folder.
RUN = ("recipe --example", "recipe --quickstart", "schema", "methods")
MANY_OPTIONS = 9


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_has_examples_of_itself(name, command):
    found = examples_of(command)
    assert found, f"`limbeck {name} --help` shows no example"
    assert any(example.startswith(f"limbeck {name}") for example in found)


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_examples_parse(name, example):
    assert parse(arguments_of(example)) is not None


def test_parsing_an_example_can_fail():
    for arguments in (["distill", "--tacher", "x"], ["search", "maping"], ["status"], ["export", "x"]):
        with pytest.raises(UsageError):
            parse(arguments)


@pytest.mark.parametrize("example", sorted({line for _, line in EXAMPLES if line.split(" ", 1)[1].startswith(RUN)}))
def test_examples_that_need_nothing_run(limbeck, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = limbeck(*arguments_of(example))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 100


def test_a_help_shows_its_examples_whole(limbeck, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    shown = limbeck("compare", "--help").stdout
    for example in examples_of(dict(COMMANDS)["compare"]):
        assert f" {example} " in shown


@pytest.mark.parametrize(("name", "command"), leaves(), ids=[name for name, _ in leaves()])
def test_many_options_stand_in_panels(name, command):
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    panels = {parameter.rich_help_panel for parameter in options}
    if len(options) >= MANY_OPTIONS:
        assert len(panels) >= 3, f"`limbeck {name}` has {len(options)} options in {panels}"


def test_commands_are_grouped_and_exit_codes_said(limbeck):
    shown = limbeck("--help").stdout
    assert all(panel in shown for panel in PANELS)
    assert sum(map(len, PANELS.values())) == len(root().commands)
    for code in ("0 done", "1 failed", "2 a mistake", "75 stopped", "130", "143"):
        assert code in " ".join(shown.split())


@pytest.mark.parametrize("arguments", [["--help"], ["search", "mapping", "--help"], ["--version"], ["destill"]])
def test_nothing_heavy_is_imported_for_it(arguments):
    code = (
        "import sys\nfrom limbeck.cli.main import run\n"
        f"sys.argv = ['limbeck', *{arguments!r}]\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "heavy = [m for m in ('torch', 'transformers', 'datasets', 'scipy', 'optuna') if m in sys.modules]\n"
        "print('heavy:', heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_paragraphs_are_broken_where_the_terminal_ends_only(name, command):
    # Of what follows the first paragraph, every line of the source would be one of the help.
    assert all("\n" not in paragraph.strip() for paragraph in command.help.split("\n\n")[1:])
