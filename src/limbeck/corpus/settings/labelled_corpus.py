"""`LabelledSettings`: a corpus of labelled rows with every key filled in, also by the teacher or a task by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Protocol

from pydantic import ConfigDict, Field, SkipValidation, field_validator, model_validator

from limbeck.core.fields import Length, Name, Share
from limbeck.core.kinds import KINDS, KindName
from limbeck.corpus.files.file_kinds import TableLayout
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.settings.augmentation import Augmentation
from limbeck.corpus.settings.checked import Checked
from limbeck.corpus.settings.corpus import DEFAULT_LENGTH
from limbeck.corpus.settings.task import TaskSpec
from limbeck.corpus.source_report import SourceReport

_COLUMNS_OF_LABELS = ("label", "label_columns", "tags", "answers")
"""Columns that rows without labels lack."""
_KEYS_WITHOUT_CONTENT = ("name", "kind", "class_weights", "metric", "positive")
"""Keys that change nothing that is built, apart from `kind`, which a manifest has as `task`."""
_KEYS_ADDED_IF_SET = (
    "augment",
    "columns",
    "development",
    "label_lists",
    "labelled",
    "quotes",
    "rows",
    "student_length",
    "text_keys",
    "whole_texts",
)
"""Keys of newer options, which `LabelledSettings.content` has only where they are set."""


class LabelledRows(Protocol):
    """Labelled rows that other code reads, such as those of a benchmark task, with the classes as numbers."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the rows may have changed."""

    def read(self, report: SourceReport) -> Iterator[LabelledRow]:
        """Iterate over the rows; the report receives what is left out."""


class LabelledSettings(Checked, TaskSpec):
    """Settings of a labelled corpus: its sources, their columns, and how rows become token sequences.

    Raises:
        CorpusError: if a value cannot be meant.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    label_columns: list[Name] = Field(default_factory=list)
    query_column: Name = "query"
    document_columns: list[Name] = Field(default_factory=lambda: ["documents"], min_length=1, max_length=100)
    documents_per_query: int = Field(16, ge=1, le=1_000_000)
    tokens_column: Name = "tokens"
    tags_column: Name = "tags"

    sources: list[str] = Field(min_length=1)
    """Files, folders, globs, or Hub data sets (`hub:owner/name`)."""
    length: Length = DEFAULT_LENGTH
    """Most tokens in a row, special tokens included. Longer texts are cut, the longer of a pair first; a longer
    context, or sentence of tagged words, becomes several windows."""
    text_column: Name = "text"
    """Column of the text."""
    held_out: Share | None = None
    """Share of the texts (contexts) kept from training, chosen by a hash of each: all rows on one text stay together,
    whatever else is in the corpus. None holds out 500 rows, or a tenth of fewer than 5,000, by whole groups of near
    duplicates; of a corpus with development rows none."""
    max_rows: int | None = Field(None, ge=1)
    """Read no more rows than this, in the order of the sources."""
    labels: tuple[str, ...] = ()
    """Class names in the order of their numbers, from the teacher's `id2label`; where there are classes."""
    rows: SkipValidation[LabelledRows | None] = None
    """Has the rows in place of the sources, which then only say where they are from."""
    development: SkipValidation[LabelledRows | None] = None
    """Has rows that are held out in place of a share: none of them is trained on, even where it is among the rows to
    train on too."""
    student_length: Length | None = None
    """Most tokens in a row as a student with another tokenizer than its teacher's reads it; None for `length`."""
    text_keys: bool = False
    """Whether each row has the key of its texts, by which what a teacher said of them is found."""
    whole_texts: bool = False
    """Whether the key of a row is that of its whole texts, even where they are cut."""
    augment: Augmentation | None = None
    """Copies of the rows to train on, with other words, which are added to the rows; none by default."""

    @field_validator("sources", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _classes_have_different_names(self) -> LabelledSettings:
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(
                f"Two classes have the same name in {', '.join(self.labels)}: give each class its own name in the "
                "model's id2label."
            )
        return self

    @property
    def task(self) -> KindName:
        """Kind of the label: a class, a value, the place of an answer in a context, and so on."""
        return self.kind

    @property
    def places(self) -> list[str]:
        """The sources by their names."""
        return self.sources

    @property
    def row_name(self) -> str:
        """What messages call a row."""
        return "labelled row" if self.labelled else "row"

    @property
    def text_of_line(self) -> str | None:
        """The column that the lines of text files fill; None where rows are more than a text.

        Text files have neither labels nor second texts.
        """
        if self.labelled or self.pair_column is not None:
            return None
        columns = KINDS[self.kind].columns
        if "text" in columns:
            return self.text_column
        if "tokens" in columns:
            return self.tokens_column
        return None

    @property
    def layout(self) -> TableLayout:
        """The layout of tables among the sources."""
        return TableLayout(tuple(self.columns or ()), self.quotes)

    @property
    def named_columns(self) -> dict[str, str]:
        """The columns that every row must have: name of the column → name of the setting that names it."""
        setting_of_column: dict[str, str] = {}
        # A part of a row, such as `pair`, is named by the setting `pair_column`. Some parts have several columns.
        for part in KINDS[self.kind].columns:
            if part in _COLUMNS_OF_LABELS and not self.labelled:
                continue
            if part == "documents":
                setting = "document_columns"
                columns: list[str | None] = [*self.document_columns]
            elif part == "label_columns":
                setting = "label_columns"
                columns = [*self.label_columns]
            elif part == "label" and self.label_columns:
                # The columns of the classes take the place of a single column of the label.
                continue
            else:
                setting = f"{part}_column"
                columns = [getattr(self, setting)]
            # A setting of None, such as that of the second text of a pair, says that rows do not have the column.
            for column in columns:
                if column is not None:
                    setting_of_column[column] = setting
        return setting_of_column

    def with_length(self, length: int) -> LabelledSettings:
        """The same rows, cut at another length."""
        return self.model_copy(update={"length": length})

    def content(self) -> dict[str, Any]:
        """The settings that decide the content of a built corpus, as plain values for its manifest.

        Keys of newer options are only there if the option is set, so that they do not change older corpora.
        """
        content: dict[str, Any] = {"task": self.kind}
        content.update(self.model_dump(mode="json", exclude={*_KEYS_WITHOUT_CONTENT, *_KEYS_ADDED_IF_SET}))

        # The options that came later.
        if self.quotes is not None:
            content["quotes"] = self.quotes
        if self.label_lists is not None:
            content["label_lists"] = self.label_lists
        if not self.labelled:
            content["labelled"] = False
        if self.augment is not None:
            content["augment"] = asdict(self.augment)
        if self.student_length is not None:
            content["student_length"] = self.student_length
        if self.text_keys:
            content["text_keys"] = True
        if self.whole_texts:
            content["whole_texts"] = True
        if self.columns:
            content["header"] = self.columns
        if self.rows is not None:
            content["rows"] = self.rows.fingerprint()
        if self.development is not None:
            content["development"] = self.development.fingerprint()
        return content
