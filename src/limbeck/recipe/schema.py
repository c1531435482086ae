"""The recipe: one document that describes a run from teacher to student.

The docstring below a field, or its description, is the documentation: it becomes the JSON schema that editors complete
from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from limbeck.core.kinds import KINDS, KindName, LabelKind
from limbeck.core.mistakes import explain
from limbeck.core.strict import Strict
from limbeck.corpus import LengthSchedule
from limbeck.corpus.settings import Role
from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks import find_task, parse_tasks
from limbeck.methods.registry import METHODS, read_method
from limbeck.models.blueprint import depth_alone

# Types of values that many keys of a recipe share.


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty: give a name, or leave the key out")
    return text


def _known_home(text: str) -> str:
    if text.startswith("~"):
        try:
            Path(text).expanduser()
        except RuntimeError:
            raise ValueError(f"'{text}' begins with the home folder of a user who is not known here") from None
    return text


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number")
    return value


Name: TypeAlias = Annotated[str, AfterValidator(_not_blank)]
"""Text that names something: a model, a stage, a column."""

Place: TypeAlias = Annotated[Name, AfterValidator(_known_home)]
"""Text that may be a path."""

Number: TypeAlias = Annotated[float, BeforeValidator(_no_truth_value)]
"""A finite number, for members of lists; a field refuses truth values by itself."""

Whole: TypeAlias = Annotated[int, BeforeValidator(_no_truth_value)]
"""A whole number, for members of lists."""

Count: TypeAlias = Annotated[Whole, Field(ge=1)]
"""A whole number from 1 on."""

Share: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
"""A part of a whole, never all of it."""

Length: TypeAlias = Annotated[int, Field(ge=4, le=1_000_000)]
"""Tokens of a text."""

Width: TypeAlias = Annotated[int, Field(ge=1, le=65536)]
"""Of a stream, or a number of heads."""

NONE = "none"
"""The value of a key that turns off what has a default."""
TEXT_ALONE = ("unit", "units", "join", "minimum_tokens", "pairs", "student_prompts")
"""Keys of a text that mean nothing to labelled rows."""
NOT_COMPUTED = {"name", "output", "evaluation", "reasons"}
"""Keys of a recipe that change nothing that is computed."""
DEFAULT_HELD_OUT = 0.01
"""Share of the documents of a text that is held out."""
MOST = 10**12
"""Of anything that is counted; with more, a slip of the keyboard is likelier than a run."""


class Grown(Strict):
    """A part of a recipe with keys that came after a release: documents have them only where they are given.

    So identities of older runs, comparisons and searches stay as they were.
    """

    added: ClassVar[frozenset[str]] = frozenset()
    """Keys that are left out of documents where they are None."""

    @model_serializer(mode="wrap")
    def _without_keys_not_given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in dump(self).items() if value is not None or key not in self.added}


# What a recipe says of its text: the sources, how they are cut or labelled, and how a stage changes them.


Units: TypeAlias = Annotated[
    list[Literal["document", "paragraph", "sentence", "title", "question"]], Field(min_length=1)
]
"""Kinds of pieces of a text."""


class TextSpec(Grown):
    """How text is cut; a stage may set these anew."""

    unit: Literal["document", "paragraph", "sentence"] | None = None
    """Unit of text that is never joined with its neighbour; default: document."""
    length: Length | None = None
    """Longest block in tokens, special tokens included; default: 128."""
    join: bool | None = None
    """Join units into blocks of exactly `length` tokens; default: no."""
    minimum_tokens: int | None = Field(None, ge=1, le=1_000_000)
    """Drop blocks with fewer content tokens; default: 4."""
    pairs: bool | None = None
    """Cut blocks as pairs of adjacent segments, [CLS] A [SEP] B [SEP], as BERT's preprocessing; default: no."""
    units: Units | None = Field(
        None,
        description=(
            "Instead of unit: several kinds of pieces that every document is cut into, such as [sentence, paragraph, "
            "title, question]; a piece of two kinds counts as the narrower one."
        ),
    )
    student_prompts: Literal["teacher", "none"] | None = Field(
        None,
        description=(
            "Whether the student also reads the prompts that the teacher's files put before texts, or only the teacher "
            "does; default: teacher."
        ),
    )
    added = frozenset({"pairs", "units", "student_prompts"})

    @model_validator(mode="after")
    def _unit_or_units(self) -> TextSpec:
        if self.unit is not None and self.units is not None:
            raise ValueError(f"unit {self.unit} and units {self.units} exclude each other: leave one out")
        return self


