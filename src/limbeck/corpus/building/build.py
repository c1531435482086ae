"""Corpora: documents or labelled rows and a tokenizer to token rows on disk, from the cache where it has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from limbeck.core.blocks import counted
from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.core.paths import default_cache_dir
from limbeck.corpus.batches.grouped_rows import QUERY
from limbeck.corpus.building import splitting
from limbeck.corpus.building.corpora import Corpus, LabelledCorpus
from limbeck.corpus.building.tokenising import _WAITING, RowEncoding, tokenise
from limbeck.corpus.rows.labelled_rows import TOKEN_TYPES
from limbeck.corpus.rows.row_kind import RowKind
from limbeck.corpus.settings import CorpusSettings, LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored import store
from limbeck.corpus.stored.store import Progress
from limbeck.corpus.text.documents import Document, clean_text
from limbeck.corpus.tokens.blocks import BLOCK_COLUMNS, SEGMENTS, block_encoding, block_identity
from limbeck.corpus.tokens.token_encoder import TokenEncoder

BLOCK_FORMAT = 3
"""Raise it when the same documents would give other blocks: older caches are then built anew."""
LABELLED_FORMAT = 3
"""Raise it when the same rows would give other tokens: older caches are then built anew."""


def build_corpus(
    settings: CorpusSettings,
    tokenizer: Any,
    *,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Read the sources, tokenise and pack them, and open the result, memory-mapped.

    Two things are cached: the documents of the sources, and the blocks made of them with this tokenizer and
    these settings. Stages that cut the same text differently read it once. A build that was killed goes on where it
    was, to the same result. Memory does not grow with the corpus.

    Args:
        settings: The sources, and how to cut them.
        tokenizer: A `transformers` tokenizer; it is not changed.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        workers: Processes; the default is one per CPU core.
        progress: Called with the name of the step, the amount done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable or empty, or nothing is left after packing.
    """
    cache = cache_folder(cache_dir)
    encoding = block_encoding(settings, tokenizer)  # Refuses what cannot be packed before any text is read.
    documents, stored = store.store_documents(settings, cache, workers=workers, progress=progress)
    folder = cache / "blocks" / fingerprint([BLOCK_FORMAT, documents.name, *block_identity(settings, encoding)])

    def build(aside: Path) -> dict[str, Any]:
        # Whatever the share, the threshold lies among the lowest keys that may be held out.
        lowest = store.lowest_keys(documents, settings.held_out_documents + 1)
        held_below = splitting.held_out_threshold(lowest, settings.held_out, settings.held_out_documents)
        files = store.stored_files(documents)
        sources: dict[Path, int] = {}
        if encoding.uses:
            sources = dict(zip(files, stored["shards"], strict=True))
        splits, rows_by_file, digests, _ = tokenise(
            files,
            aside,
            replace(encoding, held_below=held_below, sources=sources),
            f"The corpus has {counted(stored['documents'], 'document')}, but no block of text to train on: give more "
            f"text, a smaller minimum_tokens (now {settings.minimum_tokens}) or a smaller held_out "
            f"(now {settings.held_out}).",
            workers=workers,
            progress=progress,
            amount=(stored["characters"], "characters"),
        )
        held_out = store.write_documents(store.read_documents(documents, held_below), aside)

        # The files of a source stand together, and the sources in their order.
        rows_by_source = [0] * len(settings.places)
        digests_by_source: list[list[str]] = [[] for _ in settings.places]
        for source, rows, digest in zip(stored["shards"], rows_by_file, digests, strict=True):
            rows_by_source[source] += rows
            digests_by_source[source].append(digest)
        return {
            "format": BLOCK_FORMAT,
            "settings": settings.content(),
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": encoding.encoder.fingerprint()},
            "documents": stored["documents"],
            "characters": stored["characters"],
            "sources": stored["sources"],
            "report": stored["report"],
            "held_out_documents": held_out.items,
            "source_rows": rows_by_source,
            "content": [store.digest_of(digests_of_source) for digests_of_source in digests_by_source],
            "splits": splits,
        }

    build_once(folder, build, goes_on=True, waiting=store.bind_progress(progress, _WAITING, 0, None, ""))
    return Corpus(folder, settings.mixing, settings.titles, settings.uses)


