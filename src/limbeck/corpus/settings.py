"""Settings that decide the content of a corpus, of text or of labelled rows, and the mix of its sources."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from limbeck.core.kinds import KIND_NAMES, KINDS, KindName, LabelKind
from limbeck.corpus.documents import UNITS, SourceReport
from limbeck.errors import CorpusError, suggestion

if TYPE_CHECKING:
    from limbeck.corpus.labelled import Example

LabelledTask: TypeAlias = KindName

_TEXT_COLUMNS = ("text_column", "pair_column", "label_column")
_COLUMNS: Mapping[LabelKind, tuple[str, ...]] = {
    "span": ("question_column", "context_column", "answers_column"),
    "relevance": ("query_column",),
    "token": ("tokens_column", "tags_column"),
}
"""Settings that name a row's columns, by the kind of its label; those of texts by default."""

ModelName: TypeAlias = tuple[str, str | None]
"""A folder, `package:NAME` or a Hub name, and of the last the branch, tag or commit."""


@dataclass(frozen=True)
class Augmentation:
    """Settings of TinyBERT's data augmentation: copies of rows with other words; see `augmentation.augment_rows`.

    Args:
        copies: N_a, how many copies a row has.
        probability: p_t, the chance of a word to be replaced, above 0 up to 1.
        candidates: K, how many words it may be replaced by, all equally likely.
        masked_lm: The masked language model that proposes words in the place of those that are a single piece of its
            tokenizer; without one, they have neighbours too.
        word_vectors: A text file of word vectors as GloVe's, or the model whose word embeddings are taken, for the
            neighbours of all other words; without them those stay.
        context: What words are predicted from: `"copy"`, the copy with the words that are replaced before, as the paper
            has it, or `"row"`, the row as it stands: about N_a p_t times fewer predictions.
        seed: Decides which words are replaced by which.

    Raises:
        CorpusError: if a value cannot be meant, or there is neither a model nor word vectors.
    """

    copies: int = 20
    probability: float = 0.4
    candidates: int = 15
    masked_lm: ModelName | None = None
    word_vectors: str | ModelName | None = None
    context: Literal["copy", "row"] = "copy"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("copies", "candidates"):
            if getattr(self, name) < 1:
                raise CorpusError(f"augment.{name} is {getattr(self, name)}: give 1 or more.")
        if not 0 < self.probability <= 1:
            raise CorpusError(f"augment.probability is {self.probability}: give a chance above 0, up to 1.")
        if self.masked_lm is None and self.word_vectors is None:
            raise CorpusError("An augmentation needs masked_lm, word_vectors or both, but neither is given.")


class ExampleSource(Protocol):
    """Labelled rows that somebody else reads, such as a task's: examples as they are, classes by their numbers."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the examples may have changed."""

    def examples(self, report: SourceReport) -> Iterator[Example]:
        """Iterate over the examples; the report receives what is left out."""


