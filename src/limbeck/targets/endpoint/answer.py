"""`read_answer`: what an endpoint answers to a batch of texts, as vectors in the order of the texts."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.errors import ModelError
from limbeck.targets.target_values import LEAST_LENGTH, MOST_LENGTH

_NUMBER_BYTES = np.dtype("<f4").itemsize
_LONGEST_ERROR = 200
"""Characters that are shown of an error."""


class Embeddings(NamedTuple):
    """The answer to a batch.

    Args:
        vectors: The vector of each text, `[texts, width]`.
        tokens: Tokens that the endpoint read, as it says; None where it does not say.
    """

    vectors: NDArray[np.float32]
    tokens: int | None


class UnfinishedAnswerError(Exception):
    """The body of an answer ends before its end, as when a connection breaks."""


def read_answer(body: bytes, texts: int) -> Embeddings:
    """Read the body of an answer.

    The API's form is `{"data": [{"index": 0, "embedding": [0.1, …]}, …], "usage": {"prompt_tokens": 9}}`. The vectors
    may come in any order; `index` says which text each belongs to. One may also be text: base64 of little-endian
    float32 numbers.

    Args:
        body: The body.
        texts: The number of texts that were sent.

    Raises:
        UnfinishedAnswerError: for a body that is cut off.
        ModelError: for an answer from which no vector of each text can be read.
    """
    answer = _parse(body)
    entries = answer.get("data")
    if entries is None and answer.get("error"):
        raise ModelError(f"the answer is an error in place of vectors: {_in_short(answer['error'])}.")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ModelError(
            "the answer has no list of vectors (data), so the server speaks another API than OpenAI's embeddings; "
            "check the address."
        )
    if len(entries) != texts:
        raise ModelError(f"the answer has {len(entries)} vectors for {texts} texts.")

    # For each entry of the answer the index of its text.
    indices = [entry.get("index") for entry in entries]
    are_numbers = all(type(index) is int for index in indices)
    if not are_numbers or sorted(indices) != list(range(texts)):
        raise ModelError(
            f"the answer does not say which vector belongs to which text: the indices of its {texts} vectors must "
            f"be 0 to {texts - 1}, each once, but they are {_shown(indices)}."
        )
    vectors: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * texts
    for index, entry in zip(indices, entries, strict=True):
        try:
            vectors[index] = _read_vector(entry.get("embedding"))
        except ModelError as error:
            raise ModelError(
                f"{str(error).rstrip('.')}, for text {index + 1} of a batch of {texts}; check whether the model "
                "can read that text, or give another --model."
            ) from None

    widths = sorted({len(vector) for vector in vectors})
    if len(widths) > 1:
        raise ModelError(
            f"the answer has vectors of different lengths ({' and '.join(map(str, widths))} numbers) for one batch."
        )
    return Embeddings(np.stack(vectors), _tokens_of(answer))


def _parse(body: bytes) -> dict[str, Any]:
    """Parse the JSON object of an answer."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        # An object that cannot be parsed was cut off. Anything else, such as a page of HTML, is no answer of the API.
        if not body or body.lstrip().startswith(b"{"):
            raise UnfinishedAnswerError from None
        answer = None
    if not isinstance(answer, dict):
        raise ModelError(
            "the answer is not a JSON object, so the address is probably not that of the server's API; check the "
            "address."
        )
    return answer


def _read_vector(value: Any) -> NDArray[np.float32]:
    """Read one vector, from a list of numbers or from base64.

    Raises:
        ModelError: for anything else, and for a vector that no student can learn.
    """
    vector = _decode(value) if isinstance(value, str) else _from_list(value)
    if not np.isfinite(vector).all():
        raise ModelError("the answer has a vector with numbers that are not finite.")
    if not vector.any():
        raise ModelError("the answer has a vector of only zeros, which has no direction to learn.")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not LEAST_LENGTH <= length <= MOST_LENGTH:
        raise ModelError(f"the answer has a vector of length {length:.3g}, whose direction cannot be computed.")
    return vector


def _from_list(value: Any) -> NDArray[np.float32]:
    """Return a list of numbers as a vector."""
    refusal = ModelError("the answer has a vector (embedding) that is not a list of numbers.")
    if not isinstance(value, list) or not value:
        raise refusal
    try:
        numbers = np.asarray(value)
    except ValueError:
        # The list has lists in it, of different lengths.
        raise refusal from None
    # The kinds are integers, unsigned integers and floats. A list with a text or null has another kind.
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise refusal
    # A number too large for float32 becomes infinite, which is refused later.
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def _decode(text: str) -> NDArray[np.float32]:
    """Decode base64 of little-endian float32 numbers."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content or len(content) % _NUMBER_BYTES:
        raise ModelError("the answer has a vector (embedding) that is text, but not float32 numbers in base64.")
    return np.frombuffer(content, dtype="<f4").astype(np.float32)


def _tokens_of(answer: dict[str, Any]) -> int | None:
    """Return how many tokens the endpoint says that it read."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    for name in ("prompt_tokens", "total_tokens"):
        tokens = usage.get(name)
        # Some servers write 0 where they do not count.
        if type(tokens) is int and tokens > 0:
            return tokens
    return None


def _in_short(error: Any) -> str:
    """Return what an endpoint says of an error, in one short line: its message, or all of it."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error = error["message"]
    text = error if isinstance(error, str) else json.dumps(error, default=str)
    return " ".join(text.split())[:_LONGEST_ERROR].rstrip(".")


def _shown(indices: list[Any]) -> str:
    """Return indices in words, shortened where they are many."""
    most = 8
    shown = ", ".join(json.dumps(index, default=str)[:20] for index in indices[:most])
    return f"{shown}, …" if len(indices) > most else shown
