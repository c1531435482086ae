"""Every task is whole, and the reference page says what the registry says."""

import re
from pathlib import Path

import pytest
import yaml

from limbeck.core.strict import descriptions
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.loading import load_task
from limbeck.evaluation.tasks.registry import (
    DEFINITIONS,
    TASK_GROUPS,
    TASKS,
    evaluator_named,
    is_own_task,
    parse_tasks,
)
from tests.docs.pages import script
from tests.support.command_tree import root


@pytest.mark.parametrize("name", list(TASKS))
def test_a_task_fits_together(name):
    definition, task = DEFINITIONS[name], TASKS[name]
    assert definition.task is task and task.name == name
    for reference in (key for key in (task.train, task.select) if key is not None):
        other, _, split = reference.rpartition(":")
        assert split in TASKS[other or name].splits
        assert TASKS[other or name].labels == task.labels
    assert all(definition.paths(split) or split in definition.parts for split in task.splits)
    # No two splits have a file in common.
    paths = [(path, *file.only.items()) for split in task.splits for path, file in definition.paths(split)]
    assert len(paths) == len(set(paths))


def test_groups_hold_known_tasks_and_kinds_of_task_known_metrics():
    groups = dict(TASK_GROUPS.items())
    alone = {"ocnli", "squad_retrieval", "retrieval", "tatoeba"}
    assert {name for names in groups.values() for name in names} | alone == set(TASKS)
    assert all(set(TASKS[name].submissions) == set(TASKS[name].predicted) for name in groups["glue_leaderboard"])


def test_a_list_of_names(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("")
    assert parse_tasks(f" squad, glue,sst2 ,{own}") == ["squad", *TASK_GROUPS["glue"], str(own)]
    for text, error, message in (
        ("sst2,mlni", RecipeError, r"Unknown task 'mlni'\. Did you mean 'mnli'\?"),
        (" , ", RecipeError, "names no task"),
        ("gone.yaml", CorpusError, r"task file 'gone\.yaml' does not exist"),
    ):
        with pytest.raises(error, match=message):
            parse_tasks(text)
    # Own rows need a task file: a table is told so, whether it is there or not, and so is any other file that is there.
    table = tmp_path / "reviews.csv"
    other = tmp_path / "reviews.yaml.bak"
    example = r"describe your own rows in a task file, such as reviews\.yaml.*`name: reviews`.*'A task of your own'"
    for path in (table, other):
        path.write_text("text,label\nit is,good\n")
        with pytest.raises(RecipeError, match=rf"{path.name}' is no task file; {example}"):
            parse_tasks(str(path))
    with pytest.raises(RecipeError, match=rf"^'reviews\.tsv\.gz' is no task file, and does not exist; {example}"):
        parse_tasks("reviews.tsv.gz")
    with pytest.raises(RecipeError, match=r"^Unknown task 'reviews\.csvv'\."):
        parse_tasks("reviews.csvv")
    with pytest.raises(RecipeError, match=r"Unknown task 'sqad'\. Did you mean 'squad'\?"):
        load_task("sqad", data=tmp_path)


def test_a_task_file_behind_the_name_of_an_evaluator_is_that_evaluators(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert evaluator_named("mteb:reviews.yaml") == "mteb" and not is_own_task("mteb:reviews.yaml")
    assert parse_tasks("sst2,mteb:reviews.yaml", others=True) == ["sst2", "mteb:reviews.yaml"]
    # Paths may have colons too.
    for path in ("data/v:2/reviews.yaml", "my-data:2/reviews.yaml"):
        assert evaluator_named(path) is None and is_own_task(path)
    (tmp_path / "data:reviews.yaml").write_text("")
    assert evaluator_named("data:reviews.yaml") is None and is_own_task("data:reviews.yaml")


DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "evaluation_tasks.md").read_text(encoding="utf-8")
REFERENCE = script("docs/hooks/task_reference.py")


def test_the_reference_is_what_is_made_now():
    page = REFERENCE.PAGE.read_text(encoding="utf-8")
    assert REFERENCE.with_reference(page) == page, "run make references"


@pytest.mark.parametrize("name", list(TASKS))
def test_counts_and_names_are_in_the_reference(name):
    page = REFERENCE.PAGE.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    published = [facts.published_rows for facts in TASKS[name].splits.values()]
    numbers = {number.strip(",") for number in re.findall(r"[\d,]+", section)}
    assert {f"{count:,}" for count in published if count is not None} <= numbers
    assert (hub := DEFINITIONS[name].hub) is None or f"`{hub.name}`" in section
    assert all(label in section for label in TASKS[name].labels)
    assert all(f"`{metric}`" in section for metric in TASKS[name].metrics)


def test_presets_are_on_their_page_and_in_the_help():
    page = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| `--preset` \| source.*\n\|[-|: ]+\n((?:\| .*\n)+)", page, re.MULTILINE)
    first_cells = [line.split("|")[1] for line in table.splitlines()]
    assert set(re.findall(r"`(\w+)`", " ".join(first_cells))) == set(PROTOCOLS)
    (preset,) = (option for option in root().commands["evaluate"].params if option.name == "preset")
    assert all(name in preset.help for name in PROTOCOLS)


def test_the_descriptions_on_the_page_are_understood():
    texts = re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    names = [TaskDefinition.model_validate(yaml.safe_load(text)).name for text in texts]
    assert sorted(names) == ["facts", "panx_de", "reviews", "sentences", "translations"]


def test_every_key_of_a_task_file_is_explained():
    missing = [key for key, text in descriptions(TaskDefinition).items() if not text]
    assert not missing, "a docstring below the field goes into the reference"
