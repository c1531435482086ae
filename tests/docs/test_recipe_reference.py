"""The recipe reference has every key, with what the schema says of it, as `make references` writes it."""

from pydantic import BaseModel

from limbeck.methods import METHODS
from limbeck.recipe import Recipe
from tests.docs.pages import script
from tests.support.recipes import models_in

HOOK = script("docs/hooks/recipe_reference.py")


def sections(model: type[BaseModel], found=()):
    for field in model.model_fields.values():
        for kind in models_in(field.annotation):
            if kind not in found:
                found = sections(kind, (*found, kind))
    return found


def test_every_key_has_its_row():
    text = HOOK.recipe_reference()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for model in (Recipe, *sections(Recipe), *(METHODS[name].options for name in METHODS)):
        for name, field in model.model_fields.items():
            key = field.alias or name
            described = [row for row in rows if row.startswith(f"| `{key}` |")]
            assert described, f"{model.__name__}.{key} is missing"
            first = (field.description or "").split("\n\n")[0].replace("|", "\\|")
            assert any(first in row for row in described), f"{model.__name__}.{key}: {first}"


def test_types_ranges_and_defaults_are_said():
    text = HOOK.recipe_reference()
    assert "| `batch_sizes` | list of whole number, 1 or more | – |" in text
    assert "| `dropout` | number ≥ 0, < 1 | – |" in text
    assert '| `untrained` | `random`, `teacher` | `"random"` |' in text
    assert "| `sources` | list of text or section | empty |" in text
    assert "| `model` | text | *needed* |" in text
    assert "anyOf" not in text
    assert "$ref" not in text


def test_the_page_is_what_is_made_now():
    page = HOOK.PAGE.read_text(encoding="utf-8")
    assert HOOK.with_reference(page) == page, "run make references"
