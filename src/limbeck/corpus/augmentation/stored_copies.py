"""`store_copies`: the augmented copies of all rows on disk, made by several processes.

The rows are divided into *pieces* of some hundred rows. A build that was killed continues behind its finished pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
import xxhash
from numpy.typing import NDArray

from limbeck.core.cache import build_once, finish_piece, read_piece
from limbeck.core.devices import choose_device
from limbeck.core.hashing import fingerprint
from limbeck.core.kinds import KINDS
from limbeck.core.process_pools import map_parallel
from limbeck.core.seals import HashedFile
from limbeck.corpus.augmentation.masked_words import MaskedLanguageModel
from limbeck.corpus.augmentation.row_copies import augment_rows, propose_nothing
from limbeck.corpus.augmentation.stop_words import stop_words_of
from limbeck.corpus.augmentation.stored_neighbours import read_neighbours, store_neighbours
from limbeck.corpus.augmentation.words import find_words
from limbeck.corpus.building.splitting import TRAINED, Roles, comparable_texts, rows_with_roles
from limbeck.corpus.digests import digest_of
from limbeck.corpus.messages import safe_name
from limbeck.corpus.progress import Progress, step_progress, waiting_notice
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.settings import Augmentation, LabelledSettings, ModelName
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import (
    RowBatch,
    batch_of_rows,
    read_batches,
    read_rows,
    rows_of,
    schema_of,
    write_row_batches,
)
from limbeck.corpus.text.documents import Document
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.errors import CorpusError
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.weight_files import fetch_weights

AUGMENTED_FORMAT = 3
"""Raise it when the same rows would give other copies: older caches are then built anew."""

_ROWS_A_PIECE = 250
"""Rows of a piece, whose copies a process makes at a time."""
# Rows whose copies are in one forward pass on an accelerator. On a CPU a pass has the copies of a single row, so that
# no other row can change the last bit of a score.
_ROWS_ON_ACCELERATOR = 64


def identity(settings: Augmentation) -> list[Any]:
    """Return plain JSON values that change whenever the same rows would get other copies.

    Models and vectors enter by their content, not by their place.

    Raises:
        CorpusError: if the word vectors cannot be read.
        ModelError: if a model does not exist.
    """
    numbers = [settings.copies, settings.probability, settings.candidates, settings.seed]
    choices = [settings.algorithm, settings.context_of_words, sorted(stop_words_of(settings))]
    models = [_content_of_model(settings.masked_lm), _content_of_vectors(settings.word_vectors)]
    return [AUGMENTED_FORMAT, *numbers, *choices, *models]


def store_copies(
    settings: LabelledSettings,
    rows: Path,
    roles: Mapping[Path, Roles],
    cache_dir: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Write the copies of all rows that are trained on to a cached folder of Arrow files, unless it exists already.

    Copies have the label of their row. A copy is left out if it reads as a row that is not trained on: a held-out row,
    a development row, or a row that repeats a development row.

    Args:
        settings: The augmentation, which must be set.
        rows: The folder of the rows.
        roles: The roles of these rows and of development rows, by file. Rows that are trained on get copies.
        cache_dir: Root of the cache.
        workers: Number of processes. A model on an accelerator is run by this process alone.
        progress: Called as rows are copied.

    Returns:
        The folder and its manifest, which counts the copies as `rows`.

    Raises:
        LimbeckError: if a model or the word vectors cannot be read.
    """
    augmentation = settings.augment
    assert augmentation is not None
    has_answers = KINDS[settings.task].has_answers
    role_hash = digest_of(file_roles.tobytes().hex() for file_roles in roles.values())
    # `roles` has the files of development rows too, which lie in another folder and get no copies.
    folders_of_rows = sorted({path.parent.name for path in roles})
    name = fingerprint([folders_of_rows, role_hash, settings.length, identity(augmentation)])
    folder = cache_dir / "augmented" / name
    roles_to_copy = {path: file_roles for path, file_roles in roles.items() if path.parent == rows}

    def build(aside: Path) -> dict[str, Any]:
        work = _Work(augmentation, settings.length, has_answers, aside)
        return _write_copies(work, roles_to_copy, roles, workers, progress)

    waiting = waiting_notice(progress, "waiting for another process that augments")
    return folder, build_once(folder, build, goes_on=True, waiting=waiting)


