"""What users and plugins write: commands, recipes, public names, and the names in registries."""

import importlib
import re
from dataclasses import make_dataclass
from pkgutil import resolve_name

import pytest

from limbeck.benchmark.loss_case import measured_objectives
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.tasks.registry import DEFINITIONS, TASK_GROUPS, TASKS
from limbeck.export.formats import FORMATS
from limbeck.kinds.scoring import METRIC_NAMES
from limbeck.methods import METHODS
from limbeck.models.blueprint import presets
from limbeck.models.family_table import families
from limbeck.objectives import OBJECTIVES
from limbeck.recipe.json_schema import recipe_schema
from tests.docs.pages import ROOT
from tests.golden.describe import command_tree, plain, public_names
from tests.golden.snapshot import check
from tests.support.command_tree import root

PUBLIC = ("limbeck", "limbeck.objectives", "limbeck.methods", "limbeck.recipe")
NAMED_IN = (
    "README.md", "docs/**/*.md", "examples/**/*.py", "examples/**/*.ipynb", "recipes/**/*", "benchmarks/**/*.py",
)  # fmt: skip
NAME = re.compile(r"\blimbeck(?:\.\w+)+")
IMPORTED = re.compile(r"^\s*from (limbeck[\w.]*) import (?:\(([^)]*)\)|([\w, ]+))", re.MULTILINE)
FILES = ("yaml", "json", "py", "md", "git", "svg", "journal", "schema", "toml")


def test_commands():
    """Every command with its options: their names, types, defaults and helps."""
    check("commands", command_tree(root()))


def test_recipe_schema():
    check("recipe_schema", recipe_schema())


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name):
    check(f"public_names/{name}", public_names(importlib.import_module(name)))


def test_registries():
    """Names that files, recipes and command lines hold; but for two, in the order of a list or table."""
    check(
        "registries",
        {
            "families": sorted(families),
            "formats": list(FORMATS),
            "groups of tasks": sorted(TASK_GROUPS),
            "losses measured by limbeck benchmark": list(measured_objectives()),
            "methods": list(METHODS),
            "metrics": sorted(METRIC_NAMES),
            "objectives": list(OBJECTIVES),
            "presets": list(presets),
            "protocols": list(PROTOCOLS),
            "tasks": list(TASKS),
        },
    )


DATA = {
    "families": families,
    "groups of tasks": TASK_GROUPS,
    "presets": presets,
    "protocols": PROTOCOLS,
    "tasks": DEFINITIONS,
}
#: Leaderboards' files, the rules for answers and chosen thresholds, which other tests hold.
NOT_OF_A_TASK = ("answer_rules", "submissions", "thresholds")


def described_task(definition):
    """Return a task with the sources of its splits, as its description gives them."""
    kept = {name: value for name, value in vars(definition.task).items() if name not in NOT_OF_A_TASK}
    # No split has metrics of its own.
    kept["splits"] = {name: values_of(**vars(facts), metrics=()) for name, facts in definition.task.splits.items()}
    sources = {split: sources_of(definition, split) for split in definition.split_names}
    return {"task": kept, "sources": sources, "second_choice": definition.second_choice}


def sources_of(definition, split):
    """Return the files and the place on the Hub that a split is read from."""
    files = [
        values_of(path=path, columns=columns_of(definition, file.columns), header=file.header, only=file.only)
        for path, file in definition.paths(split)
    ]
    hub, found = None, definition.on_hub(split)
    if found is not None:
        data, part = found
        hub = values_of(
            name=data.name, split=part.split, columns=columns_of(definition, data.columns), config=part.config,
            revision=data.revision, published_rows=data.rows.get(split),
        )  # fmt: skip
    return {"files": files, "hub": hub, "parts": definition.parts.get(split, ())}


def columns_of(definition, own):
    given = own or definition.columns
    if definition.kind == "question_answering":
        found = {"text": given.context, "pair": given.question, "label": None, "id": given.id or "id"}
    else:
        found = {"text": given.text, "pair": given.pair, "label": given.label, "id": given.id}
    return values_of(**found, answers=given.answers)


def values_of(**values):
    """Return values as a dataclass, which a snapshot has on one line."""
    return make_dataclass("Values", values)(**values)


@pytest.mark.parametrize("kind", DATA)
def test_registered_data(kind):
    """Tasks, protocols, families and presets to the last number: papers' data, whatever it is written in."""
    found = dict(DATA[kind].items())
    if kind == "tasks":
        found = {name: described_task(item) for name, item in found.items()}
    check(f"registered/{kind.replace(' ', '_')}", plain(found))


def test_options_of_methods():
    """Every method's options, tasks and stages, as recipes give them."""
    check(
        "methods",
        {
            name: {
                "options": method.options.model_json_schema(),
                "tasks": sorted(method.tasks),
                "stages": [dict(stage) for stage in method.stages],
            }
            for name, method in METHODS.items()
        },
    )


def written_names() -> dict[str, str]:
    """Dotted names of limbeck's that pages and scripts contain, each with a file that has it."""
    found: dict[str, str] = {}
    for path in sorted({path for pattern in NAMED_IN for path in ROOT.glob(pattern) if path.is_file()}):
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in NAME.findall(text):
            if match.rsplit(".", 1)[1] not in FILES:
                found.setdefault(match, path.name)
        for module, several, one in IMPORTED.findall(text):
            for name in (several or one).split(","):
                if word := name.split("#")[0].split(" as ")[0].strip():
                    found.setdefault(f"{module}.{word}", path.name)
    return found


def entry_point_groups() -> set[str]:
    """The names of groups of entry points, which look like names of modules."""
    groups: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        groups.update(re.findall(r'"(limbeck\.[a-z]+)"', path.read_text(encoding="utf-8")))
    return groups


def test_names_in_pages_and_scripts_exist():
    names = written_names()
    assert len(names) > 50
    groups = entry_point_groups()
    missing = []
    for name, file in names.items():
        if name in groups:
            continue
        try:
            resolve_name(name)
        except (ImportError, AttributeError):
            missing.append(f"{file}: {name}")
    assert not missing, missing
