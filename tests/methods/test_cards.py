"""Method cards say what the code does: sections, options and defaults, recipes that compose, mappings, links."""

import re

import pytest
from transformers import BertConfig

from limbeck.core.yaml import parse_yaml
from limbeck.methods import METHODS, Pairing
from limbeck.methods.cards import RECIPE_CARDS, read_card
from limbeck.methods.layer_mapping import NAMES, resolve_mapping
from limbeck.methods.registry import read_method
from limbeck.models.blueprint import parse_blueprint
from limbeck.models.families import shape_of
from limbeck.models.layer_selection import selected_layers
from limbeck.models.students import student_config
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.recipe import Recipe, load_recipe
from tests.docs.pages import ROOT, script
from tests.support.models import tiny_config
from tests.support.recipes import models_in

FOLDER = ROOT / "docs" / "methods"
SECTIONS = ["Idea", "Formula", "Defaults", "Needs", "Cost", "Pitfalls", "Choose it when", "Recipe"]
CARDS = [*METHODS, *RECIPE_CARDS]
BASE = {"teacher": {"model": "teacher"}, "student": {"shape": "6x384"}, "corpus": {"sources": ["texts"]}}
#: Pages, and the function that puts the methods' lists into each.
LISTS = script("docs/hooks/method_lists.py").PAGES
#: Stands in a table where a default would be `None`, which is also what an empty cell parses to.
NULL = "null"


def section(card, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", card, re.DOTALL | re.MULTILINE).group(1)


def rows(text):
    """The cells of a section's first table, without its header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell):
    """What a cell holds between backticks, as YAML."""
    found = re.fullmatch(r"`(.+)`", cell)
    assert found, f"no code in '{cell}'"
    value = parse_yaml(found.group(1), cell)
    assert value is not None or found.group(1) == NULL
    return value


def field_of(model, path):
    """The field of a pydantic model at a dotted path, through lists and optional models."""
    first, _, rest = path.partition(".")
    field = model.model_fields[first]
    return field_of(models_in(field.annotation)[0], rest) if rest else field


def defaults(name):
    """Option to default, as the code has them; options of a card without a method are keys of a recipe."""
    if name in METHODS:
        fields = METHODS[name].options.model_fields
    else:
        fields = {path: field_of(Recipe, path) for path, *_ in table(name)}
    return {path: field.get_default(call_default_factory=True) for path, field in fields.items()}


def table(name):
    found = rows(section(read_card(name), "Defaults"))
    return [[code(option), code(default), *rest] for option, default, *rest in found]


def recipe(name):
    found = re.findall(r"```yaml\n(.*?)```", section(read_card(name), "Recipe"), re.DOTALL)
    assert len(found) == 1
    return load_recipe({**BASE, **parse_yaml(found[0], name)})


def bert_shape(spec, teacher):
    given = spec.shape
    if isinstance(given, int):
        given = {"layers": given, "hidden": teacher.hidden_size, "heads": teacher.num_attention_heads}
    elif not isinstance(given, str):
        given = given.model_dump(exclude_none=True)
    return shape_of(student_config(parse_blueprint(given), teacher))


@pytest.mark.parametrize("name", CARDS)
def test_a_card_has_its_sections_in_order(name):
    card = read_card(name)
    assert card == (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert card.startswith(f"# {name}\n\n")
    assert re.findall(r"^## (.+)$", card, re.MULTILINE) == SECTIONS
    for title in SECTIONS:
        assert section(card, title).strip(), title
    assert "```text\n" in section(card, "Formula")


@pytest.mark.parametrize("name", CARDS)
def test_defaults_are_those_of_the_code(name):
    written = {option: default for option, default, *_ in table(name)}
    assert len(written) == len(table(name))
    assert written == defaults(name)
    assert all(len(row) == 3 and row[2] for row in table(name)), "every default has its source"


@pytest.mark.parametrize("name", CARDS)
def test_the_recipe_loads_and_composes_for_bert_base(name):
    checked, bert = recipe(name), BertConfig()
    used = {stage.method["name"] for stage in checked.stages}
    assert name in used or name in RECIPE_CARDS
    shapes = {None: shape_of(bert)}
    for stage in checked.stages:
        own = stage.student or checked.student
        student = bert_shape(own, bert)
        teacher = shapes[stage.teacher.stage if stage.teacher is not None else None]
        corpus = stage.corpus or checked.corpus
        task = corpus.task.kind if corpus.task is not None else "text"
        method, options = read_method(stage.method)
        assert task in method.tasks
        assert method.compose(options, Pairing(student, facts_of_shape(teacher), task))
        shapes[stage.title] = student


def test_recipes_without_a_method_are_what_their_cards_say():
    truncated = recipe("truncated_teacher")
    assert (truncated.stages, truncated.student.initialise.layers) == ([], "first")
    assert selected_layers("first", 6, 12) == [1, 2, 3, 4, 5, 6]
    first, *_, second = recipe("teacher_assistant").stages
    assert first.student is not None
    assert second.teacher.stage == first.name


@pytest.mark.parametrize("page", LISTS)
def test_lists_of_methods_are_those_of_the_registry(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert LISTS[page](text) == text, "run make references"


def test_a_method_without_its_place_in_a_list_is_put_there():
    for page, put in LISTS.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        without = re.sub(r"(`minilm`, |^.*\bminilm\.md\b.*\n)", "", text, flags=re.MULTILINE)
        assert without != text
        assert put(without) == text


def test_the_index_shows_the_mappings_of_the_code():
    text = section((FOLDER / "README.md").read_text(encoding="utf-8"), "Layer mappings")
    written = {code(strategy): example for strategy, _, example in rows(text)}
    assert list(written) == list(NAMES)
    student, teacher = (shape_of(tiny_config("bert", layers=layers)) for layers in (4, 12))
    pairing = Pairing(student, facts_of_shape(teacher))
    for strategy, example in written.items():
        if strategy != "contribution":
            assert resolve_mapping(code(example), pairing) == resolve_mapping(strategy, pairing), strategy
