"""`build_labelled_corpus`: a corpus of labelled rows, from its sources to token rows in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from limbeck.core.blocks import counted
from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.corpus.building.cache_root import cache_root
from limbeck.corpus.building.corpora import LabelledCorpus
from limbeck.corpus.building.row_encoding import row_encoding
from limbeck.corpus.building.splitting import HELD_OUT, TRAINED, Roles, all_trained, rows_with_roles, split_rows
from limbeck.corpus.building.tokenising import WAITING, Amount, tokenise
from limbeck.corpus.digests import digest_of
from limbeck.corpus.progress import Progress, waiting_notice
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.rows.row_kind import RowKind
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import row_files, write_documents
from limbeck.corpus.stored.stored_rows import DevelopmentRows, store_development, store_rows
from limbeck.corpus.text.documents import Document, clean_text
from limbeck.corpus.text.text_keys import TEXT_KEY
from limbeck.corpus.tokens.token_encoder import TokenEncoder

LABELLED_FORMAT = 3
"""Raise it when the same rows would give other tokens, labels, held-out rows or another report: older caches are built
anew."""


def build_labelled_corpus(
    settings: LabelledSettings,
    tokenizer: Any,
    kind: RowKind,
    *,
    teacher_tokenizer: Any = None,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> LabelledCorpus:
    """Read labelled rows, tokenise them, and open the result, memory-mapped.

    Two things are cached: the rows of the sources, and the token rows that are made of them with this tokenizer and
    length. With an augmentation its copies are cached as a third.

    Args:
        settings: The sources, and how to make tokens of their rows.
        tokenizer: A `transformers` tokenizer, a fast one for question answering and tagged words; it is not changed.
        kind: The kind of the task, `limbeck.kinds.KINDS[settings.task]`.
        teacher_tokenizer: The tokenizer of the teacher, where it gives other tokens than the student's: the rows then
            have the ids of both.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        workers: Processes; the default is one per CPU core.
        progress: Called with the name of the step, the amount done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable or empty, a row lacks a column or a label, class names are
            missing, or the tokenizer or the length does not suit the task.
        ModelError: if a model that augments cannot be loaded.
    """
    cache = cache_root(cache_dir)
    # Refuses a tokenizer that does not suit before rows are read.
    encoding = row_encoding(settings, tokenizer, kind, teacher_tokenizer)
    row_folder, row_manifest = store_rows(settings, kind, cache, progress=progress)
    development = store_development(settings, kind, cache, progress=progress)
    tokenizer_identity = _tokenizer_identity(tokenizer)
    if teacher_tokenizer is not None:
        tokenizer_identity += _tokenizer_identity(teacher_tokenizer)
    cut_identity = _cut_identity(settings, kind, development)
    folder = cache / "labelled" / fingerprint([LABELLED_FORMAT, row_folder.name, tokenizer_identity, cut_identity])

    def build(aside: Path) -> dict[str, Any]:
        """Write the token rows and held-out texts into the folder of a build, and return the manifest of the corpus."""
        # The role of each stored row: it is trained on, held out or left out. Copies are made of rows to train on.
        split_report = SourceReport()
        roles_of_rows = split_rows(row_files(row_folder), settings.held_out, development.files, split_report)
        copies = _store_copies(settings, row_folder, roles_of_rows, cache, workers, progress)
        roles = {**roles_of_rows, **copies.roles}
        held_out_name = "development" if development.files else "held out"
        tokens = tokenise(
            list(roles),
            aside,
            replace(encoding, roles=roles, held_out_name=held_out_name),
            message_without_rows=_nothing_to_train_on(settings, row_manifest["rows"]),
            workers=workers,
            progress=progress,
            amount=Amount(row_manifest["rows"] + copies.rows, "rows"),
        )

        # The held-out rows are stored as text too.
        held_out_rows = [stored_row.row for stored_row in rows_with_roles(roles) if stored_row.role == HELD_OUT]
        held_out_documents = write_documents(_documents_of(held_out_rows, kind), aside)

        trained_rows = 0
        for roles_of_file in roles_of_rows.values():
            trained_rows += int((roles_of_file == TRAINED).sum())
        queries = {}
        if kind.has_queries:
            queries = _counts_of_queries(row_files(row_folder), roles_of_rows)

        report = SourceReport.from_dict(row_manifest["report"])
        for later_report in (copies.report, split_report, tokens.report):
            report.merge(later_report)
        return {
            "format": LABELLED_FORMAT,
            "task": settings.task,
            "settings": settings.content(),
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": tokenizer_identity[0]},
            "documents": row_manifest["rows"],
            "trained_documents": trained_rows,
            **copies.in_manifest,
            "held_out_documents": len(held_out_rows),
            **queries,
            "texts": row_manifest["texts"],
            "held_out_texts": held_out_documents.items,
            "characters": row_manifest["characters"],
            "sources": row_manifest["sources"],
            "content": [*row_manifest["content"], *development.content, digest_of(tokens.digests)],
            "report": report.to_dict(),
            "splits": tokens.splits,
        }

    build_once(folder, build, goes_on=True, waiting=waiting_notice(progress, WAITING))
    return LabelledCorpus(folder)


def _counts_of_queries(files: Sequence[Path], roles: Mapping[Path, Roles]) -> dict[str, int]:
    """Return the entries of a manifest that count the queries of a ranking, whose rows are documents of queries.

    Args:
        files: The stored rows.
        roles: Roles of these rows, and of the development rows where there are any.
    """
    queries = set()
    trained_queries = set()
    held_out_queries = set()
    for path, roles_of_file in roles.items():
        is_of_rows = path in files
        for row, _, role in rows_with_roles({path: roles_of_file}):
            # Development rows are in other files: their queries are counted as held out alone.
            if is_of_rows:
                queries.add(row.text)
            if role == TRAINED:
                trained_queries.add(row.text)
            elif role == HELD_OUT:
                held_out_queries.add(row.text)
    return {
        "queries": len(queries),
        "trained_queries": len(trained_queries),
        "held_out_queries": len(held_out_queries),
    }


def _tokenizer_identity(tokenizer: Any) -> list[Any]:
    """Return plain values that change with the tokens of a tokenizer; the first is its fingerprint."""
    return [
        TokenEncoder(tokenizer).fingerprint(),
        list(tokenizer.model_input_names),
        tokenizer.padding_side,
        tokenizer.truncation_side,
    ]


@dataclass(frozen=True)
class _Copies:
    """The stored copies of an augmentation, if there is one.

    Args:
        rows: Number of the copies.
        roles: Roles of the copies, by file: all are trained on beside the rows.
        report: The copies that were left out.
        in_manifest: Entries of the manifest about the copies; empty without an augmentation.
    """

    rows: int = 0
    roles: dict[Path, Roles] = field(default_factory=dict)
    report: SourceReport = field(default_factory=SourceReport)
    in_manifest: Mapping[str, int] = field(default_factory=dict)


def _store_copies(
    settings: LabelledSettings,
    rows: Path,
    roles: dict[Path, Roles],
    cache: Path,
    workers: int | None,
    progress: Progress | None,
) -> _Copies:
    """Make and store the copies of an augmentation, if the settings have one.

    Args:
        settings: The settings of the corpus, with the augmentation.
        rows: The folder of the rows.
        roles: Roles of the rows: rows that are trained on get copies.
        cache: Root of the cache.
        workers: Processes; the default is one per CPU core.
        progress: Called as rows are copied.
    """
    if settings.augment is None:
        return _Copies()
    from limbeck.corpus.augmentation import stored_copies  # It imports models, which take seconds.

    folder, manifest = stored_copies.store_copies(settings, rows, roles, cache, workers=workers, progress=progress)
    return _Copies(
        rows=manifest["rows"],
        roles=all_trained(row_files(folder)),
        report=SourceReport.from_dict(manifest["report"]),
        in_manifest={"augmented": manifest["rows"]},
    )


def _cut_identity(settings: LabelledSettings, kind: RowKind, development: DevelopmentRows) -> list[Any]:
    """Return the values that decide how rows are cut and split, for the name of the cache folder.

    A value of a newer option is added only where the option is set, so that older cache folders keep their names.
    """
    identity: list[Any] = [settings.length, settings.stride if kind.has_windows else None, settings.held_out]
    if settings.rows is not None and settings.pair_column is not None:
        identity.append("pairs")
    if not settings.labelled:
        identity.append("unlabelled")
    if development.folder is not None:
        identity.append(development.folder.name)
    if settings.augment is not None:
        from limbeck.corpus.augmentation import stored_copies  # It imports models, which take seconds.

        identity.append(stored_copies.identity(settings.augment))
    if settings.text_keys:
        identity.append(TEXT_KEY)
    if settings.whole_texts:
        identity.append("whole texts")
    if settings.student_length is not None:
        identity.append(["student_length", settings.student_length])
    return identity


def _nothing_to_train_on(settings: LabelledSettings, rows: int) -> str:
    """Return the message for a corpus whose rows are all held out or left out."""
    if settings.development is not None:
        advice = "the development rows repeat all of them; give other development rows."
    elif settings.held_out is None:
        advice = "give more rows."
    else:
        advice = f"give more rows, or a smaller held_out (now {settings.held_out})."
    return f"The corpus has {counted(rows, 'row')}, but none to train on: {advice}"


def _documents_of(rows: Sequence[LabelledRow], kind: RowKind) -> Iterator[Document]:
    """Iterate over a document for each distinct text of some rows; each second text of the rows is a line behind it."""
    pairs_of_text: dict[str, list[str]] = {}
    for row in rows:
        pairs = pairs_of_text.setdefault(kind.plain_text(row.text), [])
        if row.pair is not None and row.pair not in pairs:
            pairs.append(row.pair)
    for text, pairs in pairs_of_text.items():
        yield Document(clean_text("\n".join([text, *pairs])))
