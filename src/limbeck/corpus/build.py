"""Corpora: documents or labelled rows and a tokenizer to token rows on disk, from the cache where it has them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from limbeck.core.blocks import counted
from limbeck.core.cache import NothingToBuildError, build_once, finish_piece, read_manifest, read_piece
from limbeck.core.hashing import fingerprint
from limbeck.core.kinds import KINDS, KindName
from limbeck.core.paths import default_cache_dir
from limbeck.core.process_pools import map_parallel
from limbeck.core.seals import HashedFile
from limbeck.corpus import answers, splitting, store
from limbeck.corpus.batches import QUERY
from limbeck.corpus.blocks import BLOCK_COLUMNS, SEGMENTS, SPLITS, UNIT, BlockEncoding, block_encoding, block_identity
from limbeck.corpus.documents import Document, clean_text
from limbeck.corpus.labelled import TOKEN_TYPES, WORD_GAP, SequenceEncoder, WordEncoder
from limbeck.corpus.messages import safe_name
from limbeck.corpus.mixing import RowMix
from limbeck.corpus.packing import PackingCounts, TokenEncoder
from limbeck.corpus.pieces import UNITS
from limbeck.corpus.settings import CorpusSettings, LabelledSettings, Mixing, SourceUse
from limbeck.corpus.settings.mix import shares_by_size
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.store import Progress
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    import datasets

BLOCK_FORMAT = 2
"""Raise it when the same documents would give other blocks: older caches are then built anew."""
LABELLED_FORMAT = 2
"""Raise it when the same rows would give other tokens: older caches are then built anew."""

_WAITING = "waiting for another process that tokenises"


class Corpus:
    """A finished corpus, opened from its folder.

    Args:
        path: The folder that `build_corpus` made.
        mix: The shares of its sources; `None` reads every row once an epoch.
        titles: What records call the sources; `None` for their names.
        uses: How each source is read; none: all alike.

    Attributes:
        path: The folder.
        titles: What records call the sources.
        manifest: Counts, settings, tokenizer and report of the build.
        train: Blocks to train on: columns `input_ids` and `length`, of pairs also `token_type_ids`.
        held_out: Blocks of the held-out documents, the same columns; empty when nothing is held out.
        shorter: The same text in shorter blocks, which a stage trains on before, the shortest first.

    Raises:
        CorpusError: if the folder is not a complete corpus.
    """

    def __init__(
        self,
        path: str | Path,
        mix: Mixing | None = None,
        titles: Sequence[str] | None = None,
        uses: Sequence[SourceUse] = (),
    ) -> None:
        self.path = Path(path)
        self.mix = mix
        self.uses = uses
        manifest = read_manifest(self.path)
        if manifest is None or "splits" not in manifest:
            raise CorpusError(f"'{path}' is not a complete corpus, or is damaged: build it with build_corpus.")
        self.manifest: dict[str, Any] = manifest
        self.titles: Sequence[str] = titles or manifest["settings"]["sources"]
        self.train: datasets.Dataset = self._open("train")
        self.held_out: datasets.Dataset = self._open("held_out")
        self.shorter: Sequence[Corpus] = ()

    @property
    def views(self) -> list[Corpus]:
        """The text at every length of a stage, the shortest first; this corpus is the last, and mostly alone."""
        return [*self.shorter, self]

    @property
    def content(self) -> list[str]:
        """A hash of what was made of each source, wherever it lies: its blocks, or of a stream its beginning.

        Of labelled rows there is one of the rows of each source, and a last one of all their tokens.
        """
        return list(self.manifest.get("content", ()))

    @property
    def identity(self) -> str:
        """A hash of the content of all sources."""
        return store.digest_of(self.content)

    @property
    def tokens(self) -> int:
        """Number of tokens to train on, special tokens included."""
        return int(self.manifest["splits"]["train"]["tokens"])

    @property
    def report(self) -> SourceReport:
        """Everything that was skipped or repaired while the sources were read."""
        return SourceReport.from_dict(self.manifest["report"])

    def row_mix(self, seed: int) -> RowMix | None:
        """Return which rows an epoch has under the mix, or `None` without one.

        Args:
            seed: Decides the draw.

        Raises:
            CorpusError: if a source has no row to train on.
        """
        if self.mix is None:
            return None
        rows: list[int] = self.manifest["source_rows"]
        for number, count in enumerate(rows):
            if count == 0:
                name = self.titles[number]
                raise CorpusError(
                    f"The source '{safe_name(name)}' has no block to train on once repeated and held-out documents "
                    "are left out: "
                    "give more of its text, or leave it out of the mix."
                )
        return RowMix(rows, self.mix.shares(rows), seed)

    def shares(self) -> list[float]:
        """Return the share of each source in what is trained on."""
        rows: list[int] = self.manifest["source_rows"]
        return shares_by_size(rows) if self.mix is None else self.mix.shares(rows)

    def shares_of_roles(self) -> dict[str, int | float]:
        """Return the share of each role in what is trained on; empty where no source has one."""
        shares: dict[str, int | float] = {}
        for use, share in zip(self.uses, self.shares() if self.uses else (), strict=True):
            shares[use.role or "no role"] = shares.get(use.role or "no role", 0.0) + share
        return shares if any(use.role for use in self.uses) else {}

    def rows_by_unit(self) -> dict[str, int | float]:
        """Count the rows to train on by the unit that they are, of a stream at its beginning; empty for one unit."""
        if UNIT not in self.train.column_names:
            return {}
        counts = np.bincount(self.train.with_format("numpy")[UNIT][:], minlength=len(UNITS))
        return {name: int(count) for name, count in zip(UNITS, counts, strict=True) if count}

    def describe_rows(self) -> Iterator[str]:
        """Say what the rows to train on are, in a line by role and one by unit; nothing where all are alike."""
        if roles := self.shares_of_roles():
            yield "by role: " + ", ".join(f"{role} {share:.1%}" for role, share in roles.items())
        if pieces := self.rows_by_unit():
            total = sum(pieces.values())
            yield "by unit: " + ", ".join(f"{unit} {n:,} ({n / total:.1%})" for unit, n in pieces.items())

    def held_out_documents(self) -> list[Document]:
        """Return the text of the held-out documents, in the order of the sources."""
        return list(store.read_documents(self.path))

    def __repr__(self) -> str:
        return f"Corpus({len(self.train):,} blocks, {self.tokens:,} tokens, {str(self.path)!r})"

    def _open(self, split: str) -> datasets.Dataset:
        import datasets  # Training on batches of one's own needs no corpus.

        files = sorted(self.path.glob(f"{split}-*.arrow"))
        # Opening the files themselves keeps the library's own cache out of it.
        parts = [datasets.Dataset.from_file(str(file)) for file in files]
        return datasets.concatenate_datasets([part for part in parts if len(part)] or parts[:1])


class LabelledCorpus(Corpus):
    """A finished labelled corpus, opened from its folder.

    `train` and `held_out` have the columns `input_ids`, `length`, `labels` (number of the class, value, first and last
    token of the answer, or of each token the number of its word's class, -100 for all but a word's first) and, where
    the tokenizer's model has segments, `token_type_ids`. A question has a row for every window of its context, and so
    has a sentence of tagged words that is longer than one. Of a ranking a row is a pair of query and document, its
    label NaN where it has none; the column `query` numbers the query.

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
        self.task: KindName = self.manifest["task"]

    def __repr__(self) -> str:
        return f"LabelledCorpus({self.task}, {len(self.train):,} rows, {self.tokens:,} tokens, {str(self.path)!r})"


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
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        workers: Processes; the default is one per CPU core.
        progress: Called with the name of the step, the amount done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable or empty, a row lacks a column or a label, class names are
            missing, or the tokenizer or the length does not suit the task.
        ModelError: if a model that augments cannot be loaded.
    """
    cache = cache_folder(cache_dir)
    encoding = _row_encoding(settings, tokenizer)
    rows, stored = store.store_rows(settings, cache, progress=progress)
    kind = [TokenEncoder(tokenizer).fingerprint(), list(tokenizer.model_input_names)]
    kind += [tokenizer.padding_side, tokenizer.truncation_side]
    cut: list[Any] = [settings.length, settings.stride if KINDS[settings.task].has_answers else None, settings.held_out]
    if settings.rows is not None and settings.pair_column is not None:
        cut.append("pairs")  # Only then, so that other fingerprints are as they were.
    development: Path | None = None
    scored: dict[str, Any] = {"content": []}
    if settings.development is not None:
        changes = {"sources": ["development rows"], "rows": settings.development, "development": None, "max_rows": None}
        development, scored = store.store_rows(settings.model_copy(update=changes), cache, progress=progress)
        cut.append(development.name)
    if settings.augment is not None:
        from limbeck.corpus import augmentation  # It imports models, which take seconds that no other corpus needs.

        cut.append(augmentation.identity(settings.augment))
    folder = cache / "labelled" / fingerprint([LABELLED_FORMAT, rows.name, kind, cut])

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
            made, copied = augmentation.store_copies(settings, rows, roles, cache, workers=workers, progress=progress)
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
        held_rows, documents = _held_out_documents(roles, of_words=KINDS[settings.task].of_words)
        for more in (told, report):
            read.merge(more)
        return {
            "format": LABELLED_FORMAT,
            "task": settings.task,
            "settings": settings.content(),
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": kind[0]},
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


@dataclass(frozen=True)
class RowEncoding:
    """Labelled rows to token rows.

    Args:
        encoder: Makes tokens of rows.
        schema: Columns of the result.
        roles: Of each stored file what becomes of its rows.
    """

    encoder: answers.AnswerWindows | SequenceEncoder | WordEncoder
    schema: pa.Schema
    roles: Mapping[Path, splitting.Roles] = field(default_factory=dict)

    def batches(
        self, path: Path, counts: dict[str, PackingCounts], report: SourceReport
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Encode the rows of each split; see `BlockEncoding.batches`."""
        before = 0
        for examples, keys in store.read_examples(path):
            roles = self.roles[path][before : before + len(examples)]
            before += len(examples)
            for split, role in zip(SPLITS, (splitting.TRAINED, splitting.HELD_OUT), strict=True):
                chosen = np.flatnonzero(roles == role)
                own = [examples[index] for index in chosen]
                rows = self.encoder.encode(own, report) if own else None
                if rows is not None and rows.input_ids:
                    lengths = list(map(len, rows.input_ids))
                    more: list[Any] = [] if rows.token_type_ids is None else [rows.token_type_ids]
                    if QUERY in self.schema.names:
                        more.append(keys[chosen].view(np.int64))
                    counts[split].blocks += len(lengths)
                    counts[split].tokens += sum(lengths)
                    yield split, pa.record_batch([rows.input_ids, lengths, rows.labels, *more], schema=self.schema)


