"""`fill_store`: texts are sent to an endpoint, and the vectors that it answers are stored.

Only texts that the store lacks are sent. Each answer is in the store as soon as it has come, so that a call that was
stopped goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from limbeck.core.folders import writing
from limbeck.core.hashing import fingerprint
from limbeck.core.progress import Count
from limbeck.core.progress_bars import ProgressBar
from limbeck.corpus.building.plain_texts import PlainText
from limbeck.targets.endpoint.asking import ask_for
from limbeck.targets.endpoint.client import EmbeddingsClient
from limbeck.targets.endpoint.options import STREAM, EndpointOptions
from limbeck.targets.endpoint.sample import write_sample
from limbeck.targets.endpoint.survey import Survey, announce, in_batches, print_cost, survey_texts
from limbeck.targets.facts import STORE_FACTS, EndpointFacts, StoreFacts, read_facts, write_facts
from limbeck.targets.store import Store
from limbeck.targets.writer import StoreWriter, hold_store_alone, open_store


@dataclass(frozen=True)
class FilledStore:
    """What a call of `fill_store` did.

    Args:
        rows: Rows of the store.
        sent: Texts that were sent and answered.
        cut: Texts among them that were cut to the limit.
        seconds: Time from the first request to the last answer.
        tokens: Tokens that the endpoint counted; 0 where it counts none.
    """

    rows: int
    sent: int = 0
    cut: int = 0
    seconds: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class _TextBatch:
    """The texts of a request, with their keys, `[texts]`."""

    keys: NDArray[np.int64]
    texts: list[str]


def fill_store(
    texts: Iterable[PlainText],
    client: EmbeddingsClient,
    folder: Path,
    options: EndpointOptions,
    console: Console,
) -> FilledStore:
    """Store an endpoint's vectors of all texts.

    Args:
        texts: The texts. They are iterated over twice, since they are counted before anything is sent.
        client: Asks the endpoint.
        folder: The folder of the store.
        options: How the endpoint is asked.
        console: Where progress goes.

    Raises:
        CorpusError: for texts above the limit, where they are refused.
        OutputError: for a folder with other outputs, and one that another process writes to.
        ModelError: for an endpoint that refuses, or gives no vectors that can be used. All that it answered before is
            in the store.
    """
    with hold_store_alone(folder):
        return _fill(texts, client, folder, options, console)


def _fill(
    texts: Iterable[PlainText], client: EmbeddingsClient, folder: Path, options: EndpointOptions, console: Console
) -> FilledStore:
    """Fill a store that this process holds; see `fill_store`."""
    store = _stored_before(folder, client, options)
    survey = survey_texts(texts, store, options)
    announce(survey, client, options, console)
    batches = _batches_of(texts, survey, options)
    first_batch = next(batches, None)
    if first_batch is None:
        # All texts are stored: no corpus is without any text.
        assert store is not None
        _update_terms(folder, options.terms)
        write_sample(folder, survey.sample)
        return FilledStore(len(store))

    # The first answer says how wide the vectors are, which a new store has to know. This batch is asked for alone, so
    # that a wrong address, key or name costs one request.
    start = time.perf_counter()
    first_answer = client.embed(first_batch.texts)
    client.width = first_answer.vectors.shape[1]
    open_store(folder, _facts_of(client, client.width, options))
    _update_terms(folder, options.terms)
    write_sample(folder, survey.sample)

    sent = 0
    tokens = 0
    further_answers = ask_for(batches, client, options.concurrency)
    with ProgressBar(console) as bar, StoreWriter(folder) as writer:
        for batch, answer in chain([(first_batch, first_answer)], further_answers):
            writer.add(batch.keys, {STREAM: answer.vectors})
            sent += len(batch.keys)
            tokens += answer.tokens or 0
            bar(sent / survey.unsent, "targets", Count(sent, "texts"))
            if batch is first_batch:
                print_cost(console, survey, batch.texts, answer, options.price)
    seconds = time.perf_counter() - start
    return FilledStore(len(Store(folder)), sent=sent, cut=survey.cut, seconds=seconds, tokens=tokens)


def _facts_of(client: EmbeddingsClient, width: int, options: EndpointOptions) -> StoreFacts:
    """Return the facts of a store of an endpoint's vectors."""
    endpoint = client.endpoint
    cut_to = "" if options.cuts is None else str(options.cuts)
    return StoreFacts(
        teacher=endpoint.title,
        # A hash of all that decides the vector of a text, but for its prompt, which is a part of the text's key.
        weights=fingerprint([endpoint.url, endpoint.model, cut_to]),
        streams={STREAM: width},
        number_format=options.number_format,
        prompts=options.prompts,
        endpoint=EndpointFacts(url=endpoint.url, model=endpoint.model, terms=options.terms, cut_to=cut_to),
    )


def _stored_before(folder: Path, client: EmbeddingsClient, options: EndpointOptions) -> Store | None:
    """Open the store that an earlier call left, and let the client know its width; None where there is none.

    Raises:
        OutputError: for a store of other outputs.
    """
    if not (folder / STORE_FACTS).is_file():
        return None
    width = read_facts(folder).streams.get(STREAM, 0)
    client.width = width
    return open_store(folder, _facts_of(client, width, options))


def _update_terms(folder: Path, terms: str) -> None:
    """Write terms into a store that has other ones, or none."""
    facts = read_facts(folder)
    assert facts.endpoint is not None
    if terms and terms != facts.endpoint.terms:
        with writing(folder):
            write_facts(folder, replace(facts, endpoint=replace(facts.endpoint, terms=terms)))


def _batches_of(texts: Iterable[PlainText], survey: Survey, options: EndpointOptions) -> Iterator[_TextBatch]:
    """Iterate over the batches of texts that are sent, each text once."""
    for batch in in_batches(_unsent(texts, survey), options.batch_size):
        keys = np.array([text.key for text in batch], dtype=np.int64)
        yield _TextBatch(keys, [options.sent_form(text.content) for text in batch])


def _unsent(texts: Iterable[PlainText], survey: Survey) -> Iterator[PlainText]:
    """Iterate over the texts that are not stored yet; one that comes again is left out."""
    # For each key of the survey whether its text is stored, or was among these texts before.
    is_done = survey.is_stored.copy()
    for text in texts:
        # The keys are sorted, and the key of each text is among them.
        index = np.searchsorted(survey.keys, text.key)
        if not is_done[index]:
            is_done[index] = True
            yield text