class StageTextSpec(TextSpec):
    """How a stage cuts the corpus; what it does not say is as in the corpus."""

    lengths: dict[Length, Number | str] | None = Field(
        None,
        description=(
            "Instead of length: lengths that follow each other in one training, the shortest first, each with its "
            "share of max_steps ({128: 0.9, 512: 0.1}) or its epochs ({128: 3 epochs, 512: 2 epochs})."
        ),
    )

    @property
    def schedule(self) -> LengthSchedule | None:
        """The lengths in order; None where there is one."""
        return None if self.lengths is None else LengthSchedule.read(self.lengths)

    @model_validator(mode="after")
    def _lengths_are_a_schedule(self) -> StageTextSpec:
        if self.lengths is not None and self.length is not None:
            raise ValueError(f"length {self.length} and lengths exclude each other: leave one out")
        try:
            _ = self.schedule
        except LimbeckError as error:
            raise ValueError(str(error)) from None
        return self


class AugmentSpec(Strict):
    """How a stage changes the text that teacher and student read."""

    replace_tokens: float = Field(0.0, ge=0, le=1)
    """Share of tokens replaced by random words of the vocabulary; helps where the text is narrow."""
    mask_tokens: float | None = Field(
        None,
        ge=0,
        lt=1,
        description=(
            "Share of tokens masked for masked language modelling, drawn anew in every epoch; default: 0.15 where a "
            "term of the method reads masked positions, else 0."
        ),
    )


_KEYS_OF_LABEL: Mapping[LabelKind, tuple[str, ...]] = {
    "class": ("pair_column", "label_column", "class_weights"),
    "classes": ("pair_column", "label_column", "label_columns", "class_weights"),
    "span": ("question_column", "context_column", "answers_column", "stride"),
    "relevance": ("query_column", "document_columns", "documents_per_query", "label_column"),
    "token": ("tokens_column", "tags_column", "class_weights"),
}
"""Keys of `TaskSpec` that a kind of label reads; those of texts by default."""


class TaskSpec(Grown):
    """The labels of a corpus: rows are distilled one by one, with a teacher that was fine-tuned on the task.

    In place of all this the name of a task may stand, or the path of its YAML file, as `limbeck evaluate` takes them.
    """

    name: Place | None = None
    """A task whose files, columns and classes are known, such as mrpc, squad or my-task.yaml; kind follows from it."""
    kind: KindName
    """What is predicted."""
    columns: list[Name] | None = Field(
        None,
        min_length=1,
        description="Names of the fields of .tsv, .csv and .txt tables without a header, such as [source, label, note, "
        "text] for CoLA's; further fields are ignored.",
    )
    pair_column: Name | None = None
    """Column of the second text, for tasks on pairs."""
    label_column: Name = "label"
    """Column of the class (by name or number), of several (a list, or a|b), the value, or the relevance (if any)."""
    label_columns: list[Name] | None = None
    """multi_label: instead of label_column, a column of 0 and 1 for each class, named after the class."""
    class_weights: Literal["balanced"] | dict[str, Number] | list[Number] | None = None
    """Weights of the classes in hard labels: balanced, by name (others: 1), or a list in the teacher's order."""
    question_column: Name = "question"
    """Question answering: column of the question."""
    context_column: Name = "context"
    """Question answering: column of the passage."""
    answers_column: Name = "answers"
    """Question answering: column of the answers, as SQuAD's."""
    stride: int = Field(64, ge=0, le=1_000_000)
    """Question answering: tokens that neighbouring windows of a passage share."""
    query_column: Name | None = None
    """Ranking: column of the query; default: query."""
    document_columns: list[Name] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Ranking: columns of a query's documents, each a text or a list of texts; of several, such as "
        "[positive, negatives], the first holds the relevant ones; default: [documents].",
    )
    documents_per_query: int | None = Field(None, ge=1, le=1_000_000)
    """Ranking: the most documents of a query that are read together; more become several groups; default: 16."""
    tokens_column: Name | None = Field(
        None,
        description=(
            "Token classification: column of a sentence's words; default: tokens, in tables with a word per line the "
            "first field. Their fields may also be given by number, from 1."
        ),
    )
    tags_column: Name | None = Field(
        None,
        description="Token classification: column of the words' classes; default: tags, in such tables the last field.",
    )
    added = frozenset(
        {"name", "columns", "label_columns", "class_weights", "query_column", "document_columns", "documents_per_query"}
        | {"tokens_column", "tags_column"}
    )

    @model_validator(mode="after")
    def _columns_of_this_kind(self) -> TaskSpec:
        own = _KEYS_OF_LABEL.get(KINDS[self.kind].label, ("pair_column", "label_column"))
        for name, key in type(self).model_fields.items():
            if name in ("kind", "name") or getattr(self, name) == key.default:
                continue
            if name not in own and (name != "columns" or KINDS[self.kind].of_words):
                raise ValueError(f"{name} does not apply to {self.kind}: leave it out")
            if self.name is not None and name.endswith(("columns", "_column")):
                raise ValueError(
                    f"the task '{self.name}' already defines its columns: leave out {name}, or the task's name"
                )
        columns = [self.query_column or "query", *(self.document_columns or ["documents"])]
        if len(set(columns)) < len(columns):
            raise ValueError(f"query and documents are separate columns, but these are {columns}: name each once")
        return self


