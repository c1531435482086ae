"""The neighbours of words on disk: word vectors are read once, for the copies of all rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from limbeck.core.cache import finish_piece, read_piece
from limbeck.corpus.augmentation.masked_words import MaskedLanguageModel
from limbeck.corpus.augmentation.nearest_words import nearest_words
from limbeck.corpus.augmentation.word_vectors import ModelVectors, VectorFile, WordVectors
from limbeck.corpus.progress import Progress, step_progress
from limbeck.corpus.settings import Augmentation
from limbeck.corpus.source_report import SourceReport

_NAME = "neighbours"
_FILE = f"{_NAME}.json"


def store_neighbours(
    words: Sequence[str],
    settings: Augmentation,
    model: MaskedLanguageModel | None,
    folder: Path,
    progress: Progress | None,
) -> SourceReport:
    """Write the neighbours of every word that no model predicts to a folder, unless a killed builder has.

    Args:
        words: All words that may be replaced.
        settings: The word vectors, and how many neighbours a word has; without vectors none has any.
        model: Predicts the words that are a single token; None predicts none.
        folder: The folder.
        progress: Called before the work, which may take minutes.

    Returns:
        The report of words without a vector, and of lines of the vectors that are skipped.
    """
    finished = read_piece(folder, _NAME)
    if finished is not None:
        return SourceReport.from_dict(finished["report"])
    step = step_progress(progress, "looking for similar words")
    if step is not None:
        step(0, None, "words")

    if model is not None and words:
        needed = model.needs_neighbours(words)
        words = [word for word, is_needed in zip(words, needed, strict=True) if is_needed]

    report = SourceReport()
    neighbours: dict[str, list[str]] = {word: [] for word in words}
    place = settings.word_vectors
    if place is not None:
        vectors: WordVectors = VectorFile(Path(place), report) if isinstance(place, str) else ModelVectors(place)
        neighbours = nearest_words(vectors, words, settings.candidates)
        for word, nearest in neighbours.items():
            if not nearest:
                report.note("word without a word vector, never replaced", word)

    (folder / _FILE).write_text(json.dumps(neighbours, ensure_ascii=False), encoding="utf-8")
    finish_piece(folder, _NAME, [_FILE], {"report": report.to_dict()})
    return report


@lru_cache(maxsize=1)
def read_neighbours(folder: Path) -> dict[str, list[str]]:
    """Return the neighbours that `store_neighbours` wrote, read once a process."""
    neighbours: dict[str, list[str]] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return neighbours
