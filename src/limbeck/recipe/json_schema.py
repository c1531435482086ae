"""The JSON schema of recipes, from which editors complete, with the options of every method."""

from __future__ import annotations

from typing import Any

from limbeck.methods.registry import METHODS
from limbeck.recipe.schema import Recipe


def recipe_schema() -> dict[str, Any]:
    """Make the schema: the recipe's own, where `method` is a name or one of the methods with its options."""
    schema = Recipe.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    choices: list[dict[str, Any]] = [{"enum": list(METHODS)}]
    for name, method in METHODS.items():
        options = method.options.model_json_schema()
        options["properties"] = {"name": {"const": name}, **options.get("properties", {})}
        options["required"] = ["name", *options.get("required", [])]
        options["description"] = method.summary
        choices.append(options)
    stage = schema["$defs"]["StageSpec"]["properties"]
    stage["method"] = {"description": stage["method"].get("description", ""), "anyOf": choices}
    sources = schema["$defs"]["CorpusSpec"]["properties"]["sources"]
    schema["$defs"]["CorpusSpec"]["properties"]["sources"] = {
        "description": sources.get("description", ""),
        "anyOf": [{"type": "string"}, {k: v for k, v in sources.items() if k != "description"}],
    }
    return schema
