"""The record of an export: `export.json` beside the exported model; see `limbeck.core.records`."""

from __future__ import annotations

from pydantic import Field

from limbeck.core.paths import EXPORT_RECORD
from limbeck.core.records import File, Number, Record


class Differences(Record):
    """An exported model beside its source; padding is not compared.

    Attributes:
        texts: Number of texts.
        batches: Number of batches; a text may be in several.
        tokens: Number of tokens of the longest row.
        largest: Output to its largest absolute difference.
        scale: Output to the largest absolute value of the source.
        cosine: Mean and lowest cosine of the vectors, sentence vectors where there are some, else those of tokens;
            empty with a head.
        equal_decisions: Share of decisions (on words, texts, answer ends) for the same most probable class; None
            without classes. A text that may have several classes is one decision for all of them. A text that is in
            several batches counts once.
        decisions: Number of these decisions; None without classes, and in older records.
        decided: What the decisions are on, in words, such as `words`; None for one on each text, and in older records,
            whose decisions were on all tokens, and on each class of a text.
        equal_tokens: Share of all tokens with the same most probable class, for a head that labels words; None for
            others, and in older records.
        mean_kl: Mean `KL(source || export)` of the class probabilities of the decisions in nats; where a text may have
            several classes, of each of them. None without classes.
    """

    texts: Number | None = None
    batches: Number | None = None
    tokens: Number | None = None
    largest: dict[str, Number | None] = Field(default_factory=dict)
    scale: dict[str, Number | None] = Field(default_factory=dict)
    cosine: dict[str, Number | None] = Field(default_factory=dict)
    equal_decisions: Number | None = None
    decisions: Number | None = None
    decided: str | None = None
    equal_tokens: Number | None = None
    mean_kl: Number | None = None


class Int8Latency(Record):
    """Both precisions, measured alternately, at one batch size and length.

    `demand` is the cores that this process and others wanted, for each core that there is; see
    `limbeck.core.timing.CoreDemand`. It is None in older records, some of which have `load`, the load average for each
    core.
    """

    batch: int
    length: int
    rounds: int
    threads: int | None = None
    float32_ms: Number
    float32_p10_ms: Number | None = None
    float32_p90_ms: Number | None = None
    int8_ms: Number
    int8_p10_ms: Number | None = None
    int8_p90_ms: Number | None = None
    speedup: Number
    demand: Number | None = None
    load: Number | None = None


class Int8(Record):
    """Size and latency of int8 weights beside those of float32."""

    megabytes: dict[str, Number] = Field(default_factory=dict)
    latency: list[Int8Latency] = Field(default_factory=list)


class Export(File):
    """An export; `differences` are those from its source, `verified` those on the user's own text.

    `development` are those on the labelled rows that the student's run did not train on, for a head that decides: its
    development rows, or the rows that it held out. It is None for other heads, and without such rows.

    Attributes:
        documents: Of a router, the model that reads documents.
        prompts: Of a router, what is put before a text, by its role; of sentence vectors in ONNX, by its use.
        found: Of a router, the share of sample texts whose vector as a query, by the student, is nearest to that of the
            same text as a document.
    """

    FILE = EXPORT_RECORD

    format: str = ""
    file: str | None = None
    dtype: str = ""
    source: str = ""
    documents: str | None = None
    prompts: dict[str, str] = Field(default_factory=dict)
    found: Number | None = None
    shape: str = ""
    head: str | None = None
    pooling: str | None = None
    normalize: bool | None = None
    longest: int | None = None
    megabytes: Number | None = None
    differences: Differences = Field(default_factory=Differences)
    verified: Differences | None = None
    development: Differences | None = None
    created: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    opset: int | None = None
    inputs: list[str] = Field(default_factory=list)
    outputs: list[str] = Field(default_factory=list)
    weight_bits: int | None = None
    int8: Int8 | None = None
