"""`BlockEncoding`: how the documents of each source become blocks of tokens.

A document is cut into *pieces* of a *unit* (paragraphs, sentences, titles and so on), and pieces are packed into
*blocks*, the token rows of a corpus of text. A source may have a *prompt*, a text in front of every piece. Student and
teacher read a piece in one of three ways:

- *alike*: they have the same tokenizer, and both read the prompt. There is one *reading*.
- *apart*: they have the same tokenizer, and the teacher alone reads the prompt. There are two readings.
- *by two tokenizers*: each has its own. There are two readings too, and blocks are cut by the teacher's tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limbeck.corpus.building.text_parts import texts_of_blocks
from limbeck.corpus.building.token_columns import BLOCK_COLUMNS, SEGMENTS, SPLITS, SplitBatch
from limbeck.corpus.settings import CorpusSettings, SourceUse
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import documents_of, read_batches
from limbeck.corpus.text.documents import Document, next_batch
from limbeck.corpus.text.pieces import UNITS, UNITS_OF_SENTENCES, Piece, cut_document
from limbeck.corpus.text.sentences import SENTENCE_RULES
from limbeck.corpus.text.text_keys import TEXT_KEY, text_key
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES
from limbeck.corpus.tokens.packing import BlockPacker, PackingCounts, segments_of
from limbeck.corpus.tokens.reading import PROMPT, TEACHER_IDS, TEACHER_PROMPT, Reading
from limbeck.corpus.tokens.shared_pieces import SharedPieces
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.errors import CorpusError

UNIT = "unit"
"""Column with the unit of a block's piece, by its place in `UNITS`. It exists where sources name their units."""
_NUMBER_OF_UNIT = {name: number for number, name in enumerate(UNITS)}
# Pieces that are tokenised together: few enough for the tokenizer's memory, and enough for its threads.
_PIECES_AT_ONCE = 1000
_CHARACTERS_AT_ONCE = 1_000_000
# Tokens of a record batch: opening a corpus touches every batch of it, so there should not be many.
_BATCH_TOKENS = 2**22
_PLAIN_TEXT = SourceUse()
_CUT = "text of which the student reads only the beginning"
_OTHER_PIECES = "text left out that holds other pieces than the student's vocabulary"
_SHOWN_CHARACTERS = 40
"""Most characters of foreign text in a message."""


class CutBlock(NamedTuple):
    """A block that was cut from a text.

    Args:
        ids: Its token ids, as the student reads them, special tokens included.
        columns: Values of further columns of its row: a number or an array each.
        cut_text: The text of which the student reads only the beginning; empty where it reads all of it.
        piece: The number of its piece among those that were packed together; None where a block may hold several.
    """

    ids: NDArray[np.int32]
    columns: Mapping[str, Any]
    cut_text: str = ""
    piece: int | None = None


class _DocumentPiece(NamedTuple):
    """A piece of one of the documents of a stored batch.

    Args:
        piece: The piece.
        document: The number of its document in the batch.
    """

    piece: Piece
    document: int


def note_cut_text(block: CutBlock, report: SourceReport) -> None:
    """Note a text of which the student reads only the beginning."""
    if block.cut_text:
        report.note(_CUT, repr(block.cut_text[:_SHOWN_CHARACTERS]))


