"""A short hash of texts, by which the content of a corpus is known again."""

import hashlib
from collections.abc import Iterable

DIGEST_BYTES = 12


def digest_of(texts: Iterable[str]) -> str:
    """Return a short hash of texts in their order."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        # The length before each text tells where it ends.
        digest.update(f"{len(text)} {text}".encode(errors="surrogatepass"))
    return digest.hexdigest()