def _kind_of_a_name(value: Any) -> Any:
    """Return the keys of a task that is known by its name, with its kind."""
    named = {"name": value} if isinstance(value, str) else value
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str) or "kind" in named:
        return named
    try:
        kind = find_task(named["name"]).kind
    except LimbeckError as error:
        raise ValueError(str(error)) from None
    if KINDS[kind].of_vectors:
        raise ValueError(f"nothing is trained on '{named['name']}', which compares sentence vectors: name another task")
    return {**named, "kind": kind}


class RowAugmentationSpec(Strict):
    """Copies of labelled rows with other words, made before training (TinyBERT, arXiv 1909.10351, algorithm 1)."""

    method: Literal["tinybert"] = "tinybert"
    """How words are replaced: by a masked language model's proposals and by neighbours in word vectors."""
    copies: int = Field(20, ge=1, le=10_000)
    """Copies of each row to train on (the paper's N_a)."""
    probability: float = Field(0.4, gt=0, le=1)
    """Probability that a word is replaced (p_t)."""
    candidates: int = Field(15, ge=1, le=1000)
    """Number of words that may replace a word, all equally likely (K)."""
    masked_lm: Place | None = Field(
        None,
        description=(
            "Model that proposes replacements for words that are one piece of its tokenizer; none: neighbours replace "
            "these words too; default: the teacher, where it has a masked language model head."
        ),
    )
    word_vectors: Place | None = Field(
        None,
        description=(
            "Where the neighbours of words of several pieces come from: a text file in GloVe's format (also .gz, .xz, "
            ".zst), or a model, for its word embeddings; none: these words stay; default: the teacher."
        ),
    )
    context: Literal["copy", "row"] = Field(
        "copy",
        description=(
            "What words are predicted from: the copy with the words replaced so far, as in the paper, or the original "
            "row, which takes fewer predictions by a factor of copies x probability."
        ),
    )
    seed: int | None = Field(None, ge=0, lt=2**32)
    """Seed of the copies; default: the run's seed. With one of its own, runs of several seeds share the copies."""


class MixSpec(Grown):
    """The shares of several sources, such as languages: by weights, or by their sizes to a power."""

    weights: list[Annotated[Number, Field(gt=0, allow_inf_nan=False)]] | None = None
    """A weight for each source, in the order of the sources; they need not add up to 1."""
    exponent: float | None = Field(None, ge=0, le=1)
    """Shares proportional to size^exponent: 1 keeps the proportions, 0 makes all equal; XLM-R has 0.3."""
    by: Place | None = None
    """A pattern of file names that gives the sources, such as data/{language}.txt.xz; exponent only."""
    added = frozenset({"by"})

    @model_validator(mode="after")
    def _one_of_the_two(self) -> MixSpec:
        if self.by is not None and self.exponent is None:
            raise ValueError("by needs an exponent, such as 0.3; weights are for listed sources")
        if (self.weights is None) == (self.exponent is None):
            raise ValueError("a mix needs either weights or an exponent: give one of the two")
        return self


