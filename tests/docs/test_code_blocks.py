"""Every code block of README and docs is run, or checked as far as that goes; what is not run is in a list here."""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from limbeck.comparison.load import load_plan
from limbeck.core.yaml import parse_yaml
from limbeck.evaluation.tasks.registry import read_own_task
from limbeck.recipe import load_recipe, plan_run
from tests.docs import running
from tests.docs.pages import PAGES, ROOT
from tests.docs.running import SHELL, SMALL, commands_of
from tests.docs.shell import commands, targets
from tests.support.command_tree import find, root

#: Languages, and what is done with them. `text` is output, formulas and trees of files.
LANGUAGES = {*SHELL, "python", "yaml", "json", "toml", "text"}
#: Programs that pages use beside limbeck. They are not started; what can be checked of them is.
OTHER_PROGRAMS = ("make", "pip", "python", "cd", "mkdir", "export", "hf", "optuna-dashboard", "mkdocs", "docker")
#: Commands that take less than a second and need no run.
CHEAP = ("methods", "recipe", "schema", "validate")


def followed(page):
    """Whether readers copy the page's blocks in their order; others speak of a run of the reader's own."""
    return page.path == "docs/start.md" or page.path.startswith("docs/guides/")


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)


def pages_with(*languages):
    found = [page for page in PAGES if any(b.language in languages and b.not_run is None for b in page.blocks)]
    return pytest.mark.parametrize("page", found, ids=lambda page: page.path)


def blocks_of(*languages):
    found = [block for page in PAGES for block in page.blocks if block.language in languages]
    return pytest.mark.parametrize("block", found, ids=lambda block: block.place)


@pytest.mark.parametrize("page", list(filter(followed, PAGES)), ids=lambda page: page.path)
def test_runs_that_a_guide_uses_are_made_above(page):
    made: set[str] = set()
    for block in page.blocks:
        missing = running.runs_used(block) - (made := made | running.runs_made(block))
        assert not missing, f"{block.place}: nothing above makes {missing}"


@every_page
def test_every_block_says_its_language(page):
    wrong = [block.place for block in page.blocks if block.language not in LANGUAGES]
    assert not wrong, f"these say none, or one that nothing is done with: {wrong}"
    assert not page.indented_code, f"{page.path}: code by indentation in lines {page.indented_code}; use a fence"


def test_what_is_not_run_is_known():
    found = {page.path: Counter(block.not_run for block in page.blocks if block.not_run) for page in PAGES}
    assert {page: marked for page, marked in found.items() if marked} == SMALL["not_run"]


@blocks_of(*SHELL)
def test_commands_exist_with_their_options(block):
    found = list(commands(block.text))
    assert found, f"{block.place}: no command"
    for command in found:
        if command.limbeck is not None:
            parse(block, command.limbeck)
        else:
            check_program(block, command.words)


@pages_with(*SHELL)
def test_recipes_that_commands_name_are_there(page, world):
    there = {block.title for block in page.blocks}
    for block in page.blocks:
        for command in commands_of(block):
            named = [word for word in command.words if word.endswith((".yaml", ".yml")) and "/" not in word[:1]]
            for name in named:
                made = str(Path(name).parent) in there
                assert made or name in there or (ROOT / name).is_file() or Path(name).is_file(), (
                    f"{block.place}: no {name}: it is no file of the repository, no block has it as its title, and no "
                    "command above writes it"
                )
            there |= {command.output, *(command.words[i + 1] for i, w in enumerate(command.words) if w == "--output")}


