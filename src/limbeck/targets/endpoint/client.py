"""`EmbeddingsClient`: asks an endpoint for the vectors of a batch of texts, again where a failure may pass.

It uses the standard library's `urllib`, which follows the proxies of the environment. Redirections are not followed,
since the key would go with them.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from limbeck.core.blocks import duration
from limbeck.errors import ModelError, shorten_error
from limbeck.targets.endpoint.address import Endpoint
from limbeck.targets.endpoint.answer import Embeddings, UnfinishedAnswerError, read_answer
from limbeck.targets.endpoint.pace import Pace
from limbeck.version import __version__

FIRST_WAIT_SECONDS = 1.0
"""Seconds before the second attempt; each further wait is twice as long."""
LONGEST_WAIT_SECONDS = 60.0
"""Longest wait between two attempts where the endpoint names none."""
MOST_ATTEMPTS = 8
"""Attempts at a batch: with the waits between them about two minutes."""
_LONGEST_ASKED_WAIT_SECONDS = 3600.0
"""Longest wait that an endpoint may ask for (Retry-After); it is rather told to the user above this."""
_LARGEST_ANSWER_BYTES = 2**29
_READ_BYTES = 2**20
"""Most bytes that are read at once."""
_LARGEST_REFUSAL_BYTES = 10_000
_LONGEST_REASON = 200
"""Characters that are shown of what a server says of a refusal."""
_TOO_MANY_REQUESTS = 429
_PASSING_STATUS = (408, _TOO_MANY_REQUESTS)
_WAYS_OUT = {
    400: "where a text is too long for the model, give --limit and --too-long cut; where the batch is, a smaller "
    "--batch-size",
    401: "set its key in the environment variable {key_variable}, or name another with --key-variable",
    403: "set its key in the environment variable {key_variable}, or name another with --key-variable",
    404: "the address may lack /v1 at its end, or --model may have another name there",
    413: "give a smaller --batch-size; where a text is too long for the model, give --limit and --too-long cut",
    422: "give a smaller --batch-size; where a text is too long for the model, give --limit and --too-long cut",
}
"""What the user may do, by the status of a refusal."""


class _PassingError(Exception):
    """A failure that may be gone at the next attempt.

    Args:
        reason: What happened, as the end of "The endpoint …".
        wait: Seconds that the endpoint asks to wait for; 0 where it names none.
    """

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait


class _NoRedirection(HTTPRedirectHandler):
    """Follows no redirection, so that it becomes an error with its status."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request."""


