"""`LabelledCorpus`: token rows of a labelled corpus, memory-mapped, and the raw text that was held out."""

from __future__ import annotations

from pathlib import Path

from limbeck.corpus.corpus import Corpus
from limbeck.corpus.labelled_settings import LabelledTask
from limbeck.errors import CorpusError


class LabelledCorpus(Corpus):
    """A finished labelled corpus, opened from its folder.

    `train` and `held_out` have the columns `input_ids`, `length`, `labels` (number of the class, value, or first and
    last token of the answer) and, where the tokenizer's model has segments, `token_type_ids`. A question has a row for
    every window of its context.

    `manifest` counts rows as `documents` and `held_out_documents`, and their distinct texts as `texts` and
    `held_out_texts`; `splits` counts token rows as `blocks`. `held_out_documents()` gives each held-out text once,
    followed by the second texts (questions) of its rows, a line each.

    Args:
        path: The folder that `build_labelled_corpus` made.

    Raises:
        CorpusError: if the folder is not a complete labelled corpus.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if "task" not in self.manifest:
            raise CorpusError(f"'{path}' is a corpus of text without labels: open it with Corpus.")
        self.task: LabelledTask = self.manifest["task"]

    def __repr__(self) -> str:
        return f"LabelledCorpus({self.task}, {len(self.train):,} rows, {self.tokens:,} tokens, {str(self.path)!r})"
