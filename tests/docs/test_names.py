"""What pages name between backticks exists: commands, options, recipe keys, methods, Python names, files."""

import dataclasses
import re
from functools import cache
from pkgutil import resolve_name
from typing import Any

import pytest
from transformers import TrainingArguments

from limbeck.comparison.plan import ComparisonPlan
from limbeck.corpus.settings import CorpusSpec
from limbeck.methods import METHODS
from limbeck.recipe import Recipe
from limbeck.recipe.models import StudentSpec
from limbeck.recipe.stages import StageSpec
from tests.docs.pages import PAGES, ROOT, script
from tests.docs.running import SMALL
from tests.support.command_tree import find, root, walk
from tests.support.recipes import models_in

MAP = script("docs/hooks/map_of_files.py")
#: Keys of a run's record, which look like keys of a recipe.
RECORD_KEYS = {"corpus.report"}
ROOTS = (Recipe, StageSpec, StudentSpec, CorpusSpec, ComparisonPlan)
TRAINING_FIELDS = {field.name for field in dataclasses.fields(TrainingArguments)}
FOLDERS = {"src", "tests", "docs", "benchmarks", "recipes", "examples"}
ROOMS = {path.name for path in (ROOT / "src/limbeck").iterdir() if path.is_dir()} - {"__pycache__"}


def options_of(command):
    return {name for given in command.params for name in (*given.opts, *given.secondary_opts)}


@cache
def all_options():
    named = {name for command in (root(), *(child for _, child in walk())) for name in options_of(command)}
    return named | {"--help", "-h", "--install-completion", "--show-completion"}


@cache
def script_options():
    scripts = [*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("recipes/generator/*.py"), *ROOT.glob("examples/*.py")]
    return {name for path in scripts for name in re.findall(r'"(--[a-z-]+)"', path.read_text(encoding="utf-8"))}


def command(code):
    if not code.startswith("limbeck ") or code.startswith("limbeck --"):
        return None
    found, words = find(code.split()[1:])
    is_group = hasattr(found, "commands")
    if is_group and words and words[0] not in ("…", "..."):
        return "no such command"
    known = all_options() if is_group else {*options_of(found), "--help", "-h"}
    unknown = {word.split("=")[0] for word in words if word.startswith("-")} - known
    return f"the command has no {', '.join(sorted(unknown))}" if unknown else ""


def option(code):
    if not code.startswith("--"):
        return None
    known = all_options() | script_options() | {*SMALL["other_options"]}
    return "" if re.split(r"[ =]", code)[0] in known else "no command or script has it"


def recipe_key(code):
    path = code.split("=")[0].split(".")
    fields = {name for root in ROOTS for name in root.model_fields}
    files = ("md", "py", "json", "jsonl", "yaml", "csv", "html", "svg", "png")
    if not re.fullmatch(r"[a-z_]+(\.\w+)+(=.*)?", code) or path[0] not in fields or path[-1] in files:
        return None
    return "" if code in RECORD_KEYS or any(resolves(root, path) for root in ROOTS) else "no recipe or plan has it"


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


def method(code):
    name = re.match(r"method: [{]?(?:name: )?([a-z][a-z_0-9]*)", code)
    return name and ("" if name[1] in METHODS else "no such method")


def python_name(code):
    if not re.fullmatch(r"limbeck(\.\w+)+", code) or code.endswith((".py", ".yaml")):
        return None
    try:
        resolve_name(code)
    except (ImportError, AttributeError):
        return "does not exist"
    return ""


def file(code):
    first = code.split("/")[0]
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", code) or first not in FOLDERS | ROOMS or "/" not in code:
        return None
    return "" if ((ROOT if first in FOLDERS else ROOT / "src/limbeck") / code).exists() else "does not exist"


#: The problem of each kind of name, or an empty text; None for a name of another kind.
KINDS = (command, option, recipe_key, method, python_name, file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_names_between_backticks_exist(page):
    codes = sorted(set(page.codes))
    problems = [f"{page.path}: `{code}`: {problem}" for code in codes for kind in KINDS if (problem := kind(code))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (command, "limbeck distill --resume", "limbeck destill --resume"),
        (command, "limbeck distill --resume", "limbeck distill --resum"),
        (option, "--teacher PATH", "--taecher PATH"),
        (recipe_key, "stages.0.training.max_steps", "stages.0.training.max_step"),
        (recipe_key, "student.initialise.layers", "corpus.mix.weight"),
        (method, "method: {name: minilmv2}", "method: {name: minilmv3}"),
        (python_name, "limbeck.distill", "limbeck.destill"),
        (file, "docs/start.md", "docs/stop.md"),
    ],
    ids=lambda given: getattr(given, "__name__", None),
)
def test_wrong_names_of_each_kind_are_seen(kind, good, bad):
    assert kind(good) == "" and kind(bad)
    assert any(kind(code) == "" for page in PAGES for code in page.codes)


def test_the_map_of_the_house_has_every_file():
    """Methods are one file each and listed by their registry; rooms are headings, files lines of a list."""
    listed = set()
    for part in MAP.PAGE.read_text(encoding="utf-8").split("## ")[1:]:
        room = re.match(r"`([\w/]+)/`", part)[1]
        for name in re.findall(r"^- `(\w+\.py)`:", part, re.MULTILINE):
            listed.add(f"{room}/{name}".removeprefix("limbeck/"))
    package = ROOT / "src/limbeck"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if path.name != "__init__.py"}
    assert listed == files - {f"methods/{name}.py" for name in METHODS}


def test_the_map_of_the_house_is_what_is_made_now():
    page = MAP.PAGE.read_text(encoding="utf-8")
    assert MAP.with_map(page) == page, "run make references"