class SourceSpec(Grown):
    """A source of text, with what it is to a model of sentence vectors, how much of it is read, and how it is cut."""

    source: Place
    """The source, written as it would be without other keys."""
    role: Role | None = None
    """What its texts are, query or document: the teacher reads its prompt for that role before them."""
    share: float | None = Field(None, gt=0, lt=1)
    """Its share of the training data; sources without one divide the rest by their sizes."""
    units: Units | None = None
    """Kinds of pieces that it is cut into; default: those of the corpus."""
    added = frozenset({"role", "share", "units"})


class CorpusSpec(TextSpec):
    """The text that is distilled on."""

    elsewhere = {"columns": "corpus.task.columns"}  # noqa: RUF012 - declared as one of the class's

    sources: list[Place | SourceSpec] = Field(
        default_factory=list,
        description="Files, folders, globs, addresses (https://, s3://), hub:NAME data sets, installed-docs "
        "(docstrings of installed packages) or installed-text (manual pages, read-me files and licences too); or "
        "{source, role, share, units}. Leave it out where mix.by names them.",
    )
    text_column: Name = "text"
    """The column of text in jsonl, parquet and Hub data."""
    held_out: Share | None = Field(
        None,
        description=(
            "Share of documents (or of the texts of rows) kept out of training for held-out figures; default: 0.01, "
            "or, of rows without a development set, 500 or a tenth, by whole groups of near duplicates."
        ),
    )
    max_documents: int | None = Field(None, ge=1, le=MOST)
    """Use no more documents (or rows) than this."""
    streaming: bool = False
    """Read and tokenise while training, keeping nothing on disk; needs max_steps."""
    shuffle_buffer: int | None = Field(None, ge=1, le=10_000_000)
    """Streaming: number of blocks shuffled together in each reading process; default: 10,000."""
    mix: MixSpec | None = None
    """Shares of the sources; default: every row once per epoch, or a stream's sources by their sizes."""
    task: Annotated[TaskSpec | None, BeforeValidator(_kind_of_a_name, json_schema_input_type=TaskSpec | str | None)] = (
        None
    )
    """What the rows are labelled with, or the name of a task, which gives the rows too; default: no labels."""
    data: Place | None = None
    """With a task's name: the folder with its files; default: the Hugging Face Hub."""
    development: list[Place] | None = Field(
        None,
        description="Rows that are never trained on, in the layout of the others, on which teacher and student are "
        "scored; default with a task's name: the split on which its best grid point is chosen.",
    )
    augment: RowAugmentationSpec | None = None
    """Copies of the rows with other words; not a stage's `augment`, which changes tokens while it trains."""
    added = TextSpec.added | {"augment", "data", "development"}

    @field_validator("sources", "development", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @property
    def described_sources(self) -> list[SourceSpec]:
        """The sources, of those that are named alone nothing else."""
        return [SourceSpec(source=each) if isinstance(each, str) else each for each in self.sources]

    @property
    def places(self) -> list[str]:
        """The sources by their names."""
        return [each.source for each in self.described_sources]

    @model_validator(mode="after")
    def _has_sources(self) -> CorpusSpec:
        by = self.mix is not None and self.mix.by is not None
        if self.task is not None and self.task.name is not None:
            for name in ("sources", "text_column"):
                if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                    raise ValueError(
                        f"the task '{self.task.name}' already defines its {name}: leave out {name}, or name no task"
                    )
        elif self.data is not None:
            raise ValueError("data is the folder of a task's files, but no task is named: give sources instead")
        elif by == bool(self.sources):
            given = "mix.by names the sources, but sources are given too: leave one of them out"
            raise ValueError(given if by else "sources is missing: give files, folders or data sets, or mix.by")
        return self

    @model_validator(mode="after")
    def _development_rows_are_labelled(self) -> CorpusSpec:
        if self.development is not None and self.task is None:
            raise ValueError("development is for labelled rows, but this corpus has no task: name one, or leave it out")
        if self.development and self.held_out:
            raise ValueError(
                f"held_out {self.held_out} is for rows without a development set, but one is given: leave one of "
                "them out"
            )
        if self.development == []:
            raise ValueError("development is empty: give a file with labelled rows, or leave it out")
        if self.held_out is None and self.task is None:
            object.__setattr__(self, "held_out", DEFAULT_HELD_OUT)  # Documents of text have it.
        return self

    @model_validator(mode="after")
    def _stream_and_mix_fit(self) -> CorpusSpec:
        if self.shuffle_buffer is not None and not self.streaming:
            raise ValueError("shuffle_buffer is for streaming; a built corpus is shuffled as a whole: leave it out")
        if self.streaming and self.max_documents is not None:
            raise ValueError("max_documents is for a built corpus; a stream is as long as its training: leave it out")
        weights = self.mix.weights if self.mix is not None else None
        if weights is not None and len(weights) != len(self.sources):
            raise ValueError(
                f"mix.weights has {len(weights)} weights for {len(self.sources)} sources: give one for each"
            )
        if self.mix is not None and any(each.share for each in self.described_sources):
            raise ValueError("sources have shares, but there is a mix too: leave one of them out")
        if (total := math.fsum(each.share or 0 for each in self.described_sources)) > 1 + 1e-6:
            raise ValueError(f"the shares of sources add up to {total:g}: change them to add up to 1 or less")
        for name in ("streaming", "mix"):
            if self.task is not None and getattr(self, name):
                raise ValueError(f"{name} is for text without labels: leave out {name}, or the task")
        return self

    @model_validator(mode="after")
    def _labelled_rows_are_not_cut(self) -> CorpusSpec:
        if self.task is not None and KINDS[self.task.kind].has_queries and self.augment is not None:
            raise ValueError(
                "augment would change a query in each of its rows, and so separate its documents: leave it out"
            )
        if self.task is None and self.augment is not None:
            raise ValueError(
                "augment copies labelled rows, but this corpus has no task: give one, or change the text while a "
                "stage trains with its augment.replace_tokens"
            )
        if self.task is not None:
            kind, columns = KINDS[self.task.kind], [self.text_column, self.task.pair_column, self.task.label_column]
            reads_text = not (kind.has_answers or kind.has_queries or kind.of_words)
            if not reads_text and self.text_column != type(self).model_fields["text_column"].default:
                raise ValueError(
                    f"text_column does not apply to {self.task.kind}, whose columns task names: leave it out"
                )
            if reads_text and len(set(columns)) < len(columns):
                raise ValueError(f"text, pair and label are separate columns, but these are {columns}: name three")
            for name in TEXT_ALONE:
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is for text without labels; with task every row stays whole: leave it out"
                    )
            if any(isinstance(each, SourceSpec) for each in self.sources):
                raise ValueError("role, share and units of a source are for text without labels: give its name alone")
        return self