def _row_encoding(settings: LabelledSettings, tokenizer: Any) -> RowEncoding:
    encoder: answers.AnswerWindows | SequenceEncoder | WordEncoder
    kind = KINDS[settings.task]
    if kind.has_answers:
        encoder = answers.AnswerWindows(tokenizer, settings.length, settings.stride)
    elif kind.of_words:
        encoder = WordEncoder(tokenizer, settings.length)
    else:
        paired = kind.has_queries or settings.pair_column is not None
        encoder = SequenceEncoder(tokenizer, settings.length, paired)
    columns = [*BLOCK_COLUMNS, pa.field("labels", store.LABEL_TYPES[kind.label])]
    if TOKEN_TYPES in tokenizer.model_input_names:
        columns.append(SEGMENTS)
    if kind.has_queries:
        columns.append(pa.field(QUERY, pa.int64()))
    return RowEncoding(encoder, pa.schema(columns))


def tokenise(
    files: Sequence[Path],
    folder: Path,
    encoding: BlockEncoding | RowEncoding,
    nothing: str,
    *,
    workers: int | None = 1,
    progress: Progress | None = None,
    amount: tuple[int, str] = (0, ""),
) -> tuple[dict[str, dict[str, int]], list[int], list[str], SourceReport]:
    """Write the token rows of stored files: of each a file a split, named after its number.

    Args:
        files: Arrow files of documents or rows.
        folder: Where the files of token rows go; those that a killed builder has finished stay.
        encoding: Makes the token rows.
        nothing: The message where there is no row to train on.
        workers: Processes; `None` is one per CPU core.
        progress: Called as files are finished.
        amount: Size of all files together, for `progress`, and its unit.

    Returns:
        The counts of each split; of each file the rows to train on, and a hash of all rows; everything that was cut or
        left out.

    Raises:
        CorpusError: if there is no row to train on.
    """
    total, unit = amount
    step = store.bind_progress(progress, "tokenising")
    splits = {split: Counter(asdict(PackingCounts())) for split in SPLITS}
    rows, digests, report = [], [], SourceReport()
    if step is not None:
        step(0, total, unit)
    work = partial(_tokenise_file, folder, encoding)
    for done in map_parallel(work, list(enumerate(files)), workers):
        for split in SPLITS:
            splits[split].update(done["counts"][split])
        rows.append(done["counts"]["train"]["blocks"])
        digests.append(done["content"])
        report.merge(SourceReport.from_dict(done["report"]))
        if step is not None:
            step(total * len(rows) // len(files), total, unit)
    if sum(rows) == 0:
        raise NothingToBuildError(nothing)
    return {split: dict(counts) for split, counts in splits.items()}, rows, digests, report


def _tokenise_file(folder: Path, encoding: BlockEncoding | RowEncoding, numbered: tuple[int, Path]) -> dict[str, Any]:
    """Write the token rows of one file, unless a killed builder has; return counts, hash and report as JSON values."""
    number, path = numbered
    name = f"tokens-{number:05d}"
    finished = read_piece(folder, name)
    if finished is None or "content" not in finished:
        counts, report = {split: PackingCounts() for split in SPLITS}, SourceReport()
        files = {split: f"{split}-{number:05d}.arrow" for split in SPLITS}
        with ExitStack() as stack:
            writers = {}
            for split, file_name in files.items():
                file = stack.enter_context(HashedFile(folder / file_name))
                writers[split] = stack.enter_context(pa.ipc.new_stream(file, encoding.schema))
            # Of the values, so that it does not depend on how they are stored.
            parts = {
                (split, part): hashlib.blake2b(digest_size=12) for split in SPLITS for part in encoding.schema.names
            }
            for split, batch in encoding.batches(path, counts, report):
                writers[split].write_batch(batch)
                for part, column in zip(encoding.schema.names, batch.columns, strict=True):
                    values = column if pa.types.is_primitive(column.type) else column.flatten()
                    parts[split, part].update(values.to_numpy(zero_copy_only=False).tobytes())
        finished = {
            "counts": {split: asdict(counts[split]) for split in SPLITS},
            "content": store.digest_of(digest.hexdigest() for digest in parts.values()),
            "report": report.to_dict(),
        }
        finish_piece(folder, name, [*files.values()], finished)
    return finished


def _held_out_documents(roles: Mapping[Path, splitting.Roles], *, of_words: bool) -> tuple[int, Iterator[Document]]:
    """Return the number of held-out rows, and a document for each of their texts with its second texts."""
    count = 0
    lines: dict[str, list[str]] = {}
    for path, of_file in roles.items():
        examples = (example for part, _ in store.read_examples(path) for example in part)
        for example, role in zip(examples, of_file, strict=True):
            if role == splitting.HELD_OUT:
                count += 1
                text = example.text.replace(WORD_GAP, " ") if of_words else example.text
                seconds = lines.setdefault(text, [])
                if example.pair is not None and example.pair not in seconds:
                    seconds.append(example.pair)
    return count, (Document(clean_text("\n".join([text, *seconds]))) for text, seconds in lines.items())
