"""Corpora: documents or labelled rows and a tokenizer to token rows on disk, from the cache where it has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from limbeck.core.blocks import counted
from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.core.paths import default_cache_dir
from limbeck.corpus import splitting, store
from limbeck.corpus.blocks import BLOCK_COLUMNS, SEGMENTS, block_encoding, block_identity
from limbeck.corpus.documents import Document, clean_text
from limbeck.corpus.grouped_rows import QUERY
from limbeck.corpus.labelled import TOKEN_TYPES
from limbeck.corpus.opened import Corpus, LabelledCorpus
from limbeck.corpus.row_kind import RowKind
from limbeck.corpus.settings import CorpusSettings, LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.store import Progress
from limbeck.corpus.token_encoder import TokenEncoder
from limbeck.corpus.tokenising import _WAITING, RowEncoding, tokenise

BLOCK_FORMAT = 2
"""Raise it when the same documents would give other blocks: older caches are then built anew."""
LABELLED_FORMAT = 2
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
        sources = dict(zip(files, stored["shards"], strict=True)) if encoding.uses else {}
        splits, of_files, digests, _ = tokenise(
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
        held = store.write_documents(store.read_documents(documents, held_below), aside)
        rows = [0] * len(settings.places)  # They stand in the order of the sources.
        content: list[list[str]] = [[] for _ in rows]
        for source, count, digest in zip(stored["shards"], of_files, digests, strict=True):
            rows[source] += count
            content[source].append(digest)
        return {
            "format": BLOCK_FORMAT,
            "settings": settings.content(),
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": encoding.encoder.fingerprint()},
            **{key: stored[key] for key in ("documents", "characters", "sources", "report")},
            "held_out_documents": held.items,
            "source_rows": rows,
            "content": [store.digest_of(of_source) for of_source in content],
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
    tokenizer_facts = [TokenEncoder(tokenizer).fingerprint(), list(tokenizer.model_input_names)]
    tokenizer_facts += [tokenizer.padding_side, tokenizer.truncation_side]
    cut: list[Any] = [settings.length, settings.stride if kind.has_windows else None, settings.held_out]
    if settings.rows is not None and settings.pair_column is not None:
        cut.append("pairs")  # Only then, so that other fingerprints are as they were.
    development: Path | None = None
    scored: dict[str, Any] = {"content": []}
    if settings.development is not None:
        changes = {"sources": ["development rows"], "rows": settings.development, "development": None, "max_rows": None}
        development, scored = store.store_rows(settings.model_copy(update=changes), kind, cache, progress=progress)
        cut.append(development.name)
    if settings.augment is not None:
        from limbeck.corpus import augmented_rows  # It imports models, which take seconds that no other corpus needs.

        cut.append(augmented_rows.identity(settings.augment))
    folder = cache / "labelled" / fingerprint([LABELLED_FORMAT, rows.name, tokenizer_facts, cut])

    def build(aside: Path) -> dict[str, Any]:
        files = store.stored_files(rows, "rows")
        told = SourceReport()
        if development is None:
            roles = splitting.hold_out(files, settings.held_out, told)
        else:
            roles = splitting.keep_apart(files, store.stored_files(development, "rows"), told)
        counts: dict[str, int] = {}
        read = SourceReport.from_dict(stored["report"])
        if settings.augment is not None:
            made, copied = augmented_rows.store_copies(settings, rows, roles, cache, workers=workers, progress=progress)
            counts = {"augmented": copied["rows"]}
            roles = {**roles, **splitting.all_trained(store.stored_files(made, "rows"))}
            read.merge(SourceReport.from_dict(copied["report"]))
        splits, _, digests, report = tokenise(
            list(roles),
            aside,
            replace(encoding, roles=roles),
            f"The corpus has {counted(stored['rows'], 'row')}, but none to train on: "
            + (
                "the development rows repeat all of them; give other development rows."
                if development is not None
                else "give more rows."
                if settings.held_out is None
                else f"give more rows, or a smaller held_out (now {settings.held_out})."
            ),
            workers=workers,
            progress=progress,
            amount=(stored["rows"] + counts.get("augmented", 0), "rows"),
        )
        held_rows, documents = _held_out_documents(roles, kind)
        for more in (told, report):
            read.merge(more)
        return {
            "format": LABELLED_FORMAT,
            "task": settings.task,
            "settings": settings.content(),
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": tokenizer_facts[0]},
            "documents": stored["rows"],
            **counts,
            "held_out_documents": held_rows,
            "texts": stored["texts"],
            "held_out_texts": store.write_documents(documents, aside).items,
            "characters": stored["characters"],
            "sources": stored["sources"],
            "content": [*stored["content"], *scored["content"], store.digest_of(digests)],
            "report": read.to_dict(),
            "splits": splits,
        }

    build_once(folder, build, goes_on=True, waiting=store.bind_progress(progress, _WAITING, 0, None, ""))
    return LabelledCorpus(folder)


def cache_folder(named: str | Path | None) -> Path:
    """Return the root of the cache: the folder that is named, or the default."""
    return Path(named).expanduser() if named is not None else default_cache_dir()


def _row_encoding(settings: LabelledSettings, tokenizer: Any, kind: RowKind) -> RowEncoding:
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
    count = 0
    lines: dict[str, list[str]] = {}
    for path, of_file in roles.items():
        examples = (example for part, _ in store.read_labelled(path) for example in part)
        for example, role in zip(examples, of_file, strict=True):
            if role == splitting.HELD_OUT:
                count += 1
                text = kind.plain_text(example.text)
                seconds = lines.setdefault(text, [])
                if example.pair is not None and example.pair not in seconds:
                    seconds.append(example.pair)
    return count, (Document(clean_text("\n".join([text, *seconds]))) for text, seconds in lines.items())
