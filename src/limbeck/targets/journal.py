"""The journal of a store: rows that were computed and wait to become a file, batch by batch.

Each batch is written at once, behind its length and its hash. A process that is killed leaves at most one batch that is
not whole, which is left out when the journal is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import xxhash
from safetensors.numpy import load, save

from limbeck.targets.row_files import Tensors

# A batch in the file is its length, its hash, and its content in the form of safetensors.
_LENGTH_BYTES = 8
_HASH_BYTES = 16


class Journal:
    """A journal that batches are added to.

    Args:
        path: Its file; batches go behind those that it has.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)

    def add(self, tensors: Tensors) -> None:
        """Add a batch."""
        content = save(tensors)
        # The file is not buffered, so the batch is with the system when this returns.
        head = len(content).to_bytes(_LENGTH_BYTES, "little") + xxhash.xxh3_128(content).digest()
        self._file.write(head + content)

    def clear(self) -> None:
        """Remove all batches, once they are in a file."""
        self._file.truncate(0)

    def close(self) -> None:
        """Close the journal, and remove it if it is empty."""
        # The position in the file stays where it was when `clear` cuts the file, so the size decides then.
        is_empty = self._file.tell() == 0 or self._path.stat().st_size == 0
        self._file.close()
        if is_empty:
            self._path.unlink(missing_ok=True)


def read_journal(path: Path) -> Iterator[Tensors]:
    """Iterate over the whole batches of a journal; a batch that was half written ends it.

    A batch is the length of its content, a hash of the content, and the content.
    """
    with path.open("rb") as file:
        while head := file.read(_LENGTH_BYTES + _HASH_BYTES):
            length = int.from_bytes(head[:_LENGTH_BYTES], "little")
            remaining = path.stat().st_size - file.tell()
            # A head that was half written is too short, and content that was half written is shorter than its length.
            if len(head) < _LENGTH_BYTES + _HASH_BYTES or length > remaining:
                return
            content = file.read(length)
            if xxhash.xxh3_128(content).digest() != head[_LENGTH_BYTES:]:
                return
            yield load(content)
