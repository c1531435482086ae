"""A request of `teach` for an endpoint: its options, the texts that are sent, and the comparison with it later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.named_recipes import named_recipe
from limbeck.api.requests.fields import options_of
from limbeck.api.requests.teach import TeachRequest
from limbeck.core.corpus_progress import CorpusProgress
from limbeck.core.ranks import process_count
from limbeck.errors import RecipeError, suggestion

if TYPE_CHECKING:
    from limbeck.corpus.building.plain_texts import PlainText, PlainTexts
    from limbeck.recipe.schema import Recipe
    from limbeck.targets.drift import Drift
    from limbeck.targets.endpoint.client import EmbeddingsClient
    from limbeck.targets.endpoint.filling import FilledStore
    from limbeck.targets.endpoint.limit import TextLimit
    from limbeck.targets.store import Store

_OF_ENDPOINT = (
    "model", "concurrency", "requests_per_minute", "timeout", "limit", "too_long", "prompts", "price", "terms",
    "key_variable",
)  # fmt: skip
"""Options that only an endpoint has."""
_OF_MODEL = ("teacher", "method", "length")
"""Options of a teacher that is a model."""
_USED_BY_CHECK = ("key_variable", "timeout", "requests_per_minute")
"""Options of an endpoint that a check of its store reads."""
_BATCH_SIZE = 32
"""Texts of a request, unless the request says otherwise: what text-embeddings-inference takes."""
_WAYS = ("refuse", "cut")
"""What may be done about a text that is too long."""


def refuse_endpoint_options(request: TeachRequest) -> None:
    """Refuse options of an endpoint without one, and options of a model beside an endpoint.

    Raises:
        RecipeError: naming the option.
    """
    if request.endpoint is None:
        # A store of an endpoint is checked without --endpoint, since it knows its server.
        for name in _OF_ENDPOINT:
            is_for_check = request.check and name in _USED_BY_CHECK
            if _is_given(request, name) and not is_for_check:
                raise RecipeError(
                    f"{_flag(name)} applies only to a teacher behind an endpoint; give --endpoint too, or leave "
                    "the option out."
                )
        return
    for name in _OF_MODEL:
        if getattr(request, name) is not None:
            raise RecipeError(
                f"{_flag(name)} applies only to a teacher that is a model, not to an endpoint; leave out that "
                "option or --endpoint."
            )
    if request.model is None and not request.check:
        raise RecipeError("--model is missing: give the name of the endpoint's model.")
    if request.too_long not in _WAYS:
        raise RecipeError(f"--too-long is '{request.too_long}'.{suggestion(request.too_long, _WAYS)}")
    for name in ("too_long", "tokenizer"):
        if request.limit is None and _is_given(request, name):
            raise RecipeError(f"{_flag(name)} has no effect without --limit; give --limit too.")
    if process_count() > 1:
        raise RecipeError(
            "Only one process may ask an endpoint; start limbeck without a launcher, and raise --concurrency for "
            "more requests at once."
        )


def _is_given(request: TeachRequest, name: str) -> bool:
    """Whether an option has another value than its default."""
    return bool(getattr(request, name) != options_of(TeachRequest)[name].default)


def _flag(name: str) -> str:
    """Return an option as messages name it."""
    return options_of(TeachRequest)[name].flag or f"--{name.replace('_', '-')}"


def ask_endpoint(request: TeachRequest, folder: Path, console: Console) -> FilledStore:
    """Store the vectors that an endpoint makes of the texts of a request.

    Raises:
        LimbeckError: one clear line.
    """
    from limbeck.corpus.building.plain_texts import PlainTexts
    from limbeck.models.sentences import pooling_with_prompts
    from limbeck.recipe.corpora import plain_text_settings
    from limbeck.targets.endpoint.filling import fill_store
    from limbeck.targets.endpoint.options import EndpointOptions

    assert request.endpoint is not None
    assert request.model is not None
    client = _client_of(request, request.endpoint, request.model, console)
    options = EndpointOptions(
        batch_size=request.batch_size or _BATCH_SIZE,
        concurrency=request.concurrency,
        limit=_limit_of(request),
        too_long="cut" if request.too_long == "cut" else "refuse",
        price=request.price,
        terms=request.terms.strip(),
        prompts=dict(request.prompts or {}),
        number_format=request.number_format,
    )
    sentence = pooling_with_prompts(options.prompts)
    title_of_outputs = f"the vectors of {client.endpoint.title}"
    settings_of_stages = plain_text_settings(_recipe_of(request, folder), sentence, title_of_outputs)
    with CorpusProgress(console) as progress:
        corpora = [PlainTexts(settings, progress=progress) for settings in settings_of_stages]
    return fill_store(_TextsOfStages(corpora), client, folder, options, console)


class _TextsOfStages:
    """The texts of several stages; it can be iterated over again and again."""

    def __init__(self, corpora: Sequence[PlainTexts]) -> None:
        self._corpora = corpora

    def __iter__(self) -> Iterator[PlainText]:
        return chain.from_iterable(self._corpora)


def check_endpoint(request: TeachRequest, store: Store, console: Console) -> Drift:
    """Compare a sample of a store with its endpoint.

    Raises:
        ModelError: for an endpoint that cannot be asked.
    """
    from limbeck.targets.endpoint.sample import check_drift

    facts = store.facts.endpoint
    assert facts is not None
    client = _client_of(request, request.endpoint or facts.url, request.model or facts.model, console)
    return check_drift(store, client, request.batch_size or _BATCH_SIZE, console)


def _client_of(request: TeachRequest, url: str, model: str, console: Console) -> EmbeddingsClient:
    """Make the client of an endpoint.

    Raises:
        RecipeError: for a variable that is named and has no key.
        ModelError: for what is no address.
    """
    from limbeck.targets.endpoint.address import Endpoint, endpoint_url
    from limbeck.targets.endpoint.client import EmbeddingsClient
    from limbeck.targets.endpoint.pace import Pace

    def notice(line: str) -> None:
        console.print(f"  {line}", style="dim", highlight=False, markup=False, soft_wrap=True)

    endpoint = Endpoint(endpoint_url(url), model, request.key_variable)
    client = EmbeddingsClient(endpoint, Pace(request.requests_per_minute), timeout=request.timeout, notice=notice)
    if _is_given(request, "key_variable") and not client.has_key:
        raise RecipeError(
            f"--key-variable is {request.key_variable}, but there is no environment variable of that name; set the "
            "variable to the endpoint's key."
        )
    return client


def _limit_of(request: TeachRequest) -> TextLimit | None:
    """Return the longest text that is sent; None without a limit.

    Raises:
        LimbeckError: for a tokenizer that cannot be loaded, or cannot count.
    """
    from limbeck.targets.endpoint.limit import TextLimit, token_limit

    if request.limit is None:
        return None
    if request.tokenizer is None:
        return TextLimit(request.limit)
    return token_limit(request.limit, request.tokenizer)


def _recipe_of(request: TeachRequest, folder: Path) -> Recipe:
    """Return the recipe of a request; where only a text is given, one that reads its documents.

    Its teacher is not looked at, since the endpoint takes its place.
    """
    from limbeck.recipe.facts import check_corpus
    from limbeck.recipe.load import load_recipe

    options: dict[str, Any] = {}
    if request.corpus is not None:
        options["corpus"] = request.corpus
    recipe: Any = request.recipe
    if recipe is None:
        if request.corpus is None:
            raise RecipeError("The texts for the endpoint are missing; give --corpus, or a recipe with a corpus.")
        # No teacher is loaded and no student is made, but a recipe needs both.
        recipe = {
            "name": "targets",
            "stages": [{"method": {"name": "aligned_embedding"}, "training": {"max_steps": 1}}],
        }
        recipe |= {"teacher": {"model": request.model}, "student": {"shape": 1}}
    loaded = load_recipe(named_recipe(recipe, options, kept_in=folder), request.overrides)
    if loaded.corpus is not None:
        check_corpus(loaded.corpus)
    return loaded
