"""The options of `limbeck teach` and `limbeck.teach`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.requests import shared
from limbeck.api.requests.fields import option, request

if TYPE_CHECKING:
    from limbeck.recipe.schema import Recipe
else:
    # Importing it takes long, and a request does not look into it.
    Recipe = Any


@request
class TeachRequest:
    """A teacher, its text, and the folder for what it says."""

    recipe: Recipe | Mapping[str, Any] | str | Path | None = shared.recipe_argument(
        "The recipe (YAML) whose students will learn from the outputs; or, with --check, the folder of a store.",
        "A recipe whose students will learn from the outputs, as `distill` takes it; or, with `check`, the folder of a "
        "store.",
    )
    overrides: str | Sequence[str] = shared.overrides_option()
    _: KW_ONLY
    teacher: Any = shared.teacher_option()
    corpus: Any = shared.corpus_option()
    method: Any = shared.method_option()
    length: int | None = option("Longest text in tokens.", default=None, least=4)
    tokenizer: Any = option("Of a teacher that is a model without one.", default=None)
    output: str | Path | None = option("Folder of the store.", default=None, cls=str)
    number_format: str = option(
        "Numbers are kept as float32, float16 or int8 with a scale for each row.", default="float32", flag="--format"
    )
    batch_size: int = option("Texts that the teacher reads at once.", default=64, least=1)
    check: bool = option(
        "Tell what a store holds, compare its files with their hashes, merge small ones, and compare a sample with the "
        "live teacher where there is one.",
        default=False,
    )
    console: Console | None = shared.console_option()
