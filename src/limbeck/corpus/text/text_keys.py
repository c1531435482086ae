"""`text_key`: a number by which what a teacher said of a text is found again, in any corpus and any process."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TEXT_KEY = "text_key"
"""Column of the key of each row's text, in corpora that have it and in their batches."""

_KEY_BYTES = 8


def text_key(
    text: str, *, pair: str | None = None, prompt: str = "", cut_to: Sequence[int] | NDArray[np.int32] | None = None
) -> int:
    """Return the key of a text: equal inputs have equal keys, and a change of any of them changes the key.

    A key has 64 bits. Among ten million texts the chance that any two share one is about three in a million.

    Args:
        text: The text, cleaned as corpora clean it (`limbeck.corpus.text.documents.clean_text`).
        pair: The second text of a pair.
        prompt: The text that the teacher reads before it.
        cut_to: For a part of a text that is too long for a row: the token ids of this part. None for a whole text,
            whose key does not depend on any tokenizer.

    Returns:
        A whole number that fits into a signed 64-bit integer.
    """
    digest = hashlib.blake2b(digest_size=_KEY_BYTES)
    pair_text = "" if pair is None else pair
    # Each part goes in behind its length, so that text cannot move from one part to the next unnoticed.
    for part in (prompt, text, pair_text):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(_KEY_BYTES, "little"))
        digest.update(encoded)
    digest.update(b"single" if pair is None else b"pair")
    if cut_to is not None:
        digest.update(np.asarray(cut_to, dtype=np.int64).tobytes())
    return int.from_bytes(digest.digest(), "little", signed=True)