@dataclass(frozen=True)
class BlockEncoding:
    """Turns documents into blocks of tokens; it can be sent to another process, as `RowEncoding` can.

    Args:
        readings: One reading for student and teacher, or that of the student and then that of the teacher. Blocks are
            cut by the teacher's tokens.
        unit: Name of the unit that documents are cut into, where their source does not name units.
        packing: Keyword arguments of `BlockPacker`; plain JSON values.
        held_below: A document whose key, a hash of its text, is below this number is held out from training.
        uses: The prompt and the units of each source; empty where no source has any.
        sources: Stored file → index of its source in `uses`; may be empty where `uses` is.
        has_keys: Whether blocks have the key of their text, see `text_key`.
        student_length: Most tokens of a block as the student reads it, where its tokenizer is another than the
            teacher's; 0 where both have the same tokenizer.
        whole_texts: Whether each piece is one block, which has its beginning, and the key of the whole piece.
        shared: Leaves out the texts that hold other pieces of a vocabulary; None where all texts are read.
    """

    readings: tuple[Reading, ...]
    unit: str
    packing: dict[str, Any]
    held_below: int = 0
    uses: tuple[SourceUse, ...] = ()
    sources: Mapping[Path, int] = field(default_factory=dict)
    has_keys: bool = False
    student_length: int = 0
    whole_texts: bool = False
    shared: SharedPieces | None = None

    @property
    def encoder(self) -> TokenEncoder:
        """The tokenizer by which blocks are cut."""
        return self._teacher_reading.encoder

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the blocks."""
        columns = [*BLOCK_COLUMNS]
        if self._makes_pairs:
            columns.append(SEGMENTS)
        if self._has_units:
            columns.append(pa.field(UNIT, pa.int8()))
        if self._has_prompts:
            columns.append(pa.field(PROMPT, pa.int32()))
        if self._has_two_readings:
            columns.append(pa.field(TEACHER_IDS, pa.list_(pa.int32())))
        if self._has_two_tokenizers and self._has_prompts:
            columns.append(pa.field(TEACHER_PROMPT, pa.int32()))
        if self.has_keys:
            columns.append(pa.field(TEXT_KEY, pa.int64()))
        return pa.schema(columns)

    def packer(self, source: int) -> BlockPacker:
        """Return a packer for the pieces of a source.

        Raises:
            CorpusError: if its prompt leaves no room for text.
        """
        (prompt,) = self.encoder.encode([self._use(source).prompt])
        return BlockPacker(**self.packing, prompt=prompt.tolist())

    def split(self, document: Document, source: int) -> list[Piece]:
        """Cut a document of a source into the pieces that blocks are made of."""
        return cut_document(document, self.unit, self._use(source).units)

    def blocks(self, pieces: Sequence[Piece], packer: BlockPacker, source: int) -> Iterator[CutBlock]:
        """Pack further pieces of a source, and iterate over the blocks that are full now.

        Where pieces are joined, the packer keeps the tokens that do not fill a block yet for the next call.

        Args:
            pieces: Pieces of the source's documents, as `split` returns them.
            packer: The packer of the source.
            source: Index of the source.
        """
        if self._makes_pairs:
            return self._blocks_of_pairs(pieces, packer)
        pieces_have_columns = self._has_units or self._has_prompts or self.has_keys or self._has_two_readings
        if pieces_have_columns:
            return self._described_blocks(pieces, packer, source)
        return self._plain_blocks(pieces, packer)

    def batches(self, path: Path, counts: dict[str, PackingCounts], report: SourceReport) -> Iterator[SplitBatch]:
        """Iterate over the record batches of one stored file.

        Args:
            path: The Arrow file of documents.
            counts: Receives the counts of each split, once all batches were given.
            report: Receives texts that are left out, and those of which the student reads only the beginning.
        """
        # Where all sources are read in one way, no file has a source, and the first stands for all.
        source = self.sources.get(path, 0)
        packers = {split: self.packer(source) for split in SPLITS}
        # Blocks of a split wait here until they have enough tokens for a record batch.
        waiting = {split: _WaitingBlocks(self.schema) for split in SPLITS}
        for split, block in self._blocks_of_file(path, source, packers, report):
            note_cut_text(block, report)
            waiting[split].add(block)
            if waiting[split].tokens >= _BATCH_TOKENS:
                yield SplitBatch(split, waiting[split].take())

        # At the end the last blocks make a smaller batch. Tokens that do not fill a block are dropped and counted.
        for split in SPLITS:
            packers[split].finish()
            counts[split] = packers[split].counts
            if waiting[split].tokens > 0:
                yield SplitBatch(split, waiting[split].take())

    def _blocks_of_file(
        self, path: Path, source: int, packers: Mapping[str, BlockPacker], report: SourceReport
    ) -> Iterator[tuple[str, CutBlock]]:
        """Iterate over the blocks of a stored file, each with its split."""
        for records in read_batches(path):
            is_held_out = records.column("key").to_numpy() < np.uint64(self.held_below)
            pieces_by_split = self._pieces_by_split(records, is_held_out, source)
            # Whether a block was made of each document of the batch.
            has_block = np.zeros(len(is_held_out), np.bool_)
            # Documents whose pieces hold other tokens than the student's vocabulary. Each such piece has its own note.
            uncovered_documents: set[int] = set()
            for split in SPLITS:
                pieces = iter(pieces_by_split[split])
                while next_pieces := next_batch(pieces, _PIECES_AT_ONCE, _CHARACTERS_AT_ONCE, _characters_of):
                    covered_pieces = self._leave_out_uncovered(next_pieces, source, report)
                    if len(covered_pieces) < len(next_pieces):
                        uncovered_documents |= _documents_of(next_pieces) - _documents_of(covered_pieces)
                    for block in self.blocks([piece for piece, _ in covered_pieces], packers[split], source):
                        if block.piece is not None:
                            has_block[covered_pieces[block.piece].document] = True
                        yield split, block
            # Joined pieces are all in the stream of tokens that blocks are cut from.
            if self.packing["join"]:
                continue
            minimum = packers["train"].minimum
            for number in np.flatnonzero(~is_held_out & ~has_block).tolist():
                packers["train"].counts.dropped_documents += 1
                if number not in uncovered_documents:
                    text = records.column("text")[number].as_py()
                    problem = f"document without a text of {minimum} tokens or more, left out"
                    report.note(problem, repr(text[:_SHOWN_CHARACTERS]))

    def _leave_out_uncovered(
        self, pieces: Sequence[_DocumentPiece], source: int, report: SourceReport
    ) -> Sequence[_DocumentPiece]:
        """Return the pieces of text of which the student's vocabulary has all tokens.

        These are all pieces, unless the student's vocabulary was cut from a whole one and `shared` is set.

        Args:
            pieces: Pieces of the source's documents.
            source: Index of the source, whose prompt stands in front of each.
            report: Receives the texts that are left out.
        """
        if self.shared is None or not pieces:
            return pieces
        prompt = self._use(source).prompt
        texts = [piece.text for piece, _ in pieces]
        are_covered = self.shared.cover([prompt + text for text in texts], by_sentence=self._makes_pairs)
        if prompt and not self._student_reading.reads_prompts:
            # The student reads the text alone, whose beginning may be cut into other tokens without the prompt.
            are_covered_alone = self.shared.cover(texts)
            are_covered = [
                with_prompt and alone for with_prompt, alone in zip(are_covered, are_covered_alone, strict=True)
            ]
        covered_pieces = []
        for document_piece, is_covered in zip(pieces, are_covered, strict=True):
            if is_covered:
                covered_pieces.append(document_piece)
            else:
                report.note(_OTHER_PIECES, repr(document_piece.piece.text[:_SHOWN_CHARACTERS]))
        return covered_pieces

    def _pieces_by_split(
        self, records: pa.RecordBatch, is_held_out: NDArray[np.bool_], source: int
    ) -> dict[str, list[_DocumentPiece]]:
        """Cut the documents of a stored batch into pieces, and gather those of each split."""
        pieces: dict[str, list[_DocumentPiece]] = {split: [] for split in SPLITS}
        for number, (document, is_held) in enumerate(zip(documents_of(records), is_held_out.tolist(), strict=True)):
            split = "held_out" if is_held else "train"
            pieces[split] += [_DocumentPiece(piece, number) for piece in self.split(document, source)]
        return pieces

    def _plain_blocks(self, pieces: Sequence[Piece], packer: BlockPacker) -> Iterator[CutBlock]:
        """Iterate over blocks without further columns."""
        texts = [piece.text for piece in pieces]
        for piece, ids in self._packed(self.encoder.encode(texts), packer):
            yield CutBlock(ids, {}, piece=piece)

    def _packed(
        self, ids_of_pieces: Sequence[NDArray[np.int32]], packer: BlockPacker
    ) -> Iterator[tuple[int | None, NDArray[np.int32]]]:
        """Iterate over the blocks of pieces, each with the number of its piece; None where pieces are joined."""
        if self.packing["join"]:
            for block in packer.pack(ids_of_pieces):
                yield None, block
            return
        for number, ids_of_piece in enumerate(ids_of_pieces):
            # No block is made of a piece without tokens.
            if len(ids_of_piece):
                for block in packer.blocks_of_unit(ids_of_piece):
                    yield number, block

    def _blocks_of_pairs(self, pieces: Sequence[Piece], packer: BlockPacker) -> Iterator[CutBlock]:
        """Iterate over blocks of two segments, as BERT reads them, with a column that numbers the segments."""
        texts = [piece.text for piece in pieces]
        separator = self.packing["separator"]
        for piece, ids in self._packed(self.encoder.encode_sentences(texts), packer):
            yield CutBlock(ids, {TOKEN_TYPES: segments_of(ids, separator)}, piece=piece)

    def _described_blocks(self, pieces: Sequence[Piece], packer: BlockPacker, source: int) -> Iterator[CutBlock]:
        """Iterate over blocks of one piece each, with columns for the piece's unit, prompt, teacher's ids or key."""
        prompt = self._use(source).prompt
        teacher_ids_of_pieces, student_ids_of_pieces = self._ids_of_both(pieces, prompt)
        prompt_columns: Mapping[str, int] = {}
        if self._has_prompts:
            prompt_columns = self._prompt_columns(prompt, packer)

        pieces_with_ids = zip(pieces, teacher_ids_of_pieces, student_ids_of_pieces, strict=True)
        for number, (piece, teacher_ids, student_ids) in enumerate(pieces_with_ids):
            fits = packer.holds(teacher_ids)
            # A block that stands for its whole piece has a key that does not depend on tokens.
            is_whole = self.whole_texts or fits
            # Some pieces are one block, of which each side reads the beginning.
            cut_text = ""
            if self._is_one_block(piece) and not fits:
                cut_text = piece.text
                teacher_ids, student_ids = self._beginnings(teacher_ids, student_ids, packer)

            for block in self._blocks_of_piece(piece, prompt, teacher_ids, student_ids, packer):
                columns: dict[str, Any] = dict(prompt_columns)
                if self._has_units:
                    columns[UNIT] = _NUMBER_OF_UNIT[piece.kind]
                if self.has_keys:
                    columns[TEXT_KEY] = _key_of_block(block, piece, prompt, is_whole=is_whole)
                columns.update(block.columns)
                yield CutBlock(block.ids, columns, cut_text or block.cut_text, number)

    def _ids_of_both(
        self, pieces: Sequence[Piece], prompt: str
    ) -> tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]]:
        """Return the ids of each piece with its prompt: as the teacher reads it, and as the student reads it."""
        texts = [piece.text for piece in pieces]
        # A teacher that reads another text than the student, such as a translation, has a tokenizer of its own, or its
        # outputs are stored by the keys of texts. In the second case blocks are cut by the student's text.
        teacher_texts = texts
        if self._has_two_tokenizers:
            teacher_texts = [piece.teacher_text or piece.text for piece in pieces]
        teacher_ids_of_pieces = self._teacher_reading.encode(teacher_texts, prompt)
        # With one tokenizer, student and teacher read a piece without a prompt alike, so it is tokenised once.
        only_teacher_reads_prompt = self._has_two_readings and bool(prompt)
        read_alike = not self._has_two_tokenizers and not only_teacher_reads_prompt
        if read_alike:
            return teacher_ids_of_pieces, teacher_ids_of_pieces
        return teacher_ids_of_pieces, self._student_reading.encode(texts, prompt)

    def _beginnings(
        self, teacher_ids: NDArray[np.int32], student_ids: NDArray[np.int32], packer: BlockPacker
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the beginning of a long piece that is one block: the teacher's ids, and the student's.

        Args:
            teacher_ids: Ids of prompt and piece, as the teacher reads them; too many for one block.
            student_ids: Ids of the piece as the student reads it.
            packer: Cuts the teacher's blocks.
        """
        beginning = packer.beginning(teacher_ids)
        if self._has_two_tokenizers:
            # The student's are cut to a length of their own in `_blocks_by_two_tokenizers`.
            return beginning, student_ids
        # Both sides end with the same ids, so as many are cut off from each.
        cut_ids = len(teacher_ids) - len(beginning)
        kept_ids = max(len(student_ids) - cut_ids, 0)
        return beginning, student_ids[:kept_ids]

    def _blocks_of_piece(
        self,
        piece: Piece,
        prompt: str,
        teacher_ids: NDArray[np.int32],
        student_ids: NDArray[np.int32],
        packer: BlockPacker,
    ) -> Iterator[CutBlock]:
        """Iterate over the blocks of a piece, by the way in which student and teacher read it (see the module).

        Args:
            piece: The piece.
            prompt: The text in front of it.
            teacher_ids: Ids of prompt and piece, as the teacher reads them.
            student_ids: Ids of the piece as the student reads it.
            packer: Cuts the teacher's blocks.
        """
        if self._has_two_tokenizers:
            return self._blocks_by_two_tokenizers(piece, prompt, teacher_ids, student_ids, packer)
        if self._has_two_readings:
            return _blocks_read_apart(teacher_ids, student_ids, packer)
        return _blocks_read_alike(teacher_ids, packer)

    def _is_one_block(self, piece: Piece) -> bool:
        """Whether a piece makes one block, however long it is."""
        if self.whole_texts:
            return True
        # The parts of a text and those of its translation do not correspond.
        return self._has_two_tokenizers and piece.teacher_text is not None

    def _blocks_by_two_tokenizers(
        self,
        piece: Piece,
        prompt: str,
        teacher_ids: NDArray[np.int32],
        student_ids: NDArray[np.int32],
        packer: BlockPacker,
    ) -> Iterator[CutBlock]:
        """Iterate over the blocks of a piece that is cut by the teacher's tokens.

        The student reads the text of each block by its own tokenizer, as far as it fits into its length.

        Args:
            piece: The piece.
            prompt: The text in front of it.
            teacher_ids: Ids of prompt and piece, as the teacher reads them; of a piece that is one block, those that
                fit into it.
            student_ids: Ids of the piece, as the student reads it, with the prompt if it reads that.
            packer: Cuts the teacher's blocks.
        """
        # The text of each block and its ids, as the student reads them.
        texts = [piece.text]
        student_ids_of_blocks = [student_ids]
        if not packer.holds(teacher_ids):
            texts = texts_of_blocks(piece.text, prompt, self.encoder, packer)
            student_ids_of_blocks = self._student_reading.encode(texts, prompt)

        student = self._student_reading.encoder
        room = self.student_length - len(student.prefix) - len(student.suffix)
        # There may be a text without a block: the packer drops a last block of a few tokens.
        teacher_blocks = packer.pack([teacher_ids])
        for teacher_block, text, ids in zip(teacher_blocks, texts, student_ids_of_blocks, strict=False):
            block = np.asarray([*student.prefix, *ids[:room], *student.suffix], dtype=np.int32)
            cut_text = text if len(ids) > room else ""
            yield CutBlock(block, {TEACHER_IDS: teacher_block}, cut_text)

    def _prompt_columns(self, prompt: str, packer: BlockPacker) -> dict[str, int]:
        """Return the columns that say how many tokens of a block belong to the prompt of its source.

        With one tokenizer this is one column, for the side or the sides that read the prompt. With two tokenizers each
        side has a column.
        """
        tokens_of_teacher = 0
        if prompt:
            tokens_of_teacher = _tokens_left_out(self.encoder, packer.prompt)
        if not self._has_two_tokenizers:
            return {PROMPT: tokens_of_teacher}

        tokens_of_student = 0
        if prompt and self._student_reading.reads_prompts:
            student = self._student_reading.encoder
            (student_prompt,) = student.encode([prompt])
            tokens_of_student = _tokens_left_out(student, student_prompt)
        return {PROMPT: tokens_of_student, TEACHER_PROMPT: tokens_of_teacher}

    def _use(self, source: int) -> SourceUse:
        """The prompt and the units of a source; neither where no source has any."""
        return self.uses[source] if self.uses else _PLAIN_TEXT

    @property
    def _makes_pairs(self) -> bool:
        """Whether blocks are pairs of segments; the packing of other blocks does not have the key."""
        return "pairs" in self.packing

    @property
    def _student_reading(self) -> Reading:
        return self.readings[0]

    @property
    def _teacher_reading(self) -> Reading:
        return self.readings[-1]

    @property
    def _has_two_readings(self) -> bool:
        """Whether student and teacher read apart or by two tokenizers, so that rows have the ids of both."""
        return len(self.readings) > 1

    @property
    def _has_two_tokenizers(self) -> bool:
        """Whether student and teacher read by two tokenizers."""
        return self.student_length > 0

    @cached_property
    def _has_units(self) -> bool:
        return any(use.units for use in self.uses)

    @cached_property
    def _has_prompts(self) -> bool:
        return any(use.prompt for use in self.uses)