@dataclass(frozen=True)
class LabelledSettings:
    """Settings of a labelled corpus: its sources, their columns, and how rows become token sequences.

    Args:
        task: Kind of the label: a class, a value, the place of an answer in a context, a class for each word, or the
            relevance of documents to a query.
        sources: Files, folders, globs, or Hub data sets (`hub:owner/name`); a lone string is one source.
        length: Most tokens in a row, special tokens included. Longer texts are cut, the longer of a pair first; a
            longer context, or sentence of tagged words, becomes several windows.
        text_column: Column of the text.
        pair_column: Column of the second text, for tasks on pairs.
        label_column: Column of the class (a name or a number), or of the value; where a row may have several classes,
            of a list of them, or of text that has them between `|`, `;` or `,`; for rankings of the relevance of each
            document, where rows have it.
        label_columns: In its place, a column of 0 and 1 for each class, named after it.
        question_column: Column of the question.
        context_column: Column of the context.
        answers_column: Column of the answers, `{"text": [...], "answer_start": [...]}` as SQuAD has them.
        query_column: Column of the query.
        document_columns: Columns of its documents, each a text or a list of texts; of several the first holds the
            relevant ones.
        documents_per_query: Most documents of a query that a batch holds together; more become several groups.
        tokens_column: Column of the list of a sentence's words.
        tags_column: Column of the list of their classes (names or numbers).
        labels: Class names in the order of their numbers, from the teacher's `id2label`; where there are classes.
        stride: Tokens of a context that neighbouring windows share.
        held_out: Share of the texts (contexts) kept from training, chosen by a hash of each: all rows on one text stay
            together, whatever else is in the corpus. None holds out 500 rows, or a tenth of fewer than 5,000, by whole
            groups of near duplicates; of a corpus with development rows none.
        max_rows: Read no more rows than this, in the order of the sources.
        rows: Has the rows in place of the sources, which then only say where they are from.
        development: Has rows that are held out in place of a share: none of them is trained on, even where it is among
            the rows to train on too.
        augment: Copies that the rows to train on have beside them, with other words; none by default.
        header: Names of the fields of tables without a header; further fields are ignored.

    Raises:
        CorpusError: if a value cannot be meant.
    """

    task: LabelledTask
    sources: Sequence[str]
    length: int = 128
    text_column: str = "text"
    pair_column: str | None = None
    label_column: str = "label"
    label_columns: Sequence[str] = ()
    question_column: str = "question"
    context_column: str = "context"
    answers_column: str = "answers"
    query_column: str = "query"
    document_columns: Sequence[str] = ("documents",)
    documents_per_query: int = 16
    tokens_column: str = "tokens"
    tags_column: str = "tags"
    labels: Sequence[str] = ()
    stride: int = 64
    held_out: float | None = None
    max_rows: int | None = None
    rows: ExampleSource | None = None
    development: ExampleSource | None = None
    augment: Augmentation | None = None
    header: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("labels", "label_columns", "header"):
            object.__setattr__(self, name, tuple(map(str, getattr(self, name) or ())))
        if self.task not in KIND_NAMES:
            raise CorpusError(f"Unknown task '{self.task}'.{suggestion(self.task, KIND_NAMES)}")
        if len(set(self.labels)) < len(self.labels):
            raise CorpusError(f"Two classes have the same name in {', '.join(self.labels)}: rename them in id2label.")
        _check_common(self, "row")
        if len(set(self.header)) < len(self.header):
            raise CorpusError(f"columns are {', '.join(self.header)}: give each field a different name.")
        if self.augment is not None and KINDS[self.task].label in ("token", "relevance"):
            raise CorpusError(f"Copies with other words do not suit rows of {self.task}: leave out augment.")
        if self.development is not None and self.held_out:
            raise CorpusError(
                f"held_out is {self.held_out}, but there are development rows too: leave one of them out."
            )
        _check_least(self, 0, "stride")
        _check_least(self, 1, "max_rows", "documents_per_query")
        object.__setattr__(self, "document_columns", tuple(map(str, self.document_columns)))

    def content(self) -> dict[str, Any]:
        """Return the settings that decide the content of a built corpus, as plain values."""
        plain = asdict(replace(self, rows=None, development=None))
        for name in ("augment", "header"):
            if not getattr(self, name):
                del plain[name]  # Manifests without copies, and of tables with a header, stay as they were.
        for name, source in (("rows", self.rows), ("development", self.development)):
            del plain[name]
            if source is not None:
                plain[name] = source.fingerprint()
        return plain

    @property
    def columns(self) -> dict[str, str]:
        """The columns that every row must have, each with the name of its setting."""
        names = _COLUMNS.get(KINDS[self.task].label, _TEXT_COLUMNS)
        named = {column: name for name in names if (column := getattr(self, name)) is not None}
        if self.label_columns:
            del named[self.label_column]
        has_queries = KINDS[self.task].has_queries
        more = dict.fromkeys(self.document_columns, "document_columns") if has_queries else {}
        return named | more | dict.fromkeys(self.label_columns, "label_columns")