def build_labelled_corpus(
    settings: LabelledSettings,
    tokenizer: Any,
    kind: RowKind,
    *,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> LabelledCorpus:
    """Read labelled rows, tokenise them, and open the result, memory-mapped.

    Two things are cached: the rows of the sources, and the tokens made of them with this tokenizer and length; of an
    augmentation the copies too.

    Args:
        settings: The sources, and how to make tokens of their rows.
        tokenizer: A `transformers` tokenizer, a fast one for question answering and tagged words; it is not changed.
        kind: The kind of the task, `limbeck.kinds.KINDS[settings.task]`.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        workers: Processes; the default is one per CPU core.
        progress: Called with the name of the step, the amount done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable or empty, a row lacks a column or a label, class names are
            missing, or the tokenizer or the length does not suit the task.
        ModelError: if a model that augments cannot be loaded.
    """
    cache = cache_folder(cache_dir)
    encoding = _row_encoding(settings, tokenizer, kind)
    rows, stored = store.store_rows(settings, kind, cache, progress=progress)
    tokenizer_facts = _tokenizer_facts(tokenizer)
    development = _store_development(settings, kind, cache, progress)
    cut = _cut_identity(settings, kind, development)
    folder = cache / "labelled" / fingerprint([LABELLED_FORMAT, rows.name, tokenizer_facts, cut])

    def build(aside: Path) -> dict[str, Any]:
        report = SourceReport.from_dict(stored["report"])
        split_report = SourceReport()
        roles = _split_rows(settings, store.stored_files(rows, "rows"), development, split_report)

        # The copies of an augmentation are trained on beside the rows.
        total_rows = stored["rows"]
        augmented: dict[str, int] = {}
        if settings.augment is not None:
            from limbeck.corpus.augmentation import stored_copies  # It imports models, which take seconds.

            copies, copied = stored_copies.store_copies(
                settings, rows, roles, cache, workers=workers, progress=progress
            )
            total_rows += copied["rows"]
            augmented["augmented"] = copied["rows"]
            roles = {**roles, **splitting.all_trained(store.stored_files(copies, "rows"))}
            report.merge(SourceReport.from_dict(copied["report"]))

        splits, _, digests, token_report = tokenise(
            list(roles),
            aside,
            replace(encoding, roles=roles),
            _nothing_to_train_on(settings, stored["rows"]),
            workers=workers,
            progress=progress,
            amount=(total_rows, "rows"),
        )
        held_out_rows, held_out_documents = _held_out_documents(roles, kind)
        report.merge(split_report)
        report.merge(token_report)
        return {
            "format": LABELLED_FORMAT,
            "task": settings.task,
            "settings": settings.content(),
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": tokenizer_facts[0]},
            "documents": stored["rows"],
            **augmented,
            "held_out_documents": held_out_rows,
            "texts": stored["texts"],
            "held_out_texts": store.write_documents(held_out_documents, aside).items,
            "characters": stored["characters"],
            "sources": stored["sources"],
            "content": [*stored["content"], *development.content, store.digest_of(digests)],
            "report": report.to_dict(),
            "splits": splits,
        }

    build_once(folder, build, goes_on=True, waiting=store.bind_progress(progress, _WAITING, 0, None, ""))
    return LabelledCorpus(folder)


@dataclass(frozen=True)
class _DevelopmentRows:
    """The stored development rows of a labelled corpus, if it has any.

    Args:
        folder: Where they are stored; None without development rows.
        content: Hashes of their content.
    """

    folder: Path | None = None
    content: Sequence[str] = ()


def _store_development(
    settings: LabelledSettings, kind: RowKind, cache: Path, progress: Progress | None
) -> _DevelopmentRows:
    """Store the development rows, read as the rows to train on are."""
    if settings.development is None:
        return _DevelopmentRows()
    changes = {"sources": ["development rows"], "rows": settings.development, "development": None, "max_rows": None}
    folder, manifest = store.store_rows(settings.model_copy(update=changes), kind, cache, progress=progress)
    return _DevelopmentRows(folder, manifest["content"])


def _tokenizer_facts(tokenizer: Any) -> list[Any]:
    """Return what decides the tokens of a row: a fingerprint of the tokenizer first, then its settings."""
    return [
        TokenEncoder(tokenizer).fingerprint(),
        list(tokenizer.model_input_names),
        tokenizer.padding_side,
        tokenizer.truncation_side,
    ]


def _cut_identity(settings: LabelledSettings, kind: RowKind, development: _DevelopmentRows) -> list[Any]:
    """Return what decides how rows are cut and split, for the name of the cache folder.

    A value that only some corpora have is added for these alone, so that the names of all others stay as they were.
    """
    identity: list[Any] = [settings.length, settings.stride if kind.has_windows else None, settings.held_out]
    if settings.rows is not None and settings.pair_column is not None:
        identity.append("pairs")
    if development.folder is not None:
        identity.append(development.folder.name)
    if settings.augment is not None:
        from limbeck.corpus.augmentation import stored_copies  # It imports models, which take seconds.

        identity.append(stored_copies.identity(settings.augment))
    return identity


def _split_rows(
    settings: LabelledSettings, files: Sequence[Path], development: _DevelopmentRows, report: SourceReport
) -> dict[Path, splitting.Roles]:
    """Return what becomes of the rows of each file: trained on, held out, or left out as development rows are.

    Args:
        settings: The share of rows to hold out where there are no development rows.
        files: Files of the rows.
        development: Development rows, which take the place of held-out ones.
        report: Receives the rows that are left out.
    """
    if development.folder is None:
        return splitting.hold_out(files, settings.held_out, report)
    return splitting.keep_apart(files, store.stored_files(development.folder, "rows"), report)


def _nothing_to_train_on(settings: LabelledSettings, rows: int) -> str:
    """Return the message for a corpus whose rows are all held out or left out."""
    if settings.development is not None:
        advice = "the development rows repeat all of them; give other development rows."
    elif settings.held_out is None:
        advice = "give more rows."
    else:
        advice = f"give more rows, or a smaller held_out (now {settings.held_out})."
    return f"The corpus has {counted(rows, 'row')}, but none to train on: {advice}"


def cache_folder(named: str | Path | None) -> Path:
    """Return the root of the cache: the folder that is named, or the default."""
    if named is None:
        return default_cache_dir()
    return Path(named).expanduser()


def _row_encoding(settings: LabelledSettings, tokenizer: Any, kind: RowKind) -> RowEncoding:
    """Return how rows become token rows; the columns depend on the kind and on the tokenizer."""
    paired = kind.has_queries or settings.pair_column is not None
    encoder = kind.encoder(tokenizer, settings.length, settings.stride, paired=paired)
    columns = [*BLOCK_COLUMNS, pa.field("labels", kind.label_type)]
    if TOKEN_TYPES in tokenizer.model_input_names:
        columns.append(SEGMENTS)
    if kind.has_queries:
        columns.append(pa.field(QUERY, pa.int64()))
    return RowEncoding(encoder, pa.schema(columns))


def _held_out_documents(roles: Mapping[Path, splitting.Roles], kind: RowKind) -> tuple[int, Iterator[Document]]:
    """Return the number of held-out rows, and a document for each of their texts with its second texts."""
    rows = 0
    second_texts: dict[str, list[str]] = {}
    for path, roles_of_file in roles.items():
        examples = (example for batch, _ in store.read_labelled(path) for example in batch)
        for example, role in zip(examples, roles_of_file, strict=True):
            if role != splitting.HELD_OUT:
                continue
            rows += 1
            pairs = second_texts.setdefault(kind.plain_text(example.text), [])
            if example.pair is not None and example.pair not in pairs:
                pairs.append(example.pair)
    documents = (Document(clean_text("\n".join([text, *pairs]))) for text, pairs in second_texts.items())
    return rows, documents
