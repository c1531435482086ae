"""Vocabularies made of the text of a corpus: WordPieces that are trained on it, or the pieces that it uses most.

Both are kept in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.corpus.building.cache_root import cache_root
from limbeck.corpus.building.splitting import TRAINED, held_out_bound, rows_with_roles, split_rows
from limbeck.corpus.progress import Progress, waiting_notice
from limbeck.corpus.rows.row_kind import RowKind
from limbeck.corpus.settings import CorpusSettings, LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import document_files, documents_of, read_batches, row_files
from limbeck.corpus.stored.stored_documents import store_documents
from limbeck.corpus.stored.stored_rows import DevelopmentRows, store_development, store_rows
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from limbeck.models.piece_choice import PieceAim

VOCABULARY_FORMAT = 1
"""Raise it when the same corpus would give another text or tokenizer: older caches are then built anew."""
PIECES_FORMAT = "pieces 2"
"""Change it when the same corpus would give another text, or the same text other pieces."""


def build_vocabulary(
    settings: CorpusSettings | LabelledSettings,
    words: int,
    *,
    kind: RowKind | None = None,
    lowercase: bool = True,
    has_segments: bool = True,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Train a tokenizer on the text of a corpus that is not held out, and return its folder in the cache.

    Args:
        settings: The sources; how their text is cut does not matter.
        words: Number of tokens, special ones among them.
        kind: The kind of the task of labelled rows; None for text without labels.
        lowercase: Lower the case of all text, as BERT's uncased tokenizers do.
        has_segments: Whether the model tells the two texts of a pair apart.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        progress: Called with the name of the step, the amount done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing or unreadable, or is a stream.
        ModelError: for a text that does not give so many tokens.
    """
    cache = cache_root(cache_dir)
    text = _text_of(settings, kind, cache, progress)
    options = {"words": words, "lowercase": lowercase, "segments": has_segments}
    folder = cache / "vocabularies" / fingerprint([VOCABULARY_FORMAT, *text.identity, options])

    def build(aside: Path) -> dict[str, Any]:
        from limbeck.models.wordpieces import train_wordpieces  # It imports transformers, which takes seconds.

        tokenizer = train_wordpieces(text.read, words, lowercase=lowercase, has_segments=has_segments)
        tokenizer.save_pretrained(str(aside))
        return {"format": VOCABULARY_FORMAT, **options}

    build_once(folder, build, waiting=waiting_notice(progress, "waiting for another process that trains a vocabulary"))
    return folder


def choose_text_pieces(
    settings: CorpusSettings | LabelledSettings,
    tokenizer: PreTrainedTokenizerBase,
    aim: PieceAim,
    *,
    kind: RowKind | None = None,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> list[int]:
    """Choose the pieces of a tokenizer that the text of a corpus uses most, of which nothing is held out.

    Args:
        settings: The sources; how their text is cut does not matter.
        tokenizer: A fast tokenizer.
        aim: How many pieces stay.
        kind: The kind of the task of labelled rows; None for text without labels.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        progress: Called with the name of the step, the amount done, the total or `None`, and what is counted.

    Returns:
        The ids of the pieces, rising.

    Raises:
        CorpusError: if a source is missing or unreadable, or is a stream.
        ModelError: see `limbeck.models.piece_choice.choose_pieces`.
    """
    cache = cache_root(cache_dir)
    text = _text_of(settings, kind, cache, progress)
    options = {"pieces": aim.pieces, "coverage": aim.coverage, "words": list(aim.words)}
    identity = [PIECES_FORMAT, *text.identity, TokenEncoder(tokenizer).fingerprint(), options]
    folder = cache / "vocabularies" / fingerprint(identity)

    def build(aside: Path) -> dict[str, Any]:
        from limbeck.models.piece_choice import PieceCounts, choose_pieces
        from limbeck.models.vocabulary_cut import Pieces

        counted = PieceCounts(tokenizer)
        counted.add(text.read())
        chosen = choose_pieces(Pieces(tokenizer), tokenizer, counted.counts, aim)
        return {"format": PIECES_FORMAT, "ids": sorted(chosen)}

    manifest = build_once(folder, build, waiting=waiting_notice(progress, "waiting for another process that counts"))
    ids: list[int] = manifest["ids"]
    return ids


class _Text(NamedTuple):
    """The text of a corpus that is not held out.

    Args:
        read: Iterates over its texts.
        identity: Plain values that change when the texts may have changed.
    """

    read: Callable[[], Iterator[str]]
    identity: list[Any]


def _text_of(
    settings: CorpusSettings | LabelledSettings, kind: RowKind | None, cache: Path, progress: Progress | None
) -> _Text:
    """Read the sources of a corpus into the cache, and return their text.

    Raises:
        CorpusError: if a source is missing or unreadable, or is a stream.
    """
    if isinstance(settings, LabelledSettings):
        assert kind is not None
        stored, _ = store_rows(settings, kind, cache, progress=progress)
        development = store_development(settings, kind, cache, progress=progress)
        identity: list[Any] = [stored.name, [settings.held_out]]
        if development.folder is not None:
            identity.append(development.folder.name)
        return _Text(partial(_texts_of_rows, stored, development, settings, kind), identity)
    if settings.streaming:
        raise CorpusError(
            "student.vocabulary is made from the whole text, but a streamed text is never read as a whole; leave "
            "out corpus.streaming, or start from a model that has a tokenizer (student.initialise.from)."
        )
    stored, _ = store_documents(settings, cache, progress=progress)
    held_out_settings: list[Any] = [settings.held_out, settings.held_out_documents]
    if settings.teaches_translations:
        # Earlier versions did not hold out all translations of a text.
        held_out_settings.append("translations")
    return _Text(partial(_texts_of_documents, stored, settings), [stored.name, held_out_settings])


def _texts_of_documents(stored: Path, settings: CorpusSettings) -> Iterator[str]:
    """Iterate over the documents that are not held out: those whose keys are not below a threshold."""
    held_below = held_out_bound(stored, settings)
    for path in document_files(stored):
        for records in read_batches(path):
            keys = records.column("key").to_pylist()
            for document, key in zip(documents_of(records), keys, strict=True):
                if key >= held_below:
                    yield document.text


def _texts_of_rows(
    stored: Path, development: DevelopmentRows, settings: LabelledSettings, kind: RowKind
) -> Iterator[str]:
    """Iterate over the texts of the labelled rows that are trained on."""
    unused_report = SourceReport()
    roles = split_rows(row_files(stored), settings.held_out, development.files, unused_report)
    for stored_row in rows_with_roles(roles):
        if stored_row.role != TRAINED:
            continue
        yield kind.plain_text(stored_row.row.text)
        if stored_row.row.pair is not None:
            yield stored_row.row.pair