def sources_alone(value: Any) -> Any:
    """Return the keys of a corpus that is given by its sources alone; for validators."""
    return {"sources": value} if isinstance(value, str | list) else value


Corpus: TypeAlias = Annotated[
    CorpusSpec, BeforeValidator(sources_alone, json_schema_input_type=CorpusSpec | str | list[str])
]
"""A corpus, or only its sources."""


# What a recipe says of its models: the teacher, the student, and what the student starts from.


LayerStrategy = Literal["random", "first", "last", "uniform", "ends"]


class TeacherSpec(Grown):
    """The pretrained model that is distilled."""

    model: Place
    """A local folder, a Hub name, or package:NAME for a model inside a Python package."""
    name: Name | None = None
    """Its name in the model card, such as its Hub name; default: model."""
    revision: Name | None = None
    """Branch, tag or commit of a Hub model."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of the teacher's weights; auto: bfloat16 where training uses it."""
    precision: Literal["int8"] | None = Field(
        None,
        description=(
            "int8: quantise the linear maps of its layers, weights by output channel and activations by token in every "
            "batch; for CPUs with VNNI. Faster where layers are wide, and the student learns slightly other numbers; "
            "default: dtype."
        ),
    )
    sharded: bool = Field(
        False,
        description=(
            "Shard its layers over the processes, for a teacher that does not fit on one device; every layer is then "
            "gathered for every batch."
        ),
    )
    classes: dict[Name, Name] | None = Field(
        None,
        description=(
            "Names for the classes of a classifier, such as {LABEL_0: entailment, LABEL_1: neutral}, where its "
            "config.json names them differently from the data; the student is saved with the new names."
        ),
    )
    added = frozenset({"classes", "precision"})

    @model_validator(mode="after")
    def _whole_where_quantised(self) -> Self:
        if self.precision is not None and self.sharded:
            raise ValueError("precision int8 is for CPUs, where nothing is sharded: leave out one of the two")
        return self