def _check_common(settings: LabelledSettings | CorpusSettings, unit: str) -> None:
    given = (settings.sources,) if isinstance(settings.sources, str) else settings.sources
    object.__setattr__(settings, "sources", tuple(map(str, given)))
    if not settings.sources:
        raise CorpusError("The corpus has no source: give at least one file, folder or data set.")
    if settings.length < 1:
        raise CorpusError(f"length is {settings.length}: a {unit} needs at least one token.")
    if settings.held_out is not None and not 0 <= settings.held_out < 1:
        raise CorpusError(f"held_out is {settings.held_out}: give a share from 0 up to, not including, 1.")


def _check_least(settings: LabelledSettings | CorpusSettings, least: int, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < least:
            way_out = ", or leave it out" if name.startswith("max_") else ""
            raise CorpusError(f"{name} is {value}: give {least} or more{way_out}.")


@dataclass(frozen=True)
class Mix:
    """The shares of several sources, by weights or by their sizes to a power.

    With an exponent α the share of a source of size n_i is p_i = n_i^α / Σ_j n_j^α: 1 keeps the proportions, 0 makes
    all equal, and between them small sources, such as rare languages, are read more often than their size says.

    Args:
        weights: A weight for each source, in their order; they need not add up to 1. With None for some, the others are
            shares, and those have the rest of 1 by their sizes.
        exponent: α, 0 to 1; either this or the weights.
        by: Pattern of file names that gives the sources, `data/{language}.txt.xz` one a language; with an exponent.

    Raises:
        CorpusError: if both or neither are given, or a value cannot be meant.

    Source:
        XLM (arXiv 1901.07291, section 3.1) has the formula, with n_i in sentences; XLM-R (arXiv 1911.02116, section 3)
        takes α = 0.3 and names no unit. Here n_i are the blocks of a built corpus, and a stream's bytes of text.
    """

    weights: Sequence[float | None] | None = None
    exponent: float | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        if self.by is not None and self.exponent is None:
            raise CorpusError("A mix by a pattern needs an exponent, such as 0.3: weights are for listed sources.")
        if (self.weights is None) == (self.exponent is None):
            raise CorpusError("A mix needs either weights or an exponent: give one of the two.")
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(None if w is None else float(w) for w in self.weights))
            given = [weight for weight in self.weights if weight is not None]
            if not all(math.isfinite(weight) and weight > 0 for weight in given):
                raise CorpusError(f"The weights of a mix are {given}: give numbers above 0.")
            if len(given) < len(self.weights) and math.fsum(given) >= 1:
                raise CorpusError(
                    f"The shares of sources add up to {math.fsum(given):g} and leave nothing for those without one: "
                    "give smaller ones, or give every source a share."
                )
        elif self.exponent is not None and not 0 <= self.exponent <= 1:
            raise CorpusError(f"The exponent of a mix is {self.exponent}: give a number from 0 to 1, such as 0.3.")

    @property
    def reads_sizes(self) -> bool:
        """Whether shares depend on the sizes of sources."""
        return self.weights is None or self.weights.count(None) > 1

    def shares(self, sizes: Sequence[int | None]) -> list[float]:
        """Return the share of each source; they add up to 1.

        Args:
            sizes: Size of each source in any unit, `None` where it is not known.

        Raises:
            CorpusError: if there are not as many weights as sources, or an exponent meets an unknown size.
        """
        import numpy as np  # Recipes are checked without it.

        if self.weights is not None:
            if len(self.weights) != len(sizes):
                raise CorpusError(
                    f"The mix has {len(self.weights)} weights for {len(sizes)} sources: give one for each."
                )
            rest = [size for size, weight in zip(sizes, self.weights, strict=True) if weight is None]
            left = 1 - math.fsum(weight or 0 for weight in self.weights)
            by_size = iter([1.0] if len(rest) == 1 else Mix(exponent=1.0).shares(rest) if rest else ())
            shared = [left * next(by_size) if weight is None else weight for weight in self.weights]
            parts = np.asarray(shared, dtype=np.float64)
        else:
            known = [size for size in sizes if size is not None]
            if len(known) < len(sizes):
                raise CorpusError(
                    "The size of a source is not known before it is read (a Hub data set, or files of a server that "
                    "states no size), so an exponent cannot be applied: give the mix weights."
                )
            parts = np.asarray(known, dtype=np.float64) ** float(self.exponent or 0)
            parts[np.asarray(known) == 0] = 0  # 0^0 is 1, but there is nothing to read.
        if parts.sum() == 0:
            raise CorpusError("All sources of the mix are empty.")
        return [float(part) for part in parts / parts.sum()]

    def describe(self, *, streamed: bool) -> str:
        """Say what the shares follow, for records."""
        if not self.reads_sizes:
            return "weights"
        unit = "bytes of text, estimated from the beginning of up to 16 files per source" if streamed else "blocks"
        if self.weights is not None:
            return f"shares, the rest by size, in {unit}"
        return f"size^{self.exponent:g}, in {unit}"