@blocks_of("yaml")
def test_yaml_is_a_recipe_a_plan_or_a_task(block, real_sizes, monkeypatch):
    monkeypatch.chdir(real_sizes)
    data = parse_yaml(block.text, block.place)
    # What is not run names files that a command above would make.
    if block.not_run is not None:
        return
    if "methods" in data:
        assert load_plan(data).methods
    elif "type" in data or "parallel" in data:
        path = real_sizes / "task.yaml"
        path.write_text(block.text, encoding="utf-8")
        assert read_own_task(path).task.name == data["name"]
    else:
        task = data.get("corpus", {}).get("task")
        kind = task["kind"] if isinstance(task, dict) else None
        teacher = SMALL.get(kind, SMALL["fine_tuned"]) if task else {}
        base = dict(SMALL["base"])
        if "teachers" in data:
            del base["teacher"]
        recipe = load_recipe(base | teacher | data)
        assert plan_run(load_recipe(with_known_places(recipe.model_dump(exclude_unset=True), real_sizes)))


@blocks_of("json", "toml")
def test_data_can_be_read(block):
    assert json.loads(block.text) if block.language == "json" else tomllib.loads(block.text)


@pages_with("python")
def test_python_runs(page, world):
    running.write_files(page)
    if followed(page):
        running.lay_runs(page, world / "runs/mine")
    running.run_python(page)


@pages_with(*SHELL)
def test_cheap_commands_run(page, world, limbeck):
    running.write_files(page)
    failed = running.run_commands(page, limbeck, lambda arguments: arguments[0] in CHEAP or "--dry-run" in arguments)
    assert not failed, "\n".join(failed)


@pytest.mark.slow
@pages_with(*SHELL)
def test_all_commands_run(page, whole_world, limbeck):
    running.write_files(page)
    failed = running.run_commands(page, limbeck, lambda arguments: True)
    assert not failed, "\n".join(failed)


def parse(block, arguments):
    """Let the command line read the arguments, without doing anything."""
    words = list(arguments)
    while words and words[0].startswith("-"):
        option = next((given for given in root().params if words[0] in given.opts), None)
        assert option is not None, f"{block.place}: limbeck has no option {words[0]}"
        words = words[1 if option.is_flag else 2 :]
    command, rest = find(words)
    assert not hasattr(command, "commands"), f"{block.place}: no command '{' '.join(arguments)}'"
    try:
        command.make_context(arguments[0], rest)
    except Exception as error:
        pytest.fail(f"{block.place}: limbeck {' '.join(arguments)}: {getattr(error, 'message', error)}")


def check_program(block, words):
    program = words[0].removeprefix(".venv/bin/")
    assert program in OTHER_PROGRAMS, f"{block.place}: '{program}' is not in the list of other programs"
    if program == "make":
        assert {word for word in words[1:] if "=" not in word} <= targets(ROOT / "Makefile"), block.place
    scripts = [word for word in words if word.endswith(".py") and "/" in word]
    assert all((ROOT / script).is_file() for script in scripts), f"{block.place}: {scripts}"
    modules = [words[i + 1].replace(".", "/") for i, word in enumerate(words) if word == "-m" and program == "python"]
    known = [name for name in modules if (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()]
    assert known == modules, f"{block.place}: {modules}"
    extras = [word.split("[")[1].rstrip("]").split(",") for word in words if word.startswith(("limbeck[", ".["))]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {name for names in extras for name in names} <= project["optional-dependencies"].keys(), block.place


def _known_source(source, world):
    if isinstance(source, dict):
        if source.get("source") is None:
            return source
        return source | {"source": _known_source(source["source"], world)}
    return source if (world / source).exists() else "texts"


def with_known_places(data, world):
    """The recipe with the models and texts of this world in the place of those that it has not."""
    if isinstance(data, list):
        return [with_known_places(item, world) for item in data]
    if not isinstance(data, dict):
        return data
    known = {key: with_known_places(value, world) for key, value in data.items()}
    # A file of texts and vectors stands in the place of a model.
    if "model" in known and "targets" not in known and not (world / known["model"]).is_dir():
        known["model"] = SMALL["base"]["teacher"]["model"]
    if "sources" in known:
        known["sources"] = [_known_source(source, world) for source in known["sources"]]
    return known
