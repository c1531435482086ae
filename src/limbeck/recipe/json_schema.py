"""The JSON schema of recipes, from which editors complete, with the options of every method."""

from __future__ import annotations

from typing import Any

from limbeck.core.kinds import kinds_with_head
from limbeck.methods.registry import METHODS
from limbeck.recipe.schema import Recipe


def recipe_schema() -> dict[str, Any]:
    """Make the schema: the recipe's own, with the methods and kinds of tasks that are registered, plugins' too."""
    schema = Recipe.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    parts = schema["$defs"]

    # The field of a stage takes any mapping, which its method checks.
    stage_keys = parts["StageSpec"]["properties"]
    stage_keys["method"] = {"description": stage_keys["method"].get("description", ""), "anyOf": _method_schemas()}

    parts["TaskSpec"]["properties"]["kind"]["enum"] = kinds_with_head()

    # A validator makes a list of one source alone, which its schema does not say.
    corpus_keys = parts["CorpusSpec"]["properties"]
    source_list = dict(corpus_keys["sources"])
    description = source_list.pop("description", "")
    corpus_keys["sources"] = {"description": description, "anyOf": [{"type": "string"}, source_list]}
    return schema


def _method_schemas() -> list[dict[str, Any]]:
    """Make the schemas of a stage's method: its name alone, or the name of one method with its options."""
    schemas: list[dict[str, Any]] = [{"enum": list(METHODS)}]
    for name, method in METHODS.items():
        options = method.options.model_json_schema()
        options["properties"] = {"name": {"const": name}, **options.get("properties", {})}
        options["required"] = ["name", *options.get("required", [])]
        options["description"] = method.summary
        schemas.append(options)
    return schemas
