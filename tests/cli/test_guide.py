"""The guide to the command line names every command, exit code, shared option and variable that there is."""

import re
from pathlib import Path

import pytest

import limbeck as package
from limbeck import errors
from tests.support.command_tree import leaves

SOURCES = Path(package.__file__).parent
GUIDE = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")


def rows(heading):
    """The first cells of the table below a heading of the guide."""
    part = f"\n{GUIDE}".split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| ")][1:]


def test_every_command_has_a_line_and_no_other_has():
    assert sorted(rows("# The command line")) == sorted(f"`limbeck {name}`" for name, _ in leaves())


def test_exit_codes_are_all_there():
    raised = {
        found.exit_code
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.LimbeckError)
    }
    assert {int(code) for code in rows("## Exit codes")} == raised | {0, 130, 128 + 15}


def test_the_help_names_the_same_signal_for_each_exit_code(limbeck):
    signals_of_guide = {}
    for code, text in re.findall(r"^\| (\d+) \| (.*) \|$", GUIDE, re.MULTILINE):
        signals_of_guide.setdefault(code, set()).update(re.findall("Ctrl-C|SIGTERM", text))
    text = " ".join(limbeck("--help").stdout.split()).partition("Exit codes: ")[2].partition(". ")[0]
    signals_of_help = {}
    for clause in text.split("; "):
        code, _, words = clause.partition(" ")
        signals_of_help[code] = set(re.findall("Ctrl-C|SIGTERM", words))
    assert signals_of_help == signals_of_guide


@pytest.mark.parametrize("option", ["--json", "--quiet", "--verbose"])
def test_shared_options_are_explained(option):
    (names,) = {tuple(p.opts) for _, command in leaves() for p in command.params if option in p.opts}
    assert ", ".join(f"`{name}`" for name in names) in rows("## Results and messages")


def test_variables_of_limbeck_are_all_there():
    used = {name for path in SOURCES.rglob("*.py") for name in re.findall(r"\bLIMBECK_[A-Z]+\b", path.read_text())}
    explained = " ".join(rows("## Environment variables"))
    assert used and all(f"`{name}`" in explained for name in used)


def test_the_parts_of_the_doctor_are_explained():
    from limbeck.diagnosis.examination import PARTS

    table = GUIDE.split("limbeck examines five things:", 1)[1].split("\n\n", 2)[1]
    parts = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    assert parts == list(PARTS)
