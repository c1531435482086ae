"""`WordNet`: definitions and example sentences of WordNet 3.0, which come with limbeck.

They are broad, plain English and the same on every machine, so that a first run needs no text and no download. The
file is written by `benchmarks/wordnet_text.py`; its licence lies beside it.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

from limbeck.core.hashing import hash_file
from limbeck.corpus.progress import StepProgress
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document

_FILE = Path(__file__).parent / "data" / "wordnet.txt.gz"


class WordNet:
    """The meanings of WordNet that have examples: a document each, with the definition as its title."""

    name = "wordnet"

    def fingerprint(self) -> Sequence[str]:
        """Return the name of the text and a hash of its file."""
        return [self.name, hash_file(_FILE)]

    def documents(
        self, report: SourceReport, progress: StepProgress | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents.

        Args:
            report: Receives nothing: the file has no faults and no repeats.
            progress: Called at the beginning and at the end, with the number of documents.
            cursor: Position at which reading begins: a number of documents.
        """
        if cursor is None:
            cursor = Cursor()
        # The source is a single shard, which was read to its end.
        if cursor.shard:
            return
        texts = gzip.decompress(_FILE.read_bytes()).decode().rstrip("\n").split("\n\n")
        if progress is not None:
            progress(0, len(texts), "documents")
        for number in range(cursor.position, len(texts)):
            definition, _, _ = texts[number].partition("\n")
            cursor.position = number + 1
            yield Document(texts[number], title=definition)
        if progress is not None:
            progress(len(texts), len(texts), "documents")
        cursor.move(cursor.shard + 1)
