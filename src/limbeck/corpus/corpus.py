"""`Corpus`: token blocks of a built corpus, memory-mapped, and the raw text that was held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets

from limbeck.core.files import read_manifest
from limbeck.corpus.document import Document
from limbeck.corpus.document_store import read_documents
from limbeck.corpus.mixing import Mix, RowMix
from limbeck.corpus.source_report import SourceReport, one_line
from limbeck.errors import CorpusError


class Corpus:
    """A finished corpus, opened from its folder.

    Args:
        path: The folder that `build_corpus` made.
        mix: The shares of its sources; `None` reads every row once an epoch.

    Attributes:
        path: The folder.
        manifest: Counts, settings, tokenizer and report of the build.
        train: Blocks to train on: columns `input_ids` and `length`.
        held_out: Blocks of the held-out documents, the same columns; empty when nothing is held out.

    Raises:
        CorpusError: if the folder is not a complete corpus.
    """

    def __init__(self, path: str | Path, mix: Mix | None = None) -> None:
        self.path = Path(path)
        self.mix = mix
        manifest = read_manifest(self.path)
        if manifest is None or "splits" not in manifest:
            raise CorpusError(f"'{path}' is not a complete corpus: build it with build_corpus.")
        self.manifest: dict[str, Any] = manifest
        self.train: datasets.Dataset = self._open("train")
        self.held_out: datasets.Dataset = self._open("held_out")

    @property
    def tokens(self) -> int:
        """Number of tokens to train on, special tokens included."""
        return int(self.manifest["splits"]["train"]["tokens"])

    @property
    def report(self) -> SourceReport:
        """What was passed over or repaired while the sources were read."""
        return SourceReport.from_dict(self.manifest["report"])

    def row_mix(self, seed: int) -> RowMix | None:
        """Return which rows an epoch has under the mix, or `None` without one.

        Args:
            seed: Decides what is drawn.

        Raises:
            CorpusError: if a source has no row to train on.
        """
        if self.mix is None:
            return None
        rows: list[int] = self.manifest["source_rows"]
        for number, count in enumerate(rows):
            if count == 0:
                name = self.manifest["settings"]["sources"][number]
                raise CorpusError(f"The source '{one_line(name)}' has no block to train on: leave it out of the mix.")
        return RowMix(rows, self.mix.shares(rows), seed)

    def held_out_documents(self) -> list[Document]:
        """Return the text of the held-out documents, in the order of the sources."""
        return list(read_documents(self.path))

    def __repr__(self) -> str:
        return f"Corpus({len(self.train):,} blocks, {self.tokens:,} tokens, {str(self.path)!r})"

    def _open(self, split: str) -> datasets.Dataset:
        files = sorted(self.path.glob(f"{split}-*.arrow"))
        # Opening the files themselves keeps the library's own cache out of it.
        parts = [datasets.Dataset.from_file(str(file)) for file in files]
        return datasets.concatenate_datasets([part for part in parts if len(part)] or parts[:1])
