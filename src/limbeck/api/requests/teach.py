"""The options of `limbeck teach` and `limbeck.teach`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.requests import shared, values
from limbeck.api.requests.fields import option, request
from limbeck.targets.endpoint.address import DEFAULT_KEY_VARIABLE

if TYPE_CHECKING:
    from limbeck.recipe.schema import Recipe
else:
    # Importing it takes long, and a request does not look into it.
    Recipe = Any

ENDPOINT = "A teacher behind an endpoint"
"""Panel of the help with the options of an endpoint."""


@request
class TeachRequest:
    """A teacher or an endpoint, its text, and the folder for what it says."""

    recipe: Recipe | Mapping[str, Any] | str | Path | None = shared.recipe_argument(
        "Recipe (YAML) whose students will learn from the stored outputs; with --check, the folder of a store.",
        "A recipe whose students will learn from the outputs, as `distill` takes it; or, with `check`, the folder of a "
        "store.",
    )
    overrides: str | Sequence[str] = shared.overrides_option()
    _: KW_ONLY
    teacher: Any = shared.teacher_option()
    corpus: Any = shared.corpus_option()
    method: Any = shared.method_option()
    length: int | None = option("Longest text in tokens.", default=None, least=4)
    tokenizer: Any = option(
        "Model whose tokens --limit counts; without it, --limit counts characters.",
        default=None,
        python="Of an endpoint: a tokenizer whose tokens `limit` counts, or a model that has it; without it, `limit` "
        "counts characters. Of a teacher that is a model object without one: its tokenizer.",
        cls=str,
        metavar="MODEL",
        panel=ENDPOINT,
    )
    output: str | Path | None = option("Folder of the store.", default=None, cls=str)
    number_format: str = option(
        "Number format of the store: float32, float16, or int8 with a scale for each row.",
        default="float32",
        flag="--format",
    )
    batch_size: int | None = option(
        "Texts that the teacher reads at once; default: 64, and 32 for an endpoint.", default=None, least=1
    )
    check: bool = option(
        "Check a store: show its contents, compare its files with their hashes, merge small files, and compare a "
        "sample with the running teacher or endpoint, if there is one.",
        default=False,
    )
    endpoint: str | None = option(
        "Address of a server with OpenAI's embeddings API, such as http://localhost:8000/v1; that server is asked "
        "in place of a teacher.",
        default=None,
        metavar="URL",
        panel=ENDPOINT,
    )
    model: str | None = option("Name of the endpoint's model.", default=None, metavar="NAME", panel=ENDPOINT)
    key_variable: str = option(
        "Environment variable with the endpoint's key; limbeck stores the key nowhere.",
        default=DEFAULT_KEY_VARIABLE,
        metavar="NAME",
        panel=ENDPOINT,
    )
    concurrency: int = option("Requests under way at the same time.", default=4, least=1, most=256, panel=ENDPOINT)
    requests_per_minute: float | None = option(
        "Largest number of requests in a minute; default: no limit.", default=None, least=0.01, panel=ENDPOINT
    )
    timeout: float = option("Seconds to wait for an answer.", default=60.0, least=1, most=3600, panel=ENDPOINT)
    limit: int | None = option(
        "Longest text that the model takes, in characters, or in tokens of --tokenizer.",
        default=None,
        least=1,
        panel=ENDPOINT,
    )
    too_long: str = option("Texts above --limit: refuse or cut.", default="refuse", panel=ENDPOINT)
    prompts: Mapping[str, str] | None = option(
        "Text before texts of a role (query, document, or default): --prompt 'query=query: '",
        default=None,
        python="The text before texts of each role: `query`, `document`, and `default` for those without a role.",
        cls=list[str],
        flag="--prompt",
        metavar="ROLE=TEXT",
        reads=values.prompts,
        panel=ENDPOINT,
    )
    price: float | None = option(
        "Price of a million tokens; the total is shown before anything is sent.", default=None, least=0, panel=ENDPOINT
    )
    terms: str = option(
        "Terms of use of the endpoint's vectors, for the cards of students: a name, a sentence or an address.",
        default="",
        panel=ENDPOINT,
    )
    console: Console | None = shared.console_option()