_EPOCHS = re.compile(r"^(\d{1,6}(?:\.\d{1,6})?) epochs?$")


@dataclass(frozen=True)
class LengthSchedule:
    """Lengths of the blocks of one training, one after the other: each for a share of its steps, or for its epochs.

    With a share s_i of S steps, length i ends after step (s_1 + ... + s_i) S, rounded. With e_i epochs of a text that
    makes N_i steps at length i, it is read for e_i N_i steps, rounded up; where the number of steps is given, it is
    shared out in proportion to these.

    Args:
        lengths: Most tokens in a block, rising.
        parts: Share or epochs of each length.
        in_epochs: Whether the parts are epochs.

    Source:
        ELM (arXiv 2012.06153), section 5.2: three epochs of length 128, then two of 512; BERT (arXiv 1810.04805),
        appendix A.2: 90 % of the steps with 128. Nearest alternative: a stage for each length, where the learning rate
        warms up and decays anew.
    """

    lengths: tuple[int, ...]
    parts: tuple[float, ...]
    in_epochs: bool

    @classmethod
    def read(cls, given: Mapping[int, float | str]) -> LengthSchedule:
        """Read a schedule as recipes have it: `{128: 0.9, 512: 0.1}`, or `{128: "3 epochs", 512: "2 epochs"}`.

        Raises:
            CorpusError: for one length, a falling order, shares that do not add up to 1, and what is neither.
        """
        lengths, parts = tuple(given), [_part_of(length, part) for length, part in given.items()]
        if len(lengths) < 2:
            raise CorpusError(f"lengths {dict(given)} is not a schedule: give two lengths or more, or length alone.")
        if list(lengths) != sorted(lengths):
            raise CorpusError(
                f"lengths {list(lengths)} decrease; a schedule goes from short to long: reverse their order."
            )
        if len({in_epochs for _, in_epochs in parts}) > 1:
            raise CorpusError(f"lengths {dict(given)} mixes shares and epochs: give only shares, or only epochs.")
        total = math.fsum(part for part, _ in parts)
        if not parts[0][1] and abs(total - 1) > 1e-6:
            raise CorpusError(f"The shares of lengths add up to {total:g}: change them to add up to 1.")
        return cls(lengths, tuple(part for part, _ in parts), parts[0][1])

    def ends(self, max_steps: int, steps_an_epoch: Sequence[int] = ()) -> list[int]:
        """Return the last step of each length.

        Args:
            max_steps: Steps of the training; not above 0: as many as the epochs have.
            steps_an_epoch: Steps of an epoch at each length; shares do not need them.

        Raises:
            CorpusError: if there are too few steps for every length to have one.
        """
        sizes: Sequence[float] = self.parts
        if self.in_epochs:
            pairs = zip(self.parts, steps_an_epoch, strict=True)
            sizes = [math.ceil(round(epochs * steps, 6)) for epochs, steps in pairs]
        sums = list(accumulate(sizes))
        total = max_steps if max_steps > 0 else int(sums[-1])
        ends = [round(total * until / sums[-1]) for until in sums]
        for length, (begin, end) in zip(self.lengths, pairwise([0, *ends]), strict=True):
            if begin == end:
                raise CorpusError(
                    f"Length {length} gets none of the {total:,} steps: give more steps, or leave it out."
                )
        return ends

    def __str__(self) -> str:
        unit = " epochs" if self.in_epochs else " of the steps"
        said = [f"{length} tokens for {part:g}{unit}" for length, part in zip(self.lengths, self.parts, strict=True)]
        return ", then ".join(said).replace(" 1 epochs", " 1 epoch")


