"""TinyBERT's data augmentation: copies of labelled rows in which words are replaced by likely or near ones.

A copy is a function of its row's text, the seed and the settings: not of other rows, their order or the number of
processes. Word vectors are read once, for all rows; then rows are copied piece by piece, and a killed build goes on.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import file_digest
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

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
from limbeck.corpus import store
from limbeck.corpus.collating import PadCollator
from limbeck.corpus.documents import Document
from limbeck.corpus.labelled import TOKEN_TYPES, LabelledRow
from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings import Augmentation, LabelledSettings, ModelName
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.splitting import TRAINED, Roles
from limbeck.corpus.token_encoder import TokenEncoder
from limbeck.corpus.word_vectors import (
    WORD,
    ModelVectors,
    VectorFile,
    fast_tokenizer,
    nearest_words,
    pieces_of,
    vocabulary_words,
)
from limbeck.errors import CorpusError
from limbeck.models.families import shape_of
from limbeck.models.loading import load_model
from limbeck.models.locating import fetch_weights
from limbeck.models.tokenizers import load_tokenizer

AUGMENTED_FORMAT = 1
"""Raise it when the same rows would give other copies: older caches are then built anew."""

_ROWS_A_PIECE = 250
# On a CPU a forward has the copies of one row alone, so that no other row can move the last bit of a score.
_ROWS_ON_ACCELERATOR = 64
_TOKENS_AT_ONCE = 1 << 16
_NEIGHBOURS = "neighbours"


# The algorithm: which words of a copy are replaced, one after the other, and by which candidates.


class MaskedWord(NamedTuple):
    """A word of a row to be predicted from all others.

    Args:
        text: First text of the row, with the word in it.
        pair: Second text, if there is one.
        part: 0 if the word is in the first text, 1 if in the second.
        start: Its first character there.
        end: The character after its last.
    """

    text: str
    pair: str | None
    part: int
    start: int
    end: int


Propose: TypeAlias = Callable[[Sequence[MaskedWord]], list[list[str]]]
"""Gives the likeliest words in the place of each masked one; none where the place is beyond what the model reads."""


class _Copy:
    """A copy in the making: its texts cut into gaps and words, and the words that are still to be replaced.

    Args:
        parts: Of each text gaps and words in turn; words have odd places.
        chosen: Text and place of each word to be replaced, in their order, and the draw among its candidates.
        context: The texts that a word is predicted from; None takes the copy so far.
    """

    def __init__(
        self, parts: list[list[str]], chosen: Sequence[tuple[int, int, float]], context: list[list[str]] | None
    ) -> None:
        self.parts = parts
        self._left = deque(chosen)
        self._context = parts if context is None else context

    def advance(self, neighbours: Mapping[str, Sequence[str]]) -> MaskedWord | None:
        """Replace words that have a list of neighbours, up to one that has to be predicted; `None` at the end."""
        while self._left:
            part, place, _ = self._left[0]
            near = neighbours.get(self.parts[part][place])
            if near is None:
                return self._mask(part, place)
            self.replace(near)
        return None

    def predicted(self, neighbours: Mapping[str, Sequence[str]]) -> list[MaskedWord]:
        """Return all words that are left to be predicted, from the context as it is now."""
        return [self._mask(*at) for *at, _ in self._left if self.parts[at[0]][at[1]] not in neighbours]

    def _mask(self, part: int, place: int) -> MaskedWord:
        start = sum(map(len, self._context[part][:place]))
        text, *pair = map("".join, self._context)
        return MaskedWord(text, pair[0] if pair else None, part, start, start + len(self._context[part][place]))

    def finish(self, row: LabelledRow) -> LabelledRow:
        """Return a row with the texts of its copy."""
        text, *pair = map("".join, self.parts)
        return replace(row, text=text, pair=pair[0] if pair else None)

    def replace(self, candidates: Sequence[str]) -> None:
        """Replace the next word by a candidate; without one it stays."""
        part, place, draw = self._left.popleft()
        if candidates:
            self.parts[part][place] = candidates[int(draw * len(candidates))]


def augment_rows(
    examples: Sequence[LabelledRow],
    settings: Augmentation,
    neighbours: Mapping[str, Sequence[str]],
    propose: Propose,
    *,
    answers: bool = False,
) -> list[list[LabelledRow]]:
    """Return the copies of each row, with the row's label.

    Each word of a copy is replaced with the chance p_t, from left to right: by one of the K likeliest words in its
    place, given the copy so far (or the row as it stands, by `settings.context`), or, where `neighbours` has the word,
    by one of its neighbours. All candidates are equally likely. A forward predicts the next word of all copies.

    Args:
        examples: The rows, all of one text or all of two, which are both changed.
        settings: N_a copies, p_t, K, the context and the seed.
        neighbours: The nearest words of words that no model predicts, such as those of several pieces.
        propose: Predicts the others.
        answers: Whether the rows are questions on contexts, whose answers have their place: the question is changed.

    Source:
        TinyBERT (arXiv 1909.10351), algorithm 1. As printed it leaves the mask where a word is masked and not replaced
        (lines 6 and 12); here the word comes back. It looks for candidates of every word, here only of those that are
        replaced. Nearest alternative: `ReplacedTokens`, random words drawn while training.
    """
    copies: list[list[_Copy]] = []
    for example in examples:
        texts = [example.text] if example.pair is None else [example.text, example.pair]
        cut = [[text] if answers and part == 0 else _cut(text) for part, text in enumerate(texts)]
        places = [(part, place) for part, pieces in enumerate(cut) for place in range(1, len(pieces), 2)]
        draws = _generator(settings.seed, texts).random((settings.copies, len(places), 2))
        chosen = [
            [(*places[word], float(draw[word, 1])) for word in np.flatnonzero(draw[:, 0] <= settings.probability)]
            for draw in draws
        ]
        context = cut if settings.context == "row" else None
        copies.append([_Copy([*map(list, cut)], own, context) for own in chosen])
    waiting = [copy for own in copies for copy in own]
    known: dict[MaskedWord, list[str]] = {}

    def predict(words: Iterable[MaskedWord]) -> None:
        new = [word for word in dict.fromkeys(words) if word not in known]  # Copies begin alike.
        known.update(zip(new, propose(new) if new else [], strict=True))

    if settings.context == "row":
        predict(word for copy in waiting for word in copy.predicted(neighbours))
    while asked := [(copy, word) for copy in waiting if (word := copy.advance(neighbours)) is not None]:
        predict(word for _, word in asked)
        for copy, word in asked:
            copy.replace(known[word])
        waiting = [copy for copy, _ in asked]
    return [[copy.finish(row) for copy in own] for row, own in zip(examples, copies, strict=True)]


def _cut(text: str) -> list[str]:
    """Return the gaps and words of a text in turn; both ends are gaps, which may be empty."""
    pieces, end = [], 0
    for found in WORD.finditer(text):
        pieces += [text[end : found.start()], found.group()]
        end = found.end()
    return [*pieces, text[end:]]


def _generator(seed: int, texts: Sequence[str]) -> np.random.Generator:
    key = store.digest_of(texts)
    return np.random.default_rng([seed, int(key, 16)])


# Candidates by a masked language model.


class MaskedLanguageModel:
    """Predicts words in the places of masked ones.

    Args:
        name: The model and its revision.
        length: Most tokens that it reads of a row, special tokens included.
        count: K, how many words it proposes.

    Raises:
        ModelError: if it has no head for it, or its tokenizer is a slow one.
    """

    def __init__(self, name: ModelName, length: int, count: int) -> None:
        self.device = choose_device("auto")
        self._tokenizer = fast_tokenizer(name)
        self._model = load_model(name[0], revision=name[1], head="masked_lm").to(self.device)
        self._length = min(length, shape_of(self._model.config).positions or length)
        self._count = count
        self._ids, self._words = map(list, zip(*vocabulary_words(self._tokenizer).items(), strict=True))
        self._typed = TOKEN_TYPES in self._tokenizer.model_input_names
        self._pad = PadCollator(self._tokenizer.pad_token_id, side=self._tokenizer.padding_side)

    @torch.inference_mode()
    def __call__(self, words: Sequence[MaskedWord]) -> list[list[str]]:
        """Return the likeliest words for each masked one, the likeliest first; see `Propose`."""
        found: list[list[str]] = [[] for _ in words]
        rows = [(number, row) for number, row in enumerate(self._mask(words)) if row is not None]
        most = max(1, _TOKENS_AT_ONCE // max((len(row["input_ids"]) for _, row in rows), default=1))
        for first in range(0, len(rows), most):
            numbers, batch = zip(*rows[first : first + most], strict=True)
            for number, ids in zip(numbers, self._predict(self._pad(batch)), strict=True):
                found[number] = [self._words[index] for index in ids]
        return found

    def _mask(self, words: Sequence[MaskedWord]) -> Iterator[dict[str, Any] | None]:
        """Encode rows with one mask in the place of the word; None where the row is cut before it."""
        encoded = self._tokenizer(
            [word.text for word in words],
            [word.pair for word in words] if words and words[0].pair is not None else None,
            truncation="longest_first",
            max_length=self._length,
        )
        for word, encoding in zip(words, encoded.encodings, strict=True):
            first, last = (encoding.char_to_token(at, word.part) for at in (word.start, word.end - 1))
            if first is None or last is None:
                yield None
                continue
            masked = slice(first, last + 1)
            row = {"input_ids": [*encoding.ids], "token_type_ids": [*encoding.type_ids]}
            row["input_ids"][masked] = [self._tokenizer.mask_token_id]
            row["token_type_ids"][masked] = [encoding.type_ids[first]]
            yield row if self._typed else {"input_ids": row["input_ids"]}

    def _predict(self, batch: Mapping[str, torch.Tensor]) -> list[list[int]]:
        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        place = (batch["input_ids"] == self._tokenizer.mask_token_id).int().argmax(1)
        rows = torch.arange(len(place), device=self.device)

        def at_masks(_module: Any, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
            return inputs[0][rows, place][:, None]  # No other scores over the vocabulary are made.

        handle = self._model.get_output_embeddings().register_forward_pre_hook(at_masks)
        try:
            scores = self._model(**batch).logits[:, 0, self._ids]
        finally:
            handle.remove()
        return scores.float().topk(min(self._count, len(self._ids))).indices.tolist()

    def needs_neighbours(self, words: Sequence[str]) -> list[bool]:
        """Return of each word whether it has several pieces, or none that is known."""
        return [len(ids) != 1 or ids[0] == self._tokenizer.unk_token_id for ids in pieces_of(self._tokenizer, words)]


# On disk: the neighbours of all words, then the copies of rows piece by piece.


def identity(settings: Augmentation) -> list[Any]:
    """Return plain JSON values that decide the copies of given rows, wherever the models and vectors lie.

    Raises:
        CorpusError: if the word vectors cannot be read.
        ModelError: if there is no such model.
    """
    numbers = [settings.copies, settings.probability, settings.candidates, settings.context, settings.seed]
    return [AUGMENTED_FORMAT, *numbers, _content_of(settings.masked_lm), _content_of(settings.word_vectors)]


def _content_of(place: ModelName | str | None) -> list[str] | None:
    if place is None:
        return None
    try:
        if isinstance(place, str):
            return [_hash_of(Path(place))]
        weights = fetch_weights(*place)
        hashes = [_hash_of(file) for file in (weights[0].parent / "config.json", *weights)]
        return [*hashes, TokenEncoder(load_tokenizer(place[0], revision=place[1])).fingerprint()]
    except OSError as error:
        name = place if isinstance(place, str) else place[0]
        raise CorpusError(f"Cannot read '{safe_name(name)}': {error.strerror}.") from error


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, xxhash.xxh3_128).hexdigest()


def store_copies(
    settings: LabelledSettings,
    rows: Path,
    roles: Mapping[Path, Roles],
    cache_dir: Path,
    *,
    workers: int | None = None,
    progress: store.Progress | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Make the copies of all rows to train on in a cached folder of Arrow files, unless they are there already.

    Copies have the label of their row. A copy that has the text of a row that is not trained on, held out or of the
    development set, is left out. A build that was killed goes on behind its finished pieces.

    Args:
        settings: With an augmentation.
        rows: The folder of the rows to train on.
        roles: What becomes of them and of development rows, by file: only those that are trained on have copies.
        cache_dir: Root of the cache.
        workers: Processes on CPUs; a model on an accelerator is run by this one.
        progress: Called as rows are copied.

    Returns:
        The folder and its manifest, which counts the copies as `rows`.

    Raises:
        LimbeckError: if a model or the word vectors cannot be read.
    """
    chosen = settings.augment
    assert chosen is not None
    answers = "answers" in KINDS[settings.task].columns
    sides = store.digest_of(of_file.tobytes().hex() for of_file in roles.values())
    folder = cache_dir / "augmented" / fingerprint([rows.name, sides, settings.length, identity(chosen)])
    files = [path for path in roles if path.parent == rows]

    def build(aside: Path) -> dict[str, Any]:
        work = _Work(chosen, settings.length, answers, aside)
        report = SourceReport.from_dict(_store_neighbours(work, _trained(files, roles), progress)["report"])
        pieces: list[_Piece] = []
        for path in files:
            end = 0
            for number, found in enumerate(store.read_batches(path)):
                begin, end = end, end + len(found)
                for first in range(0, len(found), _ROWS_A_PIECE):
                    own = roles[path][begin:end][first : first + _ROWS_A_PIECE]
                    pieces.append(_Piece(f"copies-{len(pieces):05d}", path, number, first, own == TRAINED))
        step = store.bind_progress(progress, "augmenting")
        alone = chosen.masked_lm is not None and choose_device("auto").type != "cpu"
        schema, done = pa.ipc.open_stream(files[0]).schema, 0
        try:
            for count in map_parallel(partial(_copy_piece, work), pieces, 1 if alone else workers):
                done += count
                if step is not None:
                    step(done, None, "copies")
        finally:
            _language_model.cache_clear()
        parts = [aside / f"{piece.name}.arrow" for piece in pieces]
        written = store.write_rows(aside, schema, _without_untrained(parts, roles, report))
        for path in parts:
            path.unlink()
        counts = {"rows": written.items, "characters": written.characters}
        return {"format": AUGMENTED_FORMAT, **counts, "report": report.to_dict()}

    waiting = store.bind_progress(progress, "waiting for another process that augments", 0, None, "")
    return folder, build_once(folder, build, goes_on=True, waiting=waiting)


