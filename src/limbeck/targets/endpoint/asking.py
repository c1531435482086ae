"""`ask_for`: several batches of texts under way at an endpoint at the same time, in threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from limbeck.targets.endpoint.answer import Embeddings
from limbeck.targets.endpoint.client import EmbeddingsClient
from limbeck.targets.endpoint.pace import StoppedError


class HasTexts(Protocol):
    """A batch of texts."""

    @property
    def texts(self) -> list[str]:
        """The texts that are sent."""


BatchT = TypeVar("BatchT", bound=HasTexts)


@dataclass(frozen=True)
class _Answered(Generic[BatchT]):
    """A batch with its answer, or with the error in place of it."""

    batch: BatchT
    answer: Embeddings | None = None
    error: BaseException | None = None


def ask_for(
    batches: Iterator[BatchT], client: EmbeddingsClient, concurrency: int
) -> Iterator[tuple[BatchT, Embeddings]]:
    """Iterate over batches with their answers, in the order in which the answers come.

    After an error no further batch is sent. The answers of those that are under way still come, and then the error is
    raised. Where the iteration ends early, as by Ctrl-C, answers that are under way are lost.

    Args:
        batches: The batches; at most `concurrency` are taken before their answers.
        client: Asks the endpoint.
        concurrency: Most batches under way.

    Raises:
        ModelError: the first error of the client.
    """
    to_send: SimpleQueue[BatchT | None] = SimpleQueue()
    answered: SimpleQueue[_Answered[BatchT]] = SimpleQueue()

    def work() -> None:
        # None in place of a batch ends the thread.
        while (batch := to_send.get()) is not None:
            try:
                answered.put(_Answered(batch, client.embed(batch.texts)))
            except BaseException as error:
                answered.put(_Answered(batch, error=error))

    # The threads are daemons, so that one that waits for an answer does not keep the process from ending.
    for _ in range(concurrency):
        threading.Thread(target=work, daemon=True).start()
    first_error: BaseException | None = None
    under_way = 0
    try:
        for batch in islice(batches, concurrency):
            to_send.put(batch)
            under_way += 1
        while under_way > 0:
            done = answered.get()
            under_way -= 1
            if done.answer is not None:
                yield done.batch, done.answer
            elif first_error is None:
                first_error = done.error
                # Attempts that wait to be made again are given up.
                client.pace.stop()
            # An answer makes room for the next batch, if there is one.
            if first_error is None:
                for batch in islice(batches, 1):
                    to_send.put(batch)
                    under_way += 1
    finally:
        client.pace.stop()
        for _ in range(concurrency):
            to_send.put(None)
    if first_error is not None and not isinstance(first_error, StoppedError):
        raise first_error