def _part_of(length: int, part: float | str) -> tuple[float, bool]:
    """Return a share or a number of epochs, and whether it is the latter."""
    epochs = _EPOCHS.match(part) if isinstance(part, str) else None
    found = float(epochs.group(1)) if epochs else part
    if isinstance(found, str) or not found > 0 or (not epochs and found >= 1):
        said = f"'{part:.40}'" if isinstance(part, str) else f"{part:g}"
        raise CorpusError(
            f"lengths.{length} is {said}: give a share of the steps between 0 and 1, such as 0.9, or epochs, such as "
            "'3 epochs'."
        )
    return found, epochs is not None


Role: TypeAlias = Literal["query", "document"]
"""What the texts of a source are to a model of sentence vectors: its prompt follows from it."""


@dataclass(frozen=True)
class SourceUse:
    """How one source of a corpus is read.

    Args:
        role: What its texts are; None where nobody says.
        prompt: Text that the teacher reads before each of its pieces, as `SentencePooling.prompt` gives it.
        units: Kinds of pieces that are cut from its documents; none: the unit of the corpus.
    """

    role: Role | None = None
    prompt: str = ""
    units: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(self.units))
        if self.role not in (None, *get_args(Role)):
            raise CorpusError(f"Unknown role '{self.role}' of a source.{suggestion(str(self.role), get_args(Role))}")
        if unknown := [unit for unit in self.units if unit not in UNITS]:
            raise CorpusError(f"Unknown corpus unit '{unknown[0]}'.{suggestion(unknown[0], UNITS)}")


_SHORTEST_PAIR = 5  # Tokens: a token of each segment, and BERT's three special ones.