def block_encoding(
    settings: CorpusSettings, tokenizer: Any, teacher_tokenizer: Any = None, whole_tokenizer: Any = None
) -> BlockEncoding:
    """Return how documents become blocks under these settings.

    Args:
        settings: The settings.
        tokenizer: The student's tokenizer.
        teacher_tokenizer: The teacher's, by which blocks are cut; None where it is the student's.
        whole_tokenizer: The whole one from which the student's was cut, where texts are left out that the two cut
            differently; None where all texts are read.

    Raises:
        CorpusError: if text cannot be packed so with these tokenizers.
    """
    _check_blocks_are_texts(settings, has_two_tokenizers=teacher_tokenizer is not None)
    student_encoder = TokenEncoder(tokenizer)
    encoder = student_encoder if teacher_tokenizer is None else TokenEncoder(teacher_tokenizer)
    packing: dict[str, Any] = {
        "length": settings.length,
        "prefix": encoder.prefix,
        "suffix": encoder.suffix,
        "minimum": settings.minimum_tokens,
        "join": settings.join,
        "separator": encoder.separator,
    }
    # The key is left out without pairs, so that older caches keep their fingerprints.
    if settings.pairs:
        packing["pairs"] = True
    uses = settings.uses if settings.has_pieces else ()
    # There is one reading where both models read alike, and otherwise that of the student and then that of the teacher.
    # They differ where the teacher has another tokenizer, and where only the teacher reads prompts.
    readings = [Reading(encoder)]
    student_length = 0
    only_teacher_reads_prompts = not settings.student_reads_prompts and any(use.prompt for use in uses)
    if teacher_tokenizer is not None:
        readings = [Reading(student_encoder, reads_prompts=settings.student_reads_prompts), Reading(encoder)]
        student_length = settings.student_length or settings.length
    elif only_teacher_reads_prompts:
        readings = [Reading(encoder, reads_prompts=False), Reading(encoder)]
    shared = None
    if whole_tokenizer is not None:
        shared = SharedPieces(whole_tokenizer, tokenizer)
    encoding = BlockEncoding(
        tuple(readings),
        settings.unit,
        packing,
        uses=uses,
        has_keys=settings.text_keys,
        student_length=student_length,
        whole_texts=settings.whole_texts,
        shared=shared,
    )

    # Making the packer of a source is the check that its prompt leaves room for text. Without `uses` all sources have
    # the same packer.
    for source in range(max(len(uses), 1)):
        encoding.packer(source)
    return encoding