def _write_copies(
    work: _Work,
    roles_to_copy: Mapping[Path, Roles],
    all_roles: Mapping[Path, Roles],
    workers: int | None,
    progress: Progress | None,
) -> dict[str, Any]:
    """Write the copies of all rows that are trained on, and return the content of the manifest.

    Args:
        work: The settings, and the folder of the build.
        roles_to_copy: The roles of the rows that may get copies, by file.
        all_roles: The same, with those of development rows.
        workers: Number of processes.
        progress: Called as rows are copied.
    """
    words = _words_to_replace(roles_to_copy, work.settings, has_answers=work.has_answers)
    report = store_neighbours(words, work.settings, work.model, work.folder, progress)
    pieces = _divide(roles_to_copy)
    _copy_pieces(work, pieces, workers, progress)

    # The files of the pieces become the files of the folder.
    piece_files = [work.folder / f"{piece.name}.arrow" for piece in pieces]
    schema = schema_of(next(iter(roles_to_copy)))
    has_development = len(all_roles) > len(roles_to_copy)
    copies = _without_untrained_texts(piece_files, all_roles, report, has_development=has_development)
    written = write_row_batches(copies, work.folder, schema)
    for path in piece_files:
        path.unlink()
    return {
        "format": AUGMENTED_FORMAT,
        "rows": written.items,
        "characters": written.characters,
        "report": report.to_dict(),
    }


def _content_of_model(name: ModelName | None) -> list[str] | None:
    """Return hashes of a model and its tokenizer; None where no model is set."""
    if name is None:
        return None
    model, revision = name
    try:
        weights = fetch_weights(model, revision)
        config = weights[0].parent / "config.json"
        hashes = [_hash_of(file) for file in (config, *weights)]
        tokenizer = load_tokenizer(model, revision=revision)
    except OSError as error:
        raise CorpusError(f"Cannot read '{safe_name(model)}': {error.strerror}.") from error
    return [*hashes, TokenEncoder(tokenizer).fingerprint()]


def _content_of_vectors(vectors: ModelName | str | None) -> list[str] | None:
    """Return the hashes of word vectors: of their file, or of the model whose embeddings they are; None without any."""
    if not isinstance(vectors, str):
        return _content_of_model(vectors)
    try:
        return [_hash_of(Path(vectors))]
    except OSError as error:
        raise CorpusError(f"Cannot read '{safe_name(vectors)}': {error.strerror}.") from error


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, xxhash.xxh3_128).hexdigest()


@dataclass(frozen=True)
class _Work:
    """The settings that a process needs to copy rows.

    Args:
        settings: The augmentation.
        length: Most tokens that a model reads of a row.
        has_answers: Whether the rows are questions on contexts.
        folder: The temporary folder that becomes the cached folder when it is complete.
    """

    settings: Augmentation
    length: int
    has_answers: bool
    folder: Path

    @property
    def model(self) -> MaskedLanguageModel | None:
        """The masked language model, loaded once a process; None without one."""
        name = self.settings.masked_lm
        if name is None:
            return None
        return _load_language_model(name, self.length, self.settings.candidates, self.settings.algorithm)


_load_language_model = lru_cache(maxsize=1)(MaskedLanguageModel)


class _Piece(NamedTuple):
    """Up to `_ROWS_A_PIECE` rows of one batch of a stored file, which one process copies.

    Args:
        name: Name of the file with the copies, without its suffix.
        path: The stored file of the rows.
        batch_number: Number of the rows' record batch in this file.
        first_row: Index of the first row in this batch.
        is_trained: Whether each of the rows is trained on, `[rows]`.
    """

    name: str
    path: Path
    batch_number: int
    first_row: int
    is_trained: NDArray[np.bool_]


def _divide(roles: Mapping[Path, Roles]) -> list[_Piece]:
    """Divide the stored rows into pieces, in their order."""
    pieces: list[_Piece] = []
    # The roles of a file are in the order of its rows, which are stored in batches.
    for path, file_roles in roles.items():
        rows_before = 0
        for batch_number, batch in enumerate(read_batches(path)):
            batch_roles = file_roles[rows_before : rows_before + len(batch)]
            rows_before += len(batch)
            for first_row in range(0, len(batch), _ROWS_A_PIECE):
                is_trained = batch_roles[first_row : first_row + _ROWS_A_PIECE] == TRAINED
                name = f"copies-{len(pieces):05d}"
                pieces.append(_Piece(name, path, batch_number, first_row, is_trained))
    return pieces