@dataclass(frozen=True)
class CorpusSettings:
    """Settings of a corpus of text: its sources, and how to cut them into token blocks.

    Args:
        sources: Files, folders, globs, Hub data sets (`hub:owner/name`), `installed-docs` or `installed-text`; a lone
            string is one source. Left out where `mix.by` gives them.
        unit: The unit that a block never crosses: `"document"`, `"paragraph"` or `"sentence"`.
        length: Most tokens in a block, special tokens included.
        join: Fill every block exactly, joining units with the tokenizer's separator.
        held_out: Share of the documents kept from training. It is chosen by a hash of each text, so it is the
            same whatever the unit, length or tokenizer.
        held_out_documents: Most documents to hold out, whatever the share.
        text_column: Column of the text in `.jsonl`, `.parquet` and Hub data sets.
        max_documents: Read no more documents than this, in the order of the sources.
        minimum_tokens: Blocks with fewer tokens than this, special tokens not counted, are dropped.
        pairs: Cut every block into two adjacent segments, which rows tell apart by `token_type_ids`; see `BlockPacker`.
        streaming: Tokenise while training, keeping nothing on disk, instead of building a corpus.
        shuffle_buffer: Streaming: blocks that are shuffled together, in every process that reads.
        mix: The shares of the sources; without it they are read as they are, or streamed by their sizes.
        uses: How each source is read, in their order, or one for all; none: as plain text. A source may be listed again
            to be read in another way.
        student_prompts: Whether the student reads the prompts of `uses` too; else rows have `teacher_input_ids` beside
            what the student reads.

    Attributes:
        titles: What records call the sources: the values of the placeholder of `mix.by`, or the sources as they are,
            with their use where one is listed again.

    Raises:
        CorpusError: if a value cannot be meant, or `mix.by` finds no sources.
    """

    sources: Sequence[str] = ()
    unit: str = "document"
    length: int = 128
    join: bool = False
    held_out: float = 0.01
    held_out_documents: int = 5000
    text_column: str = "text"
    max_documents: int | None = None
    minimum_tokens: int = 4
    pairs: bool = False
    streaming: bool = False
    shuffle_buffer: int = 10_000
    mix: Mix | None = None
    uses: tuple[SourceUse, ...] = ()
    student_prompts: bool = True
    titles: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        from limbeck.corpus.sources import find_parts

        parts = {} if self.mix is None or self.mix.by is None else find_parts(self.mix.by)
        if parts:
            if self.sources and tuple(self.sources) != tuple(parts.values()):
                raise CorpusError("mix.by names the sources, but sources are given too: leave one of them out.")
            object.__setattr__(self, "sources", tuple(parts.values()))
        _check_common(self, "block")
        object.__setattr__(self, "uses", tuple(self.uses) * (len(self.sources) if len(self.uses) == 1 else 1))
        if self.uses and len(self.uses) != len(self.sources):
            raise CorpusError(f"There are {len(self.uses)} uses for {len(self.sources)} sources: give one for each.")
        read = Counter(zip(self.sources, self.uses, strict=False))
        if twice := next((source for (source, _), times in read.items() if times > 1), None):
            raise CorpusError(f"The source '{twice}' is listed twice with the same settings: list it once.")
        object.__setattr__(self, "titles", tuple(parts) or self._titles())
        if self.has_pieces and (self.join or self.pairs):
            given = "join" if self.join else "pairs"
            raise CorpusError(f"{given} joins texts that prompts and units keep apart: leave one of them out.")
        if self.unit not in UNITS:
            raise CorpusError(f"Unknown corpus unit '{self.unit}'.{suggestion(self.unit, UNITS)}")
        if self.pairs and self.length < _SHORTEST_PAIR:
            raise CorpusError(f"length is {self.length}: a pair, [CLS] A [SEP] B [SEP], has at least {_SHORTEST_PAIR}.")
        _check_least(self, 0, "held_out_documents")
        _check_least(self, 1, "max_documents", "minimum_tokens", "shuffle_buffer")
        if self.streaming and self.max_documents is not None:
            raise CorpusError("max_documents is for built corpora; a stream is as long as its training.")
        weights = self.mix.weights if self.mix is not None else None
        if weights is not None and len(weights) != len(self.sources):
            raise CorpusError(f"The mix has {len(weights)} weights for {len(self.sources)} sources: give one for each.")

    @property
    def mixing(self) -> Mix | None:
        """The mix that is read: a stream of several sources without one takes them by their sizes."""
        return Mix(exponent=1.0) if self.mix is None and self.streaming and len(self.sources) > 1 else self.mix

    @property
    def prompts(self) -> tuple[str, ...]:
        """The text before the pieces of each source; none where no source has any."""
        return tuple(use.prompt for use in self.uses) if any(use.prompt for use in self.uses) else ()

    @property
    def has_pieces(self) -> bool:
        """Whether a row is a piece of its own kind, or has a prompt."""
        return bool(self.prompts) or any(use.units for use in self.uses)

    @property
    def cutting(self) -> list[Any]:
        """Plain JSON values that decide how the sources are cut, beside unit and length; empty where all are alike.

        Roles do not: what follows from them is the prompt.
        """
        if not self.has_pieces:
            return []
        return [[[use.prompt, list(use.units)] for use in self.uses], bool(self.prompts) and not self.student_prompts]

    def content(self) -> dict[str, Any]:
        """Return the settings that decide the content of a built corpus, as plain values."""
        # How rows are mixed and read; and what is new is there only where it is used, so that manifests stay.
        left_out = {"streaming", "shuffle_buffer", "mix", "titles", "uses", "student_prompts"}
        left_out |= set() if self.pairs else {"pairs"}
        plain = {key: value for key, value in asdict(self).items() if key not in left_out}
        return plain | ({"cutting": self.cutting} if self.cutting else {})

    def _titles(self) -> tuple[str, ...]:
        """Name the sources: those that are listed again by their use too."""
        if not self.uses:
            return tuple(self.sources)
        again = Counter(self.sources)
        return tuple(
            source if again[source] < 2 else f"{source} ({', '.join(filter(None, [use.role, *use.units])) or 'plain'})"
            for source, use in zip(self.sources, self.uses, strict=True)
        )
