"""What pages name between backticks exists: commands, options, recipe keys, methods, Python names, files."""

import dataclasses
import re
from functools import cache
from pkgutil import resolve_name
from typing import Any

import pytest
from transformers import TrainingArguments

from limbeck.comparison.plan import ComparisonPlan
from limbeck.methods import METHODS
from limbeck.recipe import Recipe
from limbeck.recipe.schema import CorpusSpec, StageSpec, StudentSpec
from tests.docs.pages import PAGES, ROOT
from tests.support.command_tree import root
from tests.support.recipes import models_in

#: Options of other programs, which pages name too.
OTHER_OPTIONS = {
    "--nproc_per_node", "--nnodes", "--max-restarts", "--standalone", "--rdzv_backend", "--rdzv_endpoint",  # torchrun
    "--num_processes", "--multi_gpu",  # accelerate
    "--signal",  # Slurm
    "--freeze_pos_embs",  # a peer's
}  # fmt: skip
#: Keys of a run's record, which look like keys of a recipe.
RECORD_KEYS = {"corpus.report"}
ROOTS = (Recipe, StageSpec, StudentSpec, CorpusSpec, ComparisonPlan)
TRAINING_FIELDS = {field.name for field in dataclasses.fields(TrainingArguments)}
FOLDERS = {"src", "tests", "docs", "benchmarks", "recipes", "examples"}
ROOMS = {path.name for path in (ROOT / "src/limbeck").iterdir() if path.is_dir()} - {"__pycache__"}


@cache
def all_options():
    def walk(command):
        for parameter in command.params:
            yield from (*parameter.opts, *parameter.secondary_opts)
        for child in getattr(command, "commands", {}).values():
            yield from walk(child)

    return {*walk(root()), "--help", "-h", "--install-completion", "--show-completion"}


@cache
def script_options():
    scripts = [*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("recipes/generator/*.py"), *ROOT.glob("examples/*.py")]
    return {name for path in scripts for name in re.findall(r'"(--[a-z-]+)"', path.read_text(encoding="utf-8"))}


def is_command(code):
    return code.startswith("limbeck ") and not code.startswith("limbeck --")


def command_problem(code):
    words = code.split()[1:]
    command = root()
    while hasattr(command, "commands") and words and words[0] not in ("…", "..."):
        if words[0] not in command.commands:
            return "no such command"
        command, words = command.commands[words[0]], words[1:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known = all_options() if hasattr(command, "commands") else {*options, "--help", "-h"}
    unknown = {word.split("=")[0] for word in words if word.startswith("-")} - known
    return f"the command has no {', '.join(sorted(unknown))}" if unknown else None


def is_option(code):
    return code.startswith("--")


def option_problem(code):
    known = all_options() | script_options() | OTHER_OPTIONS
    return None if re.split(r"[ =]", code)[0] in known else "no command or script has it"


def is_recipe_path(code):
    first, *rest = code.split("=")[0].split(".")
    fields = {name for root in ROOTS for name in root.model_fields}
    path = re.fullmatch(r"[a-z_]+(\.\w+)+(=.*)?", code)
    files = ("md", "py", "json", "jsonl", "yaml", "csv", "html", "svg", "png")
    return bool(path) and first in fields and rest[-1] not in files and code not in RECORD_KEYS


def recipe_path_problem(code):
    path = code.split("=")[0].split(".")
    return None if any(resolves(root, path) for root in ROOTS) else "no recipe or plan has it"


def resolves(model: Any, path: list[str]) -> bool:
    """Whether a dotted path names a key, through lists and the options of methods."""
    first, *rest = path
    if first.isdigit() or first == "N":
        return not rest or resolves(model, rest)
    if first not in model.model_fields:
        return False
    if first == "training" and rest:
        return len(rest) == 1 and rest[0] in TRAINING_FIELDS
    if first == "method" and rest:
        return rest[0] == "name" or any(rest[0] in method.options.model_fields for _, method in METHODS.items())
    return not rest or any(resolves(inner, rest) for inner in models_in(model.model_fields[first].annotation))


def is_method(code):
    return re.match(r"method: [{]?(name: )?[a-z]", code)


def method_problem(code):
    name = re.match(r"method: [{]?(?:name: )?([a-z_0-9]+)", code)[1]
    return None if name in METHODS else "no such method"


def is_python_name(code):
    return re.fullmatch(r"limbeck(\.\w+)+", code) and not code.endswith((".py", ".yaml"))


def python_name_problem(code):
    try:
        resolve_name(code)
    except (ImportError, AttributeError):
        return "does not exist"
    return None


def is_file(code):
    path = re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", code)
    return path and code.split("/")[0] in FOLDERS | ROOMS and "/" in code


def file_problem(code):
    folder = ROOT if code.split("/")[0] in FOLDERS else ROOT / "src/limbeck"
    return None if (folder / code).exists() else "does not exist"


KINDS = {
    "command": (is_command, command_problem),
    "option": (is_option, option_problem),
    "recipe key": (is_recipe_path, recipe_path_problem),
    "method": (is_method, method_problem),
    "Python name": (is_python_name, python_name_problem),
    "file": (is_file, file_problem),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_names_between_backticks_exist(page):
    problems = [
        f"{page.path}: `{code}`: {problem}"
        for code in sorted(set(page.codes))
        for is_kind, problem_of in KINDS.values()
        if is_kind(code) and (problem := problem_of(code)) is not None
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("command", "limbeck distill --resume", "limbeck destill --resume"),
        ("command", "limbeck distill --resume", "limbeck distill --resum"),
        ("option", "--teacher PATH", "--taecher PATH"),
        ("recipe key", "stages.0.training.max_steps", "stages.0.training.max_step"),
        ("method", "method: {name: minilmv2}", "method: {name: minilmv3}"),
        ("Python name", "limbeck.distill", "limbeck.destill"),
        ("file", "docs/start.md", "docs/stop.md"),
    ],
)
def test_wrong_names_of_each_kind_are_seen(kind, good, bad):
    is_kind, problem_of = KINDS[kind]
    assert is_kind(good) and is_kind(bad)
    assert problem_of(good) is None and problem_of(bad) is not None
    assert any(is_kind(code) for page in PAGES for code in page.codes)


def test_paths_that_do_not_exist_are_seen():
    assert resolves(Recipe, ["stages", "0", "training", "max_steps"])
    assert resolves(Recipe, ["student", "initialise", "layers"])
    assert not resolves(Recipe, ["stages", "0", "training", "max_step"])
    assert not resolves(Recipe, ["corpus", "mix", "weight"])


def test_the_map_of_the_house_has_every_file():
    """Methods are one file each and listed by their registry; rooms of `limbeck` are headings, files rows."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("## Where things are")[1]
    listed = set()
    for part in page.split("### ")[1:]:
        room = re.match(r"`([\w/]+)/`", part)[1]
        listed |= {
            f"{room}/{name}".removeprefix("limbeck/") for name in re.findall(r"^\| `(\w+\.py)`", part, re.MULTILINE)
        }
    package = ROOT / "src/limbeck"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if path.name != "__init__.py"}
    assert listed == files - {f"methods/{name}.py" for name in METHODS}