@dataclass(frozen=True)
class _Work:
    """What a process needs to copy rows.

    Args:
        settings: The augmentation.
        length: Most tokens that a model reads of a row.
        answers: Whether the rows are questions on contexts.
        folder: The folder in the making.
    """

    settings: Augmentation
    length: int
    answers: bool
    folder: Path

    @property
    def model(self) -> MaskedLanguageModel | None:
        """The masked language model, loaded once a process; None without one."""
        chosen = self.settings
        return None if chosen.masked_lm is None else _language_model(chosen.masked_lm, self.length, chosen.candidates)


class _Piece(NamedTuple):
    """Rows that one process copies at a time.

    Args:
        name: Of the file with the copies.
        path: The stored file of the rows.
        batch: Number of their batch in it.
        first: The first row there.
        trained: Which of the rows are trained on, `[rows]`.
    """

    name: str
    path: Path
    batch: int
    first: int
    trained: NDArray[np.bool_]


_language_model = lru_cache(maxsize=1)(MaskedLanguageModel)


@lru_cache(maxsize=1)
def _read_neighbours(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _trained(files: Sequence[Path], roles: Mapping[Path, Roles]) -> Iterator[LabelledRow]:
    for path in files:
        examples = chain.from_iterable(examples for examples, _ in store.read_labelled(path))
        yield from (example for example, role in zip(examples, roles[path], strict=True) if role == TRAINED)


def _store_neighbours(work: _Work, rows: Iterable[LabelledRow], progress: store.Progress | None) -> dict[str, Any]:
    """Write the neighbours of every word that no model predicts, unless a killed builder has; return the report."""
    finished = read_piece(work.folder, _NEIGHBOURS)
    if finished is not None:
        return finished
    step, report = store.bind_progress(progress, "looking for similar words"), SourceReport()
    if step is not None:
        step(0, None, "words")
    words: set[str] = set()
    for row in rows:
        for text in [row.pair] if work.answers else [row.text, row.pair]:
            words.update(WORD.findall(text or ""))
    asked, model = sorted(words), work.model
    if model is not None and asked:
        asked = [word for word, wanted in zip(asked, model.needs_neighbours(asked), strict=True) if wanted]
    place = work.settings.word_vectors
    near: dict[str, list[str]] = {word: [] for word in asked}
    if place is not None:
        vectors = VectorFile(Path(place), report) if isinstance(place, str) else ModelVectors(place)
        near = nearest_words(vectors, asked, work.settings.candidates)
        for word in (word for word, own in near.items() if not own):
            report.note("word without a word vector, never replaced", word)
    name = f"{_NEIGHBOURS}.json"
    (work.folder / name).write_text(json.dumps(near, ensure_ascii=False), encoding="utf-8")
    finish_piece(work.folder, _NEIGHBOURS, [name], {"report": report.to_dict()})
    return {"report": report.to_dict()}


def _copy_piece(work: _Work, piece: _Piece) -> int:
    """Write the copies of some rows of a file, unless a killed builder has; return their number."""
    finished = read_piece(work.folder, piece.name)
    if finished is not None:
        return int(finished["copies"])
    found = next(islice(store.read_batches(piece.path), piece.batch, None))
    examples, keys = store.labelled_of(found.slice(piece.first, _ROWS_A_PIECE))
    kept = [example for example, trained in zip(examples, piece.trained, strict=True) if trained]
    copies: list[LabelledRow] = []
    neighbours, model = _read_neighbours(work.folder / f"{_NEIGHBOURS}.json"), work.model
    at_once = _ROWS_ON_ACCELERATOR if model is not None and model.device.type != "cpu" else 1
    with _one_thread():
        for start in range(0, len(kept), at_once):
            rows = kept[start : start + at_once]
            made = augment_rows(rows, work.settings, neighbours, model or _nothing, answers=work.answers)
            copies += chain.from_iterable(made)
    name = f"{piece.name}.arrow"
    with HashedFile(work.folder / name) as file, pa.ipc.new_stream(file, found.schema) as writer:
        if copies:
            own_keys = np.repeat(keys[piece.trained], work.settings.copies)
            writer.write_batch(store.batch_of(copies, own_keys, found.schema))
    finish_piece(work.folder, piece.name, [name], {"copies": len(copies)})
    return len(copies)


def _nothing(words: Sequence[MaskedWord]) -> list[list[str]]:
    return [[] for _ in words]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: what several add up may differ in the last bit, and processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _without_untrained(
    parts: Sequence[Path], roles: Mapping[Path, Roles], report: SourceReport
) -> Iterator[tuple[list[LabelledRow], NDArray[np.uint64]]]:
    """Iterate over the copies of all pieces but those with the text of a row that is not trained on."""
    untrained: set[int] = set()
    for path, of_file in roles.items():
        own = chain.from_iterable(keys.tolist() for _, keys in store.read_labelled(path))
        untrained |= {key for key, role in zip(own, of_file, strict=True) if role != TRAINED}
    for path in parts:
        for examples, keys in store.read_labelled(path):
            kept = [index for index, one in enumerate(examples) if Document(one.text).key not in untrained]
            report.note(
                "augmented copy with the same text as a held-out row, left out", path.stem, len(keys) - len(kept)
            )
            if kept:
                yield [examples[index] for index in kept], keys[kept]
