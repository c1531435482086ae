"""The options of `limbeck trim` and `limbeck.trim`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.requests import shared
from limbeck.api.requests.fields import argument, option, request

_PIECES = "Pieces that stay"
"""Panel of the help."""


@request
class TrimRequest:
    """A model, the text whose pieces its vocabulary keeps, and the folder of the smaller model."""

    model: Any = argument(
        "Model whose vocabulary is reduced: a run's folder, a model's folder, package:NAME or a Hub name.",
        python="A run's folder, a model's folder, `package:NAME` or a Hub name; a result of `distill`; or a model of "
        "transformers or sentence-transformers.",
        cls=str,
    )
    corpus: Any = option(
        "Text whose pieces are counted: a file, folder, glob, hub:NAME, installed-docs, installed-text or "
        "wordnet; may be repeated.",
        python="Text whose pieces are counted: files, folders or data sets by name; or a list of texts, a data set, a "
        "table of pandas or Arrow, or any iterable of texts.",
        cls=list[str],
        metavar="SOURCE",
    )
    _: KW_ONLY
    pieces: int | None = option(
        "Number of pieces to keep, including the pieces that always stay; give this or --coverage.",
        default=None,
        least=1,
        panel=_PIECES,
        python="Number of pieces to keep, those among them that always stay; give this or `coverage`.",
    )
    coverage: float | None = option(
        "Share of the text's tokens that the kept pieces must cover, such as 0.9995.",
        default=None,
        least=0,
        most=1,
        panel=_PIECES,
    )
    always: str | Path | Sequence[str] | None = option(
        "File with one word on each line, whose pieces stay even if they are rare.",
        default=None,
        python="Words whose pieces stay however rare they are, or a file with one a line.",
        cls=Path,
        panel=_PIECES,
    )
    text_column: str | None = option("Column of the text, in tables; default: text.", default=None, metavar="NAME")
    output: str | Path | None = option("Folder of the smaller model.", default=None, cls=Path)
    check: bool = option("Compare the outputs of both models on text that is held out of the counting.", default=False)
    console: Console | None = shared.console_option()
