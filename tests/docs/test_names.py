"""What pages name between backticks exists: commands, options, recipe keys, methods, Python names, files."""

import dataclasses
import importlib
import re
from functools import cache
from typing import Any, get_args

import pytest
import typer
from pydantic import BaseModel
from transformers import TrainingArguments

from limbeck.cli.main import build_app
from limbeck.comparison.plan import ComparisonPlan
from limbeck.methods import METHODS
from limbeck.recipe import Recipe
from limbeck.recipe.corpus_specs import CorpusSpec
from limbeck.recipe.model_specs import StudentSpec
from limbeck.recipe.schema import StageSpec
from tests.docs.pages import PAGES, ROOT

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
CODES = [(page.path, code) for page in PAGES for code in page.codes]


@cache
def commands():
    return typer.main.get_command(build_app())


@cache
def all_options():
    def walk(command):
        for parameter in command.params:
            yield from (*parameter.opts, *parameter.secondary_opts)
        for child in getattr(command, "commands", {}).values():
            yield from walk(child)

    return {*walk(commands()), "--help", "-h", "--install-completion", "--show-completion"}


@cache
def script_options():
    scripts = [*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("recipes/generator/*.py"), *ROOT.glob("examples/*.py")]
    return {name for path in scripts for name in re.findall(r'"(--[a-z-]+)"', path.read_text(encoding="utf-8"))}


def chosen(wanted):
    found = sorted({(page, code) for page, code in CODES if wanted(code)})
    assert found
    return pytest.mark.parametrize(("page", "code"), found, ids=lambda value: value)


@chosen(lambda code: code.startswith("limbeck ") and not code.startswith("limbeck --"))
def test_commands(page, code):
    words = code.split()[1:]
    command = commands()
    while hasattr(command, "commands") and words and words[0] not in ("…", "..."):
        assert words[0] in command.commands, f"{page}: no command '{code}'"
        command, words = command.commands[words[0]], words[1:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known = all_options() if hasattr(command, "commands") else {*options, "--help", "-h"}
    assert {word.split("=")[0] for word in words if word.startswith("-")} <= known, f"{page}: `{code}`"


@chosen(lambda code: code.startswith("--"))
def test_options(page, code):
    name = re.split(r"[ =]", code)[0]
    assert name in all_options() | script_options() | OTHER_OPTIONS, f"{page}: no command or script has `{name}`"


def is_recipe_path(code):
    first, *rest = code.split("=")[0].split(".")
    fields = {name for root in ROOTS for name in root.model_fields}
    path = re.fullmatch(r"[a-z_]+(\.\w+)+(=.*)?", code)
    files = ("md", "py", "json", "jsonl", "yaml", "csv", "html", "svg", "png")
    return bool(path) and first in fields and rest[-1] not in files and code not in RECORD_KEYS


@chosen(is_recipe_path)
def test_recipe_keys(page, code):
    path = code.split("=")[0].split(".")
    assert any(resolves(root, path) for root in ROOTS), f"{page}: no recipe or plan has `{code}`"


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
    inner = [kind for kind in flattened(model.model_fields[first].annotation) if is_model(kind)]
    return not rest or any(resolves(kind, rest) for kind in inner)


def flattened(annotation):
    return [annotation, *(kind for part in get_args(annotation) for kind in flattened(part))]


def is_model(kind):
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@chosen(lambda code: re.match(r"method: [{]?(name: )?[a-z]", code))
def test_methods(page, code):
    name = re.match(r"method: [{]?(?:name: )?([a-z_0-9]+)", code)[1]
    assert name in METHODS, f"{page}: no method '{name}'"


@chosen(lambda code: re.fullmatch(r"limbeck(\.\w+)+", code) and not code.endswith((".py", ".yaml")))
def test_python_names(page, code):
    parts = code.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            assert hasattr(found, name), f"{page}: `{code}` does not exist"
            found = getattr(found, name)
        return
    pytest.fail(f"{page}: `{code}` does not exist")


@chosen(
    lambda code: re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", code) and code.split("/")[0] in FOLDERS | ROOMS and "/" in code
)
def test_files(page, code):
    folder = ROOT if code.split("/")[0] in FOLDERS else ROOT / "src/limbeck"
    assert (folder / code).exists(), f"{page}: `{code}` does not exist"


def test_paths_that_do_not_exist_are_seen():
    assert resolves(Recipe, ["stages", "0", "training", "max_steps"])
    assert resolves(Recipe, ["student", "initialise", "layers"])
    assert not resolves(Recipe, ["stages", "0", "training", "max_step"])
    assert not resolves(Recipe, ["corpus", "mix", "weight"])
