"""The options of `limbeck inspect` and `limbeck.inspect`: those of all inspections, and those of each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.requests import shared
from limbeck.api.requests.fields import RESULT, argument, option, request
from limbeck.api.requests.shared import LAST_SEED
from limbeck.core.lists import MOST

# Panels of the helps.
TEXT = "The text"
CLUSTERS = "Spans and clusters"


def _count_option(default: int) -> Any:
    """Return the field of the number of texts, whose default depends on the inspection."""
    return option(
        "Number of texts to read, spread over the file.",
        default=default,
        python="Texts to read, spread over the file; None is 256 for attention, else 512.",
        least=1,
        most=MOST,
        panel=TEXT,
    )


@request
class InspectRequest:
    """The options of every inspection."""

    model: Any = argument(
        "Model to look into (with --teacher, the student): a run's folder, a model's folder, a Hub name or "
        "package:NAME.",
        cls=str,
    )
    teacher: Any = option("Teacher, a second model that the first is compared with.", default=None, cls=str)
    _: KW_ONLY
    texts: str | Path | Sequence[str] | None = option(
        "File with one text per line; default: built-in sentences.",
        default=None,
        python="Texts, or a file with one a line; None is sentences that come along.",
        cls=Path,
        flag="--texts,--text",
        panel=TEXT,
    )
    count: int = _count_option(512)
    length: int = option("Longest text in tokens; longer texts are cut.", default=128, least=2, most=MOST, panel=TEXT)
    output: str | Path | None = option(
        "Folder for the figure and its data, or one file: .png, .svg or .pdf for the figure, .json for the data.",
        default=None,
        cls=Path,
        panel=RESULT,
    )
    device: str = option('`"auto"`, `"cpu"`, `"cuda"` …', default="auto")
    console: Console | None = shared.console_option()


@request
class PhrasesRequest(InspectRequest):
    """A clustering of phrases."""

    _: KW_ONLY
    data: str | Path = option("Chunked text in the CoNLL-2000 format: word, part of speech, tag.", cls=Path)
    spans: int = option("Number of chunks to draw.", default=3000, least=1, most=MOST, panel=CLUSTERS)
    unlabelled: int = option(
        "Number of spans between chunks to draw, as an additional label.",
        default=500,
        least=0,
        most=MOST,
        panel=CLUSTERS,
    )
    clusters: int | None = option(
        "Number of clusters; default: the number of labels.",
        default=None,
        least=2,
        most=MOST,
        panel=CLUSTERS,
        show_default=False,
    )
    held_out: int = option(
        "Number of spans that are held out of the clustering and only scored; 0: score the clustered spans.",
        default=0,
        least=0,
        most=MOST,
        panel=CLUSTERS,
    )
    seeds: int = option("Number of runs of k-means.", default=3, least=1, most=1000, panel=CLUSTERS)
    seed: int = option(
        "Seed for drawing the chunks, and the first seed of k-means.",
        default=0,
        least=0,
        most=LAST_SEED - 1000,
        panel=CLUSTERS,
    )


@request
class AttentionRequest(InspectRequest):
    """Maps of attention, and their divergence from a teacher's."""

    _: KW_ONLY
    count: int = _count_option(256)
    sentence: str | None = option(
        "Sentence to draw maps of; default: the first text.", default=None, show_default=False
    )
    layers: Any = option(
        "Layers to draw, such as 3,6 or all; with a teacher also pairs STUDENT:TEACHER, such as 3:6. Default: the "
        "last layer.",
        default=None,
        cls=str,
        show_default=False,
    )
    heads: Any = option(
        "Heads to draw, separated by commas: numbers, mean (of all heads) or all.", default="mean", cls=str
    )


@request
class SimilarityRequest(InspectRequest):
    """The similarity of every layer to every other."""


@request
class ContributionRequest(InspectRequest):
    """The change that each layer makes to its input."""


INSPECTIONS: Mapping[str, type[InspectRequest]] = {
    "phrases": PhrasesRequest,
    "attention": AttentionRequest,
    "similarity": SimilarityRequest,
    "contribution": ContributionRequest,
}
"""Kinds of inspections by the names of their commands."""
