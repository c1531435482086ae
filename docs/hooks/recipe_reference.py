"""The recipe reference is made of the schema: every key, its type, its default and what it is.

`python docs/hooks/recipe_reference.py` writes it into `docs/recipe_reference.md`, below the line that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from limbeck.methods import METHODS
from limbeck.recipe import Recipe

PAGE = Path(__file__).parents[1] / "recipe_reference.md"
PLACE = "<!-- limbeck.recipe.schema: made of the schema by `make references` -->\n"
#: Headings of the sections, in the order of the page; a section that is missing here comes last, under its own name.
_TITLES = {
    "Recipe": "The recipe",
    "TeacherSpec": "`teacher`",
    "StudentSpec": "`student`",
    "ShapeSpec": "`student.shape`, every field by name",
    "InitialiseSpec": "`student.initialise`",
    "CorpusSpec": "`corpus`",
    "SourceSpec": "`corpus.sources.N`, where a source is more than its name",
    "MixSpec": "`corpus.mix`",
    "TaskSpec": "`corpus.task`",
    "RowAugmentationSpec": "`corpus.augment`",
    "StageSpec": "`stages`, a list",
    "StageTeacherSpec": "`stages.N.teacher`",
    "StageTextSpec": "`stages.N.text`",
    "AugmentSpec": "`stages.N.augment`",
    "GuardSpec": "`stages.N.guard`",
    "EvaluationSpec": "`evaluation`",
}
_LIMITS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}


def with_reference(text: str) -> str:
    """Put the reference below its line in the page."""
    written, place, _ = text.partition(PLACE)
    assert place, "the page has a place for the reference"
    return f"{written}{place}\n{recipe_reference()}\n"


def recipe_reference() -> str:
    """Every key of a recipe by section, then every method's options, as Markdown tables."""
    schema = Recipe.model_json_schema()
    definitions = schema["$defs"] | {"Recipe": schema}
    order = [*_TITLES, *sorted(definitions.keys() - _TITLES.keys())]
    sections = [_section(_TITLES.get(name, f"`{name}`"), definitions[name], definitions) for name in order]
    return "\n\n".join([*sections, "## Options of the methods", *_methods()])


def _methods() -> Iterator[str]:
    for name, method in METHODS.items():
        schema = method.options.model_json_schema()
        yield _section(f"`method: {name}`", schema | {"description": method.summary}, schema.get("$defs", {}), "###")


def _section(title: str, schema: Mapping[str, Any], definitions: Mapping[str, Any], level: str = "##") -> str:
    lines = [f"{level} {title}", "", _first_line(schema.get("description", ""))]
    properties = schema.get("properties", {})
    if properties:
        lines += ["", "| key | type | default | what |", "|---|---|---|---|"]
        required = schema.get("required", [])
        lines += [_row(key, field, key in required, definitions) for key, field in properties.items()]
    return "\n".join(lines if properties else [*lines, "", "It has no options."])


def _first_line(text: str) -> str:
    return text.split("\n\n")[0].replace("\n", " ")


def _row(key: str, field: Mapping[str, Any], needed: bool, definitions: Mapping[str, Any]) -> str:
    default = "*needed*" if needed else _default(field)
    cells = [f"`{key}`", _type(field, definitions), default, _description(field, definitions)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _description(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """What the field says of itself, or else what the section says that it is."""
    section = definitions.get(str(field.get("$ref", "")).rsplit("/", 1)[-1], {})
    return _first_line(field.get("description") or section.get("description") or "–")


def _default(field: Mapping[str, Any]) -> str:
    if "default" not in field:
        if field.get("type") in ("array", "object"):
            return "empty"
        if "$ref" in field:
            return "the defaults of its keys"
        return "*needed*"
    value = field["default"]
    return "–" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _type(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """A type in words: what a value may be, and its range."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        found = definitions.get(name, {})
        return "section" if "properties" in found else _type(found, definitions)
    if "anyOf" in field:
        kinds = [_type(kind, definitions) for kind in field["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return "list of " + _type(field.get("items", {}), definitions) + _count(field)
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        return "mapping" + (f" to {_type(inner, definitions)}" if isinstance(inner, dict) and inner else "")
    name = {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(field.get("type", ""), "")
    limits = [form.format(f"{field[limit]:,}") for limit, form in _LIMITS.items() if limit in field]
    return " ".join([name or field.get("type", "any"), *([", ".join(limits)] if limits else [])])


def _count(field: Mapping[str, Any]) -> str:
    return f", {field['minItems']} or more" if field.get("minItems") else ""


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