def _check_blocks_are_texts(settings: CorpusSettings, *, has_two_tokenizers: bool) -> None:
    """Refuse blocks of several texts where each must be of one text, since it has a key or is read by two tokenizers.

    This is not a rule of the settings alone: a recipe turns keys on in settings that have been checked before.
    """
    for option in ("join", "pairs"):
        if not getattr(settings, option):
            continue
        if settings.text_keys:
            raise CorpusError(
                f"{option} joins texts into blocks, but stored outputs are found by the key of each text: leave "
                f"{option} or text_keys out."
            )
        if has_two_tokenizers:
            raise CorpusError(
                f"{option} cuts text by the tokens of one model, but student and teacher have two tokenizers: leave "
                f"{option} out."
            )


def block_identity(settings: CorpusSettings, encoding: BlockEncoding) -> list[Any]:
    """Return plain JSON values that change whenever the same documents would become other blocks."""
    split = {"unit": settings.unit, "held_out": settings.held_out, "most_held": settings.held_out_documents}
    identity: list[Any] = [encoding.encoder.fingerprint(), encoding.packing, split]
    # Whatever is added for an option must be added only where the option is set, or older caches would be built anew.
    if settings.cutting:
        identity.append(settings.cutting)
    if settings.text_keys:
        identity.append(TEXT_KEY)
    if encoding.whole_texts:
        identity.append("whole texts")
        if len(encoding.readings) > 1:
            # Earlier versions cut such a text into several blocks, all with the key of the whole one.
            identity.append("one block")
    if encoding.student_length:
        # Student and teacher have two tokenizers. The first of the two readings is the student's.
        student_reading = encoding.readings[0]
        identity.append([student_reading.encoder.fingerprint(), encoding.student_length, student_reading.reads_prompts])
    if encoding.shared is not None:
        identity.append({"shared_with": encoding.shared.encoder.fingerprint()})
    # Another rule of where sentences end changes only what is cut by sentences: units, and the segments of pairs.
    units: set[str] = {settings.unit}
    for use in settings.uses:
        units.update(use.units)
    if settings.pairs or units & UNITS_OF_SENTENCES:
        identity.append({"sentence_rules": SENTENCE_RULES})
    return identity


