"""`PlainTexts`: the texts of a corpus, for a reader that has no tokenizer, such as a server of embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.building.cache_root import cache_root
from limbeck.corpus.progress import Progress
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.stored.arrow_files import document_files, documents_of, read_batches
from limbeck.corpus.stored.stored_documents import store_documents
from limbeck.corpus.text.pieces import cut_document
from limbeck.corpus.text.text_keys import text_key


class PlainText(NamedTuple):
    """A text as a reader gets it.

    Args:
        key: Its key, see `text_key`.
        content: The prompt of its role, and the text behind it.
    """

    key: int
    content: str


class PlainTexts:
    """The pieces of all documents of a corpus, each whole, with the prompts of their sources before them.

    A corpus of tokens (`build_corpus`) has the same texts, and each that fits into one of its blocks has the same key
    there. A text may come several times.

    Args:
        settings: The sources, the units that documents are cut into, and the prompts.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        progress: Called while the sources are read.

    Attributes:
        documents: Number of documents.

    Raises:
        CorpusError: for a source that is missing, unreadable or empty.
    """

    def __init__(
        self, settings: CorpusSettings, *, cache_dir: str | Path | None = None, progress: Progress | None = None
    ) -> None:
        self._settings = settings
        self._folder, manifest = store_documents(settings, cache_root(cache_dir), progress=progress)
        self.documents: int = manifest["documents"]
        # The index of the source of each file, in the order of the files.
        self._sources: list[int] = manifest["shards"]

    def __iter__(self) -> Iterator[PlainText]:
        """Yield each text with its key, in the order of the files; of translations the text that the teacher reads."""
        for path, source in zip(self._files, self._sources, strict=True):
            prompt = ""
            units: tuple[str, ...] = ()
            # Without uses no source has a prompt or units of its own.
            if self._settings.uses:
                prompt = self._settings.uses[source].prompt
                units = self._settings.uses[source].units
            for records in read_batches(path):
                for document in documents_of(records):
                    for piece in cut_document(document, self._settings.unit, units):
                        text = piece.teacher_text or piece.text
                        yield PlainText(text_key(text, prompt=prompt), prompt + text)

    @cached_property
    def _files(self) -> list[Path]:
        return document_files(self._folder)
