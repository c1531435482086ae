"""The neighbours of words on disk, so that word vectors are read only once for the copies of all rows.

The neighbours of a word are the words with the nearest word vectors. Augmentation puts one of them in place of a word
that the masked language model cannot predict, since the word is more than one token of the model.
"""

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
from limbeck.corpus.settings import Augmentation, ModelName
from limbeck.corpus.source_report import SourceReport

# Name of this piece of the cache folder, by which a build that was killed finds that it was finished.
_NAME = "neighbours"
_FILE = f"{_NAME}.json"
_WORDS_OF_RELEASED = 100_000
"""Words that the released algorithm reads of a file of word vectors."""


def store_neighbours(
    words: Sequence[str],
    settings: Augmentation,
    model: MaskedLanguageModel | None,
    folder: Path,
    progress: Progress | None,
) -> SourceReport:
    """Find the neighbours of every word that the model does not predict, and write them to a folder.

    If a build that was killed has written them already, nothing is done.

    Args:
        words: All words that may be replaced.
        settings: The word vectors, and the number of neighbours of a word. Without vectors, every word gets an empty
            list, so that it is never replaced.
        model: Predicts the words that are a single token. With None, all words get neighbours.
        folder: The folder in the cache that the build writes.
        progress: Called before the work, which may take minutes.

    Returns:
        The report of words without a vector, and of lines of the file of vectors that are skipped.
    """
    finished = read_piece(folder, _NAME)
    if finished is not None:
        return SourceReport.from_dict(finished["report"])
    step = step_progress(progress, "looking for similar words")
    if step is not None:
        step(0, None, "words")

    words_with_neighbours = words
    if model is not None and words:
        needs_neighbours = model.needs_neighbours(words)
        words_with_neighbours = [word for word, is_needed in zip(words, needs_neighbours, strict=True) if is_needed]

    report = SourceReport()
    neighbours: dict[str, list[str]] = {word: [] for word in words_with_neighbours}
    if settings.word_vectors is not None:
        most_words = _WORDS_OF_RELEASED if settings.algorithm == "released" else None
        vectors = _open_vectors(settings.word_vectors, report, most_words)
        neighbours = nearest_words(vectors, words_with_neighbours, settings.candidates)
        for word, nearest in neighbours.items():
            if not nearest:
                report.note("word without a word vector, never replaced", word)

    (folder / _FILE).write_text(json.dumps(neighbours, ensure_ascii=False), encoding="utf-8")
    finish_piece(folder, _NAME, [_FILE], {"report": report.to_dict()})
    return report


# The rows of one data set are copied piece by piece: each process reads the neighbours for its first piece alone.
@lru_cache(maxsize=1)
def read_neighbours(folder: Path) -> dict[str, list[str]]:
    """Return the neighbours that `store_neighbours` wrote to a folder."""
    neighbours: dict[str, list[str]] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return neighbours


def _open_vectors(place: ModelName | str, report: SourceReport, most_words: int | None) -> WordVectors:
    """Return the word vectors in a file, or those in the embedding matrix of a model.

    Args:
        place: Path of the file, or name and revision of the model.
        report: Receives the lines of the file that are skipped, as they are read.
        most_words: The number of words that are read of a file; None reads all.
    """
    if isinstance(place, str):
        return VectorFile(Path(place), report, most_words)
    return ModelVectors(place)