def _copy_pieces(work: _Work, pieces: Sequence[_Piece], workers: int | None, progress: Progress | None) -> None:
    """Write the copies of all pieces."""
    report_copies = step_progress(progress, "augmenting")
    uses_accelerator = work.settings.masked_lm is not None and choose_device("auto").type != "cpu"
    if uses_accelerator:
        workers = 1
    copies = 0
    try:
        for count in map_parallel(partial(_copy_piece, work), pieces, workers):
            copies += count
            if report_copies is not None:
                report_copies(copies, None, "copies")
    finally:
        # The model of this process is not needed any more.
        _load_language_model.cache_clear()


def _copy_piece(work: _Work, piece: _Piece) -> int:
    """Write the copies of a piece, unless a build that was killed has written them; return their number."""
    finished = read_piece(work.folder, piece.name)
    if finished is not None:
        return int(finished["copies"])

    batches_from_piece_on = islice(read_batches(piece.path), piece.batch_number, None)
    batch = next(batches_from_piece_on)
    rows, keys = rows_of(batch.slice(piece.first_row, _ROWS_A_PIECE))
    trained_rows = [row for row, is_trained in zip(rows, piece.is_trained, strict=True) if is_trained]
    copies_of_rows = _augment(work, trained_rows)
    copies = [copy for copies_of_row in copies_of_rows for copy in copies_of_row]

    name = f"{piece.name}.arrow"
    with HashedFile(work.folder / name) as file, pa.ipc.new_stream(file, batch.schema) as writer:
        # A file without a batch is written where there are no copies.
        if copies:
            # A copy keeps the key of its row.
            copies_by_row = [len(copies_of_row) for copies_of_row in copies_of_rows]
            copy_keys = np.repeat(keys[piece.is_trained], copies_by_row)
            writer.write_batch(batch_of_rows(copies, copy_keys, batch.schema).records)
    finish_piece(work.folder, piece.name, [name], {"copies": len(copies)})
    return len(copies)


def _augment(work: _Work, rows: Sequence[LabelledRow]) -> list[list[LabelledRow]]:
    """Return the copies of each row."""
    neighbours = read_neighbours(work.folder)
    model = work.model
    rows_at_once = 1
    if model is not None and model.device.type != "cpu":
        rows_at_once = _ROWS_ON_ACCELERATOR
    propose = propose_nothing if model is None else model
    copies_of_rows: list[list[LabelledRow]] = []
    with _one_thread():
        for first in range(0, len(rows), rows_at_once):
            part = rows[first : first + rows_at_once]
            copies_of_rows += augment_rows(part, work.settings, neighbours, propose, answers=work.has_answers)
    return copies_of_rows


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: sums of several threads may differ in the last bit, and processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _words_to_replace(roles: Mapping[Path, Roles], settings: Augmentation, *, has_answers: bool) -> list[str]:
    """Return the distinct words of all rows that are trained on and that may be replaced, sorted.

    Args:
        roles: The roles of the rows, by file.
        settings: The augmentation.
        has_answers: Whether the rows are questions on contexts: only words of the questions are replaced then.
    """
    words: set[str] = set()
    for stored_row in rows_with_roles(roles):
        if stored_row.role != TRAINED:
            continue
        row = stored_row.row
        texts = [row.pair or ""]
        if not has_answers:
            texts.append(row.text)
        for text in texts:
            words.update(match.group() for match in find_words(text, settings))
    return sorted(words)


def _without_untrained_texts(
    files: Sequence[Path], roles: Mapping[Path, Roles], report: SourceReport, *, has_development: bool
) -> Iterator[RowBatch]:
    """Iterate over the copies in some files, without those that read as a row which is not trained on.

    Copies are compared as the rows were when they were split: with development rows by both texts of a pair, and
    otherwise by the first text alone.

    Args:
        files: The files of copies.
        roles: The roles of the rows that have copies, and of development rows.
        has_development: Whether there are development rows.
        report: Receives the copies that are left out.
    """

    def compared(row: LabelledRow) -> Any:
        return comparable_texts(row) if has_development else Document(row.text).key

    untrained = {compared(stored_row.row) for stored_row in rows_with_roles(roles) if stored_row.role != TRAINED}
    for path in files:
        for batch in read_rows(path):
            # The copies that stay, and their numbers in the batch.
            copies: list[LabelledRow] = []
            numbers: list[int] = []
            for number, copy in enumerate(batch.rows):
                if compared(copy) not in untrained:
                    copies.append(copy)
                    numbers.append(number)
            left_out = len(batch.rows) - len(copies)
            report.note("augmented copy that has the text of a held-out row, left out", path.stem, left_out)
            if copies:
                yield RowBatch(copies, batch.keys[numbers])