def model_alone(value: Any) -> Any:
    """Return the keys of a teacher that is given by its name alone; for validators."""
    return {"model": value} if isinstance(value, str) else value


Teacher: TypeAlias = Annotated[TeacherSpec, BeforeValidator(model_alone, json_schema_input_type=TeacherSpec | str)]
"""A teacher, or only its name."""


class StageTeacherSpec(TeacherSpec):
    """The teacher of one stage: another model, or the student of an earlier stage (a teacher assistant)."""

    model: str = ""
    """As teacher.model of the recipe; leave it out to name a stage."""
    stage: str | None = None
    """Name of an earlier stage whose student teaches here."""

    @model_validator(mode="after")
    def _one_of_the_two(self) -> StageTeacherSpec:
        if bool(self.model) == (self.stage is not None):
            raise ValueError("give either model (a folder or a name) or stage (an earlier stage), but not both")
        if self.stage is not None and self.classes:
            raise ValueError("classes renames those of a model; leave it out where stage is given")
        return self


class InitialiseSpec(Grown):
    """What the student starts from."""

    layers: LayerStrategy | list[Whole] = "random"
    """random, or the teacher's layers to copy: first, last, uniform, ends, or a list such as [1, 3, 6]."""
    embeddings: Literal["auto", "copied", "projected", "random"] = "auto"
    """The teacher's embeddings: copied, or projected onto their principal directions when narrower."""
    narrow_by: Literal["weights", "activations"] | None = None
    """What narrows copied layers: the teacher's weights, or its activations on random tokens; default: weights."""
    checkpoint: Place | None = None
    """An earlier student of the same shape to start from."""
    added = frozenset({"narrow_by"})


class ShapeSpec(Strict):
    """A student's shape, every field by name."""

    layers: int = Field(ge=1, le=1000)
    """Number of Transformer blocks."""
    hidden: Width
    """Width of the hidden states."""
    heads: Width | None = None
    """Attention heads; default: 12 where that divides hidden, else hidden/64."""
    ffn: int | None = Field(None, ge=1, le=4 * 65536)
    """Width of the feed-forward layer; default: 4 x hidden."""
    embedding: Width | None = None
    """Width of factorised embeddings; default: hidden."""


def shape_alone(value: Any) -> Any:
    """Return the keys of a student that is given by its shape alone; for validators."""
    by_name = isinstance(value, Mapping) and "layers" in value and "shape" not in value
    return {"shape": value} if by_name or isinstance(value, int | str) else value


def names_start(student: Mapping[str, Any]) -> bool:
    """Return whether a student says what its layers start from."""
    start = student.get("initialise")
    return isinstance(start, Mapping) and bool({"layers", "checkpoint"} & set(start))