class EmbeddingsClient:
    """Asks one endpoint; several threads may share it.

    Args:
        endpoint: The endpoint.
        pace: When requests may go.
        timeout: Seconds for the whole of an answer, after which an attempt has failed.
        notice: Called with a line for each wait before a further attempt.

    Attributes:
        width: The width that vectors must have; None before it is known.

    Raises:
        ModelError: for a key that no header can hold.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        pace: Pace,
        *,
        timeout: float = 60.0,
        notice: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.endpoint = endpoint
        self.pace = pace
        self.width: int | None = None
        self._timeout = timeout
        self._notice = notice
        self._key = endpoint.read_key()
        handlers: list[Any] = [_NoRedirection()]
        if endpoint.is_on_this_machine:
            # A proxy would look for the server on its own machine.
            handlers.append(ProxyHandler({}))
        self._opener = build_opener(*handlers)
        # Until the endpoint has answered once, an address that cannot be reached is rather wrong than out of order.
        self._has_answered = False

    @property
    def has_key(self) -> bool:
        """Whether requests have a key."""
        return self._key is not None

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors of some texts, in their order.

        Failures that may pass are tried again, `MOST_ATTEMPTS` times in all: 429 and 408, 500 to 599, broken
        connections, answers that are cut off, and answers that do not come in time.

        Raises:
            ModelError: for a refusal, an answer that cannot be used, and a failure that does not pass.
            StoppedError: once the pace was stopped.
        """
        body = json.dumps({"model": self.endpoint.model, "input": list(texts), "encoding_format": "float"}).encode()
        reason = ""
        for attempt in range(MOST_ATTEMPTS):
            self.pace.wait()
            try:
                return self._read(self._post(body), len(texts))
            except _PassingError as error:
                reason = error.reason
                wait = error.wait
            # Twice as long after each attempt, and at least as long as the endpoint asks for.
            wait = max(wait, min(FIRST_WAIT_SECONDS * 2**attempt, LONGEST_WAIT_SECONDS))
            is_last = attempt + 1 == MOST_ATTEMPTS
            if not is_last:
                self.pace.pause(wait)
                self._notice(f"The endpoint {reason}; the next attempt is in {duration(wait)}.")
        raise self._error(
            f"{reason}, {MOST_ATTEMPTS} times in a row; run the same command again later, which continues where "
            "this one stopped."
        )

    def _read(self, body: bytes, texts: int) -> Embeddings:
        """Read the vectors of an answer, which have to be as wide as those in the store."""
        try:
            answer = read_answer(body, texts)
        except UnfinishedAnswerError:
            raise _PassingError("sent only a part of its answer") from None
        except ModelError as error:
            raise self._error(f"cannot be used: {error}") from None
        width = answer.vectors.shape[1]
        if self.width not in (None, width):
            raise self._error(
                f"answers with vectors of {width} numbers, but the vectors in the store have {self.width}, so it "
                "has another model; give another --output."
            )
        self._has_answered = True
        return answer

    def _post(self, body: bytes) -> bytes:
        """Send a request, and return the body of the answer."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": f"limbeck/{__version__}",
        }
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        request = Request(self.endpoint.embeddings_url, data=body, headers=headers)
        try:
            latest = time.monotonic() + self._timeout
            with self._opener.open(request, timeout=self._timeout) as response:
                answer = _read_until(response, latest)
        except HTTPError as error:
            with error:
                raise self._error_of_status(error) from None
        except (OSError, HTTPException) as error:
            raise self._error_of_connection(error) from None
        if len(answer) > _LARGEST_ANSWER_BYTES:
            raise self._error("answers with more than 500 MB for one batch of texts; give a smaller --batch-size.")
        return answer

    def _error_of_status(self, error: HTTPError) -> Exception:
        """Return the error for an answer whose status is no success."""
        status = error.code
        in_words = f"{status} {error.reason}".strip()
        is_passing = status in _PASSING_STATUS or 500 <= status < 600
        if is_passing:
            wait = _seconds_of(error.headers.get("Retry-After"))
            if wait > _LONGEST_ASKED_WAIT_SECONDS:
                return self._error(
                    f"answers {in_words}, and wants no request for {duration(wait)}; run the same command again "
                    "then, which continues where this one stopped."
                )
            return _PassingError(f"answers {in_words}", wait)
        if 300 <= status < 400:
            return self._error(
                f"answers {in_words}: it sends requests on to another address, which limbeck does not follow with "
                "texts and a key; give that address as --endpoint."
            )
        reason = self._without_key(_message_of(error))
        line = f"answers {in_words}"
        if reason:
            line += f" ({reason})"
        way_out = _WAYS_OUT.get(status, "see its documentation").format(key_variable=self.endpoint.key_variable)
        return self._error(f"{line}; {way_out}.")

    def _error_of_connection(self, error: OSError | HTTPException) -> Exception:
        """Return the error for a connection that cannot be made, or breaks."""
        cause: Any = error
        if isinstance(error, URLError) and isinstance(error.reason, Exception):
            cause = error.reason
        reason = self._without_key(shorten_error(cause))
        if isinstance(cause, TimeoutError):
            return _PassingError(f"sent no whole answer in {duration(self._timeout)}")
        if isinstance(cause, ssl.SSLCertVerificationError):
            return self._error(f"has no certificate that can be trusted ({reason}).")
        cannot_be_reached = isinstance(cause, ConnectionRefusedError | socket.gaierror | ssl.SSLError)
        if cannot_be_reached and not self._has_answered:
            return self._error(f"cannot be reached ({reason}); check the address, and whether the server runs.")
        return _PassingError(f"broke the connection ({reason})")

    def _without_key(self, text: str) -> str:
        """Return a text of the server without the key, which some servers repeat."""
        if self._key is None:
            return text
        return text.replace(self._key, "…")

    def _error(self, predicate: str) -> ModelError:
        return ModelError(f"The endpoint {self.endpoint.title} {predicate}")


def _read_until(response: HTTPResponse, latest: float) -> bytes:
    """Read the body of an answer, up to one byte more than the largest.

    Args:
        response: The answer.
        latest: The moment (`time.monotonic`) after which no more is read. The timeout of a connection counts from one
            byte to the next, so a server that sends a few bytes at a time would never reach it.

    Raises:
        TimeoutError: for a body that does not end by that moment.
    """
    parts: list[bytes] = []
    size = 0
    while size <= _LARGEST_ANSWER_BYTES:
        part = response.read1(_READ_BYTES)
        if not part:
            # `read1` does not say that a connection has ended too early.
            if response.length:
                raise IncompleteRead(b"", response.length)
            break
        parts.append(part)
        size += len(part)
        if time.monotonic() > latest:
            raise TimeoutError
    return b"".join(parts)


def _seconds_of(retry_after: str | None) -> float:
    """Return the seconds of a header Retry-After: a number, or a date of HTTP; 0 where it is neither."""
    if retry_after is None:
        return 0.0
    text = retry_after.strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _message_of(error: HTTPError) -> str:
    """Return what a server says of a refusal, in one short line; empty where it says nothing that can be shown."""
    try:
        body = error.read(_LARGEST_REFUSAL_BYTES)
    except (OSError, HTTPException):
        return ""
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # A page of HTML says nothing in one line.
        return "" if "<" in text else _in_one_line(text)
    # The message of {"error": {"message": …}} of OpenAI and vLLM, {"error": …} of others, {"message": …}, or
    # {"detail": …}: each key that is there leads one level down.
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    if not isinstance(value, str):
        value = json.dumps(value)
    return _in_one_line(value)


def _in_one_line(text: str) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"
