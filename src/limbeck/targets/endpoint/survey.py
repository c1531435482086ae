"""`Survey`: what is known of the texts for an endpoint before any is sent, and the lines that tell it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from limbeck.core.blocks import counted
from limbeck.corpus.building.plain_texts import PlainText
from limbeck.errors import CorpusError
from limbeck.targets.endpoint.answer import Embeddings
from limbeck.targets.endpoint.client import EmbeddingsClient
from limbeck.targets.endpoint.options import EndpointOptions
from limbeck.targets.store import Store

_SAMPLE_SIZE = 64
"""Texts of the sample of a store."""
_TEXTS_AT_ONCE = 1000
"""Texts whose keys are looked up in a store together."""
_CHARACTERS_OF_TOKEN = 4
"""Characters of a token in English text, by which tokens are estimated before an endpoint has counted any."""
_MILLION = 1_000_000


@dataclass(frozen=True)
class Survey:
    """What is known of the texts before any is sent.

    Args:
        keys: The keys of all texts, sorted, each once.
        is_stored: Which of these the store has, bool `[keys]`. Only the texts that it lacks will be sent.
        characters: Characters of the texts that will be sent, in the form in which they are sent.
        cut: How many of the texts that will be sent are cut to the limit.
        sample: A fixed random sample of all texts, stored ones too, in the form in which they are sent.
    """

    keys: NDArray[np.int64]
    is_stored: NDArray[np.bool_]
    characters: int
    cut: int
    sample: list[PlainText]

    @property
    def unsent(self) -> int:
        """Texts that the store lacks."""
        return int((~self.is_stored).sum())


def survey_texts(texts: Iterable[PlainText], store: Store | None, options: EndpointOptions) -> Survey:
    """Survey the texts that an endpoint is to read, of which those that the store lacks will be sent.

    Args:
        texts: The texts; one that comes again is counted once.
        store: The store that an earlier call left; None where there is none.
        options: How the endpoint is asked.

    Raises:
        CorpusError: for texts above the limit, where they are refused.
    """
    seen_keys: set[int] = set()
    stored_keys: list[int] = []
    characters = 0
    # The lengths of the texts that are longer than the limit, before they are cut.
    lengths_above: list[int] = []
    sample = _Sample()
    for text, is_stored in _look_up(texts, store):
        if text.key in seen_keys:
            continue
        seen_keys.add(text.key)
        # A text above the limit is sent cut, unless such texts are refused.
        sent_text = options.sent_form(text.content)
        # A later call sends the sample again, to see whether the endpoint still gives the vectors that are stored. So
        # the sample is of all texts, stored ones too.
        sample.add(text.key, sent_text)
        if is_stored:
            stored_keys.append(text.key)
            continue
        characters += len(sent_text)
        if options.limit is not None:
            # The limit is on the whole text.
            length = options.limit.length(text.content)
            if length > options.limit.most:
                lengths_above.append(length)

    if lengths_above and options.cuts is None:
        assert options.limit is not None
        raise CorpusError(
            f"{len(lengths_above):,} of {counted(len(seen_keys), 'text')} are longer than --limit {options.limit} "
            f"(the longest has {max(lengths_above):,}), so nothing was sent; cut such texts with --too-long cut, "
            "or split the corpus into sentences with --set corpus.unit=sentence."
        )
    all_keys = np.array(sorted(seen_keys), dtype=np.int64)
    return Survey(
        all_keys,
        is_stored=np.isin(all_keys, stored_keys),
        characters=characters,
        cut=len(lengths_above),
        sample=sample.texts(),
    )


def _look_up(texts: Iterable[PlainText], store: Store | None) -> Iterator[tuple[PlainText, bool]]:
    """Iterate over texts, each with whether the store has it; without a store none is stored."""
    for batch in in_batches(texts, _TEXTS_AT_ONCE):
        if store is None:
            is_stored = [False] * len(batch)
        else:
            keys = np.array([text.key for text in batch], dtype=np.int64)
            is_stored = store.has(keys).tolist()
        yield from zip(batch, is_stored, strict=True)


class _Sample:
    """A random sample of distinct texts, the same one at each call: those with the lowest keys.

    Keys are hashes of the texts, so which keys are low has nothing to do with what the texts say.
    """

    def __init__(self) -> None:
        # Pairs of a negated key and its text. `heapq` takes the smallest member off a heap first. The smallest negated
        # key is that of the highest key, whose text is the one to drop.
        self._heap: list[tuple[int, str]] = []

    def add(self, key: int, sent_text: str) -> None:
        """Add a text in the form in which it is sent; if they are too many, drop the one with the highest key."""
        heapq.heappush(self._heap, (-key, sent_text))
        if len(self._heap) > _SAMPLE_SIZE:
            heapq.heappop(self._heap)

    def texts(self) -> list[PlainText]:
        """Return the texts of the sample."""
        return [PlainText(-negative_key, sent_text) for negative_key, sent_text in self._heap]


def in_batches(texts: Iterable[PlainText], size: int) -> Iterator[list[PlainText]]:
    """Iterate over texts in lists of some size; the last may be shorter."""
    iterator = iter(texts)
    while batch := list(islice(iterator, size)):
        yield batch


def announce(survey: Survey, client: EmbeddingsClient, options: EndpointOptions, console: Console) -> None:
    """Print how much text will go where, before any leaves this machine."""
    endpoint = client.endpoint
    total = len(survey.keys)
    if survey.unsent == 0:
        _print(console, f"Endpoint: nothing is sent, since the vectors of all {counted(total, 'text')} are stored")
        return
    line = f"Endpoint: {describe_sending(client, survey.unsent, survey.characters)}, for vectors of {endpoint.model}"
    if survey.unsent < total:
        line += f"; {total - survey.unsent:,} more are stored already"
    if survey.cut:
        line += f"; {survey.cut:,} are cut to {options.limit}"
    _print(console, line)
    if options.price is not None:
        tokens = survey.characters / _CHARACTERS_OF_TOKEN
        _print(console, f"  cost: {_cost_of(tokens, options.price)}, if a token has {_CHARACTERS_OF_TOKEN} characters")


def describe_sending(client: EmbeddingsClient, texts: int, characters: int) -> str:
    """Describe how much text goes where, with which key, and whether it is encrypted on its way."""
    endpoint = client.endpoint
    if endpoint.is_on_this_machine:
        place = f"to {endpoint.host} on this machine"
    elif endpoint.is_encrypted:
        place = f"to {endpoint.host}"
    else:
        place = f"to {endpoint.host}, not encrypted (http)"
    key = f"with the key in {endpoint.key_variable}" if client.has_key else "without a key"
    return f"{counted(texts, 'text')} ({characters:,} characters in all) go {place}, {key}"


def print_cost(console: Console, survey: Survey, texts: list[str], answer: Embeddings, price: float | None) -> None:
    """Print what all texts will cost, by the tokens that the endpoint counted in the first of them.

    Args:
        console: The console.
        survey: All texts.
        texts: The texts that were sent first, in the form in which they were sent.
        answer: The endpoint's answer to these, which may have their number of tokens.
        price: Price of a million tokens; None prints nothing.
    """
    if answer.tokens is None or price is None:
        return
    # All texts are expected to have as many tokens a character as the first ones.
    characters_of_first = sum(len(text) for text in texts)
    tokens = survey.characters * answer.tokens / characters_of_first
    _print(console, f"  cost: {_cost_of(tokens, price)}, by the tokens of the first {counted(len(texts), 'text')}")


def _cost_of(tokens: float, price: float) -> str:
    return f"about {tokens / _MILLION * price:,.4g} for {tokens:,.0f} tokens at {price:g} a million"


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
