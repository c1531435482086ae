"""`CorpusSpec`: a corpus as a recipe names it: its keys, each rule about them, and how a stage changes them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from limbeck.core.fields import MOST, Name, Place, Share
from limbeck.core.kinds import KINDS
from limbeck.core.mistakes import mistakes_of
from limbeck.corpus.settings.augmentation import RowAugmentationSpec
from limbeck.corpus.settings.mix import MixSpec
from limbeck.corpus.settings.parallel import ParallelSpec
from limbeck.corpus.settings.sources import SourceSpec
from limbeck.corpus.settings.task import TaskSpec
from limbeck.corpus.settings.text import StageTextSpec, TextSpec
from limbeck.errors import CorpusError, together

TEXT_ALONE = ("unit", "units", "join", "minimum_tokens", "pairs", "student_prompts")
"""Keys of a text that mean nothing to labelled rows."""
DEFAULT_LENGTH = 128
"""Longest block or row in tokens."""
DEFAULT_HELD_OUT = 0.01
"""Share of the documents of a text that is held out."""
_ROUNDING_OF_SHARES = 1e-6
"""Shares that were rounded may add up to so much more than 1."""


def _name_of_task(value: Any) -> Any:
    """The keys of a task that is given by its name alone."""
    return {"name": value} if isinstance(value, str) else value


class CorpusSpec(TextSpec):
    """The text that is distilled on."""

    elsewhere = {"columns": "corpus.task.columns"}  # noqa: RUF012 - declared as one of the class's

    sources: list[Place | SourceSpec] = Field(
        default_factory=list,
        description="Files, folders, globs, addresses (https://, s3://), hub:NAME data sets, installed-docs "
        "(docstrings of installed packages), installed-text (read-me files, news and licences too) or wordnet "
        "(definitions and example sentences, which come with limbeck); or {source, language, role, share, units}, or "
        "{parallel: {en: FILE, de: FILE}}. Leave it out where mix.by names them.",
    )
    text_column: Name = "text"
    """The column of text in tables, jsonl, parquet, arrow and Hub data."""
    separator: Literal["line", "blank_line"] | None = Field(
        None,
        description=(
            "What separates the documents of .txt files: line, where every line is one, or blank_line; default: blank "
            "lines, or lines where a file's first 1,000 lines have no blank one."
        ),
    )
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
    task: Annotated[TaskSpec | None, BeforeValidator(_name_of_task, json_schema_input_type=TaskSpec | str | None)] = (
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
    added = TextSpec.added | {"augment", "data", "development", "separator"}

    @field_validator("sources", "development", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @property
    def described_sources(self) -> list[SourceSpec]:
        """The sources with their keys; each language of parallel text is a source."""
        described: list[SourceSpec] = []
        for source in self.sources:
            if isinstance(source, str):
                described.append(SourceSpec(source=source))
            else:
                described += source.by_language
        return described

    @property
    def places(self) -> list[str]:
        """The sources by their names."""
        return [source.source or "" for source in self.described_sources]

    @property
    def parallel_sources(self) -> list[ParallelSpec]:
        """The sources that are parallel text, of which the teacher reads its own language."""
        described = [source for source in self.sources if isinstance(source, SourceSpec)]
        return [source.parallel for source in described if source.parallel is not None]

    @property
    def teaches_translations(self) -> bool:
        """Whether a source is parallel text."""
        return bool(self.parallel_sources)

    def merged(self, text: StageTextSpec) -> CorpusSpec:
        """The corpus as a stage cuts it: what the stage gives replaces what the corpus gives.

        Of several lengths that follow each other, the corpus has the last, which is the longest.

        Raises:
            CorpusError: for keys that exclude each other. Where there are several mistakes, its attribute `mistakes`
                has a line for each.
        """
        keys = {key: getattr(self, key) for key in self.model_fields_set}
        for key in TextSpec.model_fields:
            value = getattr(text, key)
            if value is not None:
                keys[key] = value
        # The unit of the stage takes the place of the corpus's units, and the reverse.
        if text.unit is not None:
            keys["units"] = None
        elif text.units is not None:
            keys["unit"] = None
        if text.schedule is not None:
            keys["length"] = text.schedule.lengths[-1]

        try:
            return CorpusSpec(**keys)
        except ValidationError as error:
            # A mistake that is not of one key has "recipe" in the place of the key, and here it is one of the corpus.
            errors = [CorpusError(line.removeprefix("recipe: ")) for line in mistakes_of(error)]
            raise together(errors) from None

    @model_validator(mode="after")
    def _sources_are_named_once(self) -> CorpusSpec:
        """Refuse a corpus without sources, and one that names them in two ways."""
        # The definition of a task that has a name has the sources, which no other key may name then.
        if self.task is not None and self.task.name is not None:
            for key in ("sources", "text_column"):
                if not self._has_default(key):
                    raise ValueError(
                        f"the task '{self.task.name}' already defines its {key}: leave out {key}, or name no task"
                    )
            return self
        if self.data is not None:
            raise ValueError(
                "'data' is the folder with the files of a named task, but task.name is missing: name the task, or "
                "give 'sources' in place of 'data'"
            )
        mix_names_sources = self.mix is not None and self.mix.by is not None
        if mix_names_sources and self.sources:
            raise ValueError("mix.by and 'sources' both name the files to read: leave one of the two out")
        if not mix_names_sources and not self.sources:
            raise ValueError(
                "'sources' is missing: give files, folders or data sets as 'sources', or a pattern of files as mix.by"
            )
        return self

    @model_validator(mode="after")
    def _development_rows_are_labelled(self) -> CorpusSpec:
        """Refuse development rows for text, beside a share of held-out rows, or without any file."""
        if self.development is not None and self.task is None:
            raise ValueError(
                "'development' applies only to labelled rows, but this corpus has no 'task': add 'task', or leave "
                "'development' out"
            )
        if self.development and self.held_out:
            raise ValueError(
                f"held_out {self.held_out} holds training rows out for want of a development set, but "
                "'development' is given: leave held_out or 'development' out"
            )
        has_metrics = self.task is not None and bool(self.task.metric or self.task.positive)
        if has_metrics and self.development is None:
            raise ValueError(
                "task.metric and task.positive score development rows, but there are none: give 'development', or "
                "leave both keys out"
            )
        if self.development == []:
            raise ValueError("'development' is empty: give a file with labelled rows, or leave the key out")
        return self

    @model_validator(mode="after")
    def _documents_are_held_out(self) -> CorpusSpec:
        """Give text without labels its default share of held-out documents; rows have none."""
        if self.held_out is None and self.task is None:
            # The default is only known here, and the model is frozen against assignments.
            object.__setattr__(self, "held_out", DEFAULT_HELD_OUT)
        return self

    @model_validator(mode="after")
    def _stream_has_no_end(self) -> CorpusSpec:
        """Refuse keys of a stream for a built corpus, and the reverse."""
        # `CorpusSettings` has a number as the default of shuffle_buffer, which nobody gave.
        gives_buffer = "shuffle_buffer" in self.model_fields_set and self.shuffle_buffer is not None
        if gives_buffer and not self.streaming:
            raise ValueError(
                "shuffle_buffer applies only to 'streaming', because a built corpus is shuffled as a whole: leave "
                "shuffle_buffer out"
            )
        if self.streaming and self.max_documents is not None:
            raise ValueError(
                "max_documents does not apply to 'streaming', because a stream is read for as long as training "
                "lasts: leave max_documents out"
            )
        return self

    @model_validator(mode="after")
    def _shares_fit_the_sources(self) -> CorpusSpec:
        """Refuse weights and shares that do not go with the sources, or with each other."""
        weights = self.mix.weights if self.mix is not None else None
        sources = len(self.described_sources)
        if weights is not None and len(weights) != sources:
            raise ValueError(
                f"mix.weights has {len(weights)} weights for {sources} sources: give one weight for each source"
            )
        shares = [source.share for source in self.described_sources if source.share is not None]
        if shares and self.mix is not None:
            raise ValueError(
                "the shares of 'sources' and 'mix' both say how much to read of each source: leave out 'mix', or "
                "every 'share'"
            )
        total = math.fsum(shares)
        if total > 1 + _ROUNDING_OF_SHARES:
            raise ValueError(f"the shares of sources add up to {total:g}, which is more than 1: lower some of them")
        some_have_none = len(shares) < sources
        if some_have_none and total >= 1:
            raise ValueError(
                f"the shares of sources add up to {total:g} and leave nothing for the sources without a share: "
                "give smaller shares, or give every source a share"
            )
        return self

    @model_validator(mode="after")
    def _labelled_rows_are_whole(self) -> CorpusSpec:
        """Refuse keys of text for labelled rows, which are not cut or mixed."""
        if self.task is None:
            return self
        if self.streaming:
            raise ValueError(
                "'streaming' and 'task' exclude each other, because only running text can be streamed, not the "
                "rows of a task: leave one of the two out"
            )
        if self.mix is not None:
            raise ValueError(
                "'mix' and 'task' exclude each other, because only running text can be mixed, not the rows of a "
                "task: leave one of the two out"
            )
        for key in (*TEXT_ALONE, "separator"):
            if getattr(self, key) is not None:
                raise ValueError(
                    f"'{key}' applies only to running text, because with 'task' every row stays whole: leave "
                    f"'{key}' out"
                )
        if any(isinstance(source, SourceSpec) for source in self.sources):
            raise ValueError(
                "a source of rows takes no keys of its own when 'task' is given: give its name alone, such as rows.csv"
            )
        return self

    @model_validator(mode="after")
    def _columns_are_different(self) -> CorpusSpec:
        """Refuse one name for several columns, and a column of texts where the kind has none."""
        if self.task is None:
            return self
        kind = KINDS[self.task.kind]
        if "text" not in kind.columns:
            if not self._has_default("text_column"):
                raise ValueError(
                    f"text_column does not apply to {self.task.kind}, whose columns are named under 'task': leave "
                    "text_column out"
                )
            return self
        columns = [self.text_column, self.task.pair_column]
        if self.task.labelled:
            columns.append(self.task.label_column)
        if len(set(columns)) < len(columns):
            raise ValueError(
                f"the columns for the text, the pair and the label must differ, but they are {columns}: give each "
                "another column"
            )
        return self

    @model_validator(mode="after")
    def _windows_have_room(self) -> CorpusSpec:
        """Refuse windows on contexts that overlap by more than half."""
        if self.task is None or not KINDS[self.task.kind].has_answers:
            return self
        length = self.length or DEFAULT_LENGTH
        if self.task.stride > length // 2:
            raise ValueError(
                f"task.stride {self.task.stride} is more than half of a window of {length} tokens, so windows "
                f"would mostly repeat each other; use {length // 2} or less, or raise 'length'"
            )
        return self

    @model_validator(mode="after")
    def _copies_suit_the_rows(self) -> CorpusSpec:
        """Refuse copies of text without labels, and of rows whose words or queries must not change."""
        if self.augment is None:
            return self
        if self.task is None:
            raise ValueError(
                "'augment' copies labelled rows, but this corpus has no 'task': add 'task', or change text during "
                "training by the stage's augment.replace_tokens"
            )
        kind = KINDS[self.task.kind]
        if kind.has_queries:
            raise ValueError(
                "'augment' would change a query differently in each of its rows, so that its documents no longer "
                "belong together: leave 'augment' out"
            )
        if kind.of_words:
            raise ValueError(
                "'augment' would replace words, but here every word has a label of its own: leave 'augment' out"
            )
        return self

    def _has_default(self, key: str) -> bool:
        """Whether a key has its default, which a user may have written too."""
        default = type(self).model_fields[key].get_default(call_default_factory=True)
        return bool(getattr(self, key) == default)
