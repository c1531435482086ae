"""The record of a model whose vocabulary was cut: `trim.json` beside it; see `limbeck.core.records`."""

from __future__ import annotations

from pydantic import Field

from limbeck.core.paths import TRIM_RECORD
from limbeck.core.records import File, Number, Record


class SourceCosts(Record):
    """What held-out texts of a source cost before and after.

    Attributes:
        source: Name of the source.
        counted: Number of texts whose pieces were counted.
        texts: Number of held-out texts.
        words: Number of words in them; 0 for a tokenizer that does not cut texts into words first.
        words_cut_more: Number of these that are cut into more pieces than before.
        tokens_before: Tokens of all held-out texts before, without special tokens.
        tokens_after: The same after.
    """

    source: str = ""
    counted: int = 0
    texts: int = 0
    words: int = 0
    words_cut_more: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


class OutputDifferences(Record):
    """The largest differences of outputs on held-out texts, by the name of the output.

    Attributes:
        texts: Number of texts.
        same_texts: Number of these that are cut as before.
        same: Of the texts that are cut as before.
        others: Of the other texts, for outputs that have a value for the whole text.
    """

    texts: int = 0
    same_texts: int = 0
    same: dict[str, Number | None] = Field(default_factory=dict)
    others: dict[str, Number | None] = Field(default_factory=dict)


class Trim(File):
    """A model whose vocabulary was cut.

    Attributes:
        source: Name of the model.
        kind: Kind of its tokenizer.
        pieces_before: Number of pieces before.
        pieces: Number of pieces.
        staying: Number of those that stay in any case.
        parameters_before: Number of parameters before.
        parameters: Number of parameters.
        megabytes_before: Size of the weights before, in millions of bytes.
        megabytes: Size of the weights.
        costs: What texts cost, by source.
        differences: Differences of outputs; None where they were not measured.
    """

    FILE = TRIM_RECORD

    source: str = ""
    kind: str = ""
    pieces_before: int = 0
    pieces: int = 0
    staying: int = 0
    parameters_before: int = 0
    parameters: int = 0
    megabytes_before: Number = 0
    megabytes: Number = 0
    costs: list[SourceCosts] = Field(default_factory=list)
    differences: OutputDifferences | None = None
    created: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