class StudentSpec(Strict):
    """The model that is made; in place of all this its shape may stand."""

    shape: Count | str | ShapeSpec = Field(
        description=(
            '"layers x hidden" such as "6x384", a preset, or every field by name. A number alone stands for that many '
            "of the teacher's layers, with its widths and heads; the student then starts from initialise.layers: ends, "
            "unless another start is given."
        ),
    )
    initialise: InitialiseSpec = Field(default_factory=InitialiseSpec)
    """What the student starts from."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout while distilling; default: the teacher's. The saved student always has the teacher's."""
    untrained: Literal["random", "teacher"] = Field(
        "random",
        description=(
            "What the saved student holds in parameters that no stage trains and in embedding rows that no batch "
            "reads: their start, or the teacher's values where shapes allow."
        ),
    )

    @model_validator(mode="wrap")
    @classmethod
    def _a_depth_starts_from_layers(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        given = shape_alone(value)
        if not isinstance(given, Mapping) or (depth := depth_alone(given.get("shape"))) is None:
            return validate(given)
        start = given.get("initialise", {})
        if isinstance(start, Mapping) and not names_start(given):
            start = {**start, "layers": "ends"}
        return validate({**given, "shape": depth, "initialise": start})


Student: TypeAlias = Annotated[
    StudentSpec, BeforeValidator(shape_alone, json_schema_input_type=StudentSpec | int | str)
]
"""A student, or only its shape."""


# What a stage does about steps that go wrong.


class GuardSpec(Strict):
    """Policies for losses that are no use and for memory that does not suffice.

    They decide how failures are handled, not the results of a run without one: a resumed run may change them.
    """

    on_bad_loss: Literal["stop", "skip"] = Field(
        "stop",
        description=(
            "What to do at a step whose loss or gradient is infinite or NaN, or whose loss explodes: stop the run, or "
            "skip the step, which leaves weights and optimizer as they are. The batch is saved either way."
        ),
    )
    explosion_factor: float | None = Field(None, gt=1, le=MOST)
    """A loss above this many times the median of the last 64 good steps counts as exploded; default: none does."""
    skips_in_a_row: int = Field(10, ge=1, le=MOST)
    """Number of steps in a row that may be skipped before the run stops."""
    on_out_of_memory: Literal["stop", "split"] = Field(
        "stop",
        description=(
            "What to do when a batch does not fit the device: stop the run, or run this batch and all later ones in "
            "smaller pieces whose gradients are summed."
        ),
    )


class StageSpec(Strict):
    """One stage: a method and how long to train with it."""

    name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    """Name in logs and folders, of letters, digits, - and _; default: the method's."""
    method: dict[str, Any]
    """The method's name, with its options beside it."""
    teacher: StageTeacherSpec | None = None
    """The stage's teacher; default: the recipe's."""
    student: Student | None = Field(
        None,
        description=(
            "A student of this stage alone, such as a teacher assistant, which later stages may name as their teacher; "
            "default: the recipe's student, trained further."
        ),
    )
    corpus: Corpus | None = None
    """The stage's corpus; default: the recipe's."""
    text: StageTextSpec = Field(default_factory=StageTextSpec)
    """How this stage cuts the corpus."""
    augment: AugmentSpec = Field(default_factory=AugmentSpec)
    """How this stage changes its text."""
    freeze: list[Literal["embeddings"]] = Field(default_factory=list)
    """Parts of the student that this stage does not train."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Fields of transformers.TrainingArguments, by their own names."""
    guard: GuardSpec = Field(default_factory=GuardSpec)
    """What this stage does about bad losses and missing memory."""

    @field_validator("method", mode="before")
    @classmethod
    def _name_alone_is_a_method(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("method")
    @classmethod
    def _known_method_and_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("name"), str):
            raise ValueError("method needs a name, for example {name: minilmv2}")
        try:
            read_method(value)
        except LimbeckError as error:
            raise ValueError(str(error)) from None
        except ValidationError as error:
            raise ValueError(explain(error).removeprefix("recipe: ")) from None
        return value

    @property
    def title(self) -> str:
        """The stage's name in logs and folders."""
        return self.name or str(self.method["name"])


def method_alone(value: Any) -> Any:
    """Return the keys of a stage that is given by its method's name alone; for validators."""
    return {"method": value} if isinstance(value, str) else value


Stage: TypeAlias = Annotated[StageSpec, BeforeValidator(method_alone, json_schema_input_type=StageSpec | str)]
"""A stage, or only its method's name."""


class EvaluationSpec(Grown):
    """What is measured once the student is trained, teacher beside student."""

    enabled: bool = True
    """Whether anything is measured."""
    quality: bool = True
    """Sentence-pair agreement and retrieval on held-out text."""
    speed: bool = True
    """Latency, measured on teacher and student in turn."""
    pooling: Literal["auto", "mean", "cls"] = "auto"
    """How sentence vectors are pooled; auto: as the teacher's folder says, else mean."""
    batch_sizes: list[Annotated[Count, Field(le=65_536)]] | None = Field(
        None,
        min_length=1,
        description="Batch sizes for the latency; default: 1 and 32. By default the whole evaluation takes a tenth of "
        "the training's time or 30 s, whichever is more, with smaller batches and fewer pairs where that keeps it "
        "in time.",
    )
    length: Length = 128
    """Tokens per text for the latency, and the longest text for the quality."""
    pairs: int | None = Field(None, ge=10, le=10_000_000)
    """Sentence pairs for the agreement; default: 1,500, or fewer (see batch_sizes)."""
    retrieval_pairs: int | None = Field(None, ge=10, le=1_000_000)
    """Texts in the pool of the retrieval; default: 700, or fewer (see batch_sizes)."""
    latency_seconds: float = Field(12.0, gt=0, le=600)
    """Time for all latency measurements together."""
    tasks: list[Name] | None = None
    """Tasks to score a student with a task's head on; default: the development rows of its last labelled stage."""
    data: Place | None = None
    """Folder with these tasks' files; default: that of the last corpus of a named task, else the Hugging Face Hub."""
    added = frozenset({"tasks", "data"})

    @model_validator(mode="after")
    def _data_of_tasks(self) -> EvaluationSpec:
        if self.data is not None and self.tasks is None:
            raise ValueError(
                "data is the folder with the files of evaluation.tasks, but no tasks are named: leave it out"
            )
        return self

    @field_validator("tasks", mode="before")
    @classmethod
    def _names_of_tasks(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            return value
        try:
            return parse_tasks(",".join(value))
        except LimbeckError as error:
            raise ValueError(str(error)) from None


class Recipe(Grown):
    """A run: teacher, student, corpus, stages and evaluation."""

    name: Name = "run"
    """Name of the run."""
    seed: int = Field(42, ge=0, lt=2**32)
    """Seed of every random stream of the run."""
    output: Place | None = None
    """Folder of the run, new or empty."""
    teacher: Teacher
    """The pretrained model that is distilled, or only its name."""
    student: Student
    """The model that is made, or only its shape."""
    corpus: Corpus | None = None
    """The text, or only its sources; not needed without stages."""
    stages: list[Stage] = Field(default_factory=list)
    """The stages, trained one after the other; without any, the student is saved as it was initialised."""
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)
    reasons: dict[str, str] | None = None
    """Reasons for the values of a chosen recipe, by the paths of the keys (stages.0.method); for readers only."""
    added = frozenset({"reasons"})

    @model_validator(mode="after")
    def _stages_fit_together(self) -> Recipe:
        if self.corpus is None and any(stage.corpus is None for stage in self.stages):
            raise ValueError("corpus is missing: stages need text, for example {sources: [installed-docs]}")
        titles = [stage.title for stage in self.stages]
        own = [stage.title for stage in self.stages if stage.student is not None]
        if own and len(own) == len(self.stages):
            raise ValueError(f"no stage trains the recipe's student: stages {own} all have a student of their own")
        for index, stage in enumerate(self.stages):
            named = stage.teacher.stage if stage.teacher is not None else None
            earlier = [title for title in titles[:index] if title in own]
            if named is not None and named not in earlier:
                raise ValueError(
                    f"stages.{index}.teacher.stage '{named}' is not an earlier stage with a separate student; "
                    f"there is {', '.join(earlier) or 'none'}"
                )
        if len(set(titles)) < len(titles):
            raise ValueError(f"two stages have the same name in {titles}; give each stage a unique name")
        return self


# The JSON schema of recipes, with every method's options.


def recipe_schema() -> dict[str, Any]:
    """Make the schema: the recipe's own, where `method` is a name or one of the methods with its options."""
    schema = Recipe.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    choices: list[dict[str, Any]] = [{"enum": list(METHODS)}]
    for name, method in METHODS.items():
        options = method.options.model_json_schema()
        options["properties"] = {"name": {"const": name}, **options.get("properties", {})}
        options["required"] = ["name", *options.get("required", [])]
        options["description"] = method.summary
        choices.append(options)
    stage = schema["$defs"]["StageSpec"]["properties"]
    stage["method"] = {"description": stage["method"].get("description", ""), "anyOf": choices}
    sources = schema["$defs"]["CorpusSpec"]["properties"]["sources"]
    schema["$defs"]["CorpusSpec"]["properties"]["sources"] = {
        "description": sources.get("description", ""),
        "anyOf": [{"type": "string"}, {k: v for k, v in sources.items() if k != "description"}],
    }
    return schema