class _WaitingBlocks:
    """Blocks that wait to become a record batch.

    Args:
        schema: Columns of the batch.

    Attributes:
        tokens: Tokens of all blocks that wait.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._blocks: list[CutBlock] = []
        self.tokens = 0

    def add(self, block: CutBlock) -> None:
        """Add a block."""
        self._blocks.append(block)
        self.tokens += len(block.ids)

    def take(self) -> pa.RecordBatch:
        """Return all waiting blocks as a record batch, and forget them."""
        rows = [{"input_ids": block.ids, "length": len(block.ids), **block.columns} for block in self._blocks]
        self._blocks = []
        self.tokens = 0
        columns = [_column([row[field.name] for row in rows], field.type) for field in self._schema]
        return pa.record_batch(columns, schema=self._schema)


def _blocks_read_alike(ids: NDArray[np.int32], packer: BlockPacker) -> Iterator[CutBlock]:
    """Iterate over the blocks of a piece that both sides read alike."""
    for block in packer.pack([ids]):
        yield CutBlock(block, {})


def _blocks_read_apart(
    teacher_ids: NDArray[np.int32], student_ids: NDArray[np.int32], packer: BlockPacker
) -> Iterator[CutBlock]:
    """Iterate over the blocks of a piece as the student reads them, each with the ids that the teacher reads.

    The teacher's blocks are `prefix, prompt and text, suffix`, and the student's are `prefix, text, suffix`. The blocks
    of both have the same text.

    Args:
        teacher_ids: Ids of the prompt and the piece, as the teacher reads them; by these the piece is cut.
        student_ids: Ids of the piece without the prompt, as the student reads it.
        packer: Cuts the teacher's blocks; every one begins with the prompt.
    """
    for number, teacher_block in enumerate(packer.pack([teacher_ids])):
        teacher_content = teacher_block[len(packer.prefix) : len(teacher_block) - len(packer.suffix)]
        if number == 0:
            # A tokenizer may join the end of the prompt and the beginning of the text into one token, so the text's
            # beginning in the block is unknown. But both sides have the same ids behind this block, and the student's
            # part is all that stands before these.
            ids_behind_block = len(teacher_ids) - len(teacher_content)
            student_ids_in_block = max(len(student_ids) - ids_behind_block, 0)
            student_content = student_ids[:student_ids_in_block]
        else:
            # The packer puts the prompt in front of every further block.
            student_content = teacher_content[len(packer.prompt) :]
        student_block = np.asarray([*packer.prefix, *student_content, *packer.suffix], dtype=np.int32)
        yield CutBlock(student_block, {TEACHER_IDS: teacher_block})


def _key_of_block(block: CutBlock, piece: Piece, prompt: str, *, is_whole: bool) -> int:
    """Return the key of the text that the teacher reads in a block, see `text_key`.

    Args:
        block: The block.
        piece: The piece that it was cut from.
        prompt: The prompt of its source.
        is_whole: Whether the block stands for the whole piece. The key has no tokens then, so that a teacher with any
            tokenizer finds it.
    """
    teacher_ids = None
    if not is_whole:
        teacher_ids = block.columns.get(TEACHER_IDS, block.ids)
    return text_key(piece.teacher_text or piece.text, prompt=prompt, cut_to=teacher_ids)


def _tokens_left_out(encoder: TokenEncoder, prompt: Sequence[int] | NDArray[np.int32]) -> int:
    """Count the tokens at the beginning of a block with a prompt that are left out of the pooled embedding.

    By convention this is the length of the prompt, encoded alone with its special tokens, minus the last special token.

    Args:
        encoder: The tokenizer of the side that reads the block.
        prompt: The ids of the prompt.
    """
    return len(encoder.prefix) + len(prompt) + max(len(encoder.suffix) - 1, 0)


def _column(values: list[Any], column_type: pa.DataType) -> pa.Array:
    """Make a column of an Arrow table; NumPy joins lists, which is faster than by Arrow."""
    if not pa.types.is_list(column_type):
        return pa.array(values, column_type)
    # Arrow keeps a column of lists as one long array, and the place in it where each list begins.
    lengths = np.fromiter(map(len, values), np.int32, len(values))
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(values)))


def _documents_of(pieces: Sequence[_DocumentPiece]) -> set[int]:
    return {document_piece.document for document_piece in pieces}


def _characters_of(document_piece: _DocumentPiece) -> int:
    return len(document_piece.piece.text)
