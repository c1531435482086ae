"""The options of `limbeck export` and `limbeck.export`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.requests import completions
from limbeck.api.requests.fields import MEASURING, argument, option, request
from limbeck.api.requests.shared import LONGEST_SECONDS, console_option
from limbeck.core.lists import enumerate_words
from limbeck.export.formats import FORMATS, OWN_FORMATS

PUSHING = "Pushing to the Hub"
_FORMAT_NAMES = [each.name for each in OWN_FORMATS]
_QUOTED_NAMES = [f'`"{name}"`' for name in _FORMAT_NAMES]


@request
class ExportRequest:
    """A student, the format that it is exported to, and where the export goes."""

    student: Any = argument(
        "Student to export: a run's folder, a model's folder, package:NAME or a Hub name.",
        python="A run's folder, a model's folder, `package:NAME` or a Hub name; a result of `distill`; or a model of "
        "transformers or sentence-transformers.",
        cls=str,
    )
    format: str = option(
        f"{enumerate_words(_FORMAT_NAMES, 'or')}.",
        python=f"{enumerate_words(_QUOTED_NAMES, 'or')}.",
        complete=completions.complete(FORMATS),
    )
    _: KW_ONLY
    documents: Any = option(
        "Router only: the model for documents; default: the teacher named in the run.",
        default=None,
        python="Of a router, the model for documents, given as the student; None is the teacher that the run names.",
        cls=str,
        metavar="MODEL",
    )
    output: str | Path | None = option(
        "Output folder; default: next to the model's folder.",
        default=None,
        python="The export's folder; None is a folder next to the model's.",
        cls=Path,
    )
    dtype: str | None = option(
        "Number format of the weights: float32, float16 or bfloat16.",
        default=None,
        python='Of the weights: `"float32"`, `"float16"`, `"bfloat16"`; None is the format\'s own.',
        complete=completions.complete(completions.DTYPES),
    )
    opset: int | None = option(
        "ONNX operator set, 14 to 20; default: 17.",
        default=None,
        python="Operator set of ONNX, 14 to 20; None is 17.",
    )
    text: str | Path | Sequence[str] | None = option(
        "Compare on the lines of this file instead of the built-in text.",
        default=None,
        python="Texts to compare on, or a file with one a line; None is the built-in text.",
        cls=Path,
        panel=MEASURING,
    )
    verify: bool = option(
        "Compare the finished export a second time, in a new process and on all of the text; an int8 export that "
        "differs too much then fails.",
        default=False,
        panel=MEASURING,
    )
    evaluation: str | Path | None = option(
        "Folder of `limbeck evaluate` with scores for the model card; default: one in the run.",
        default=None,
        python="A folder of `evaluate`, for the model card; None is one in the run's.",
        cls=Path,
    )
    read_pickled: bool = option(
        "Read a model that has only pytorch_model.bin, in a separate process that accepts nothing but tensors.",
        default=False,
    )
    overwrite: bool = option("Replace an earlier export.", default=False)
    push: str | None = option(
        "Upload the folder to this repository of the Hub.",
        default=None,
        python="`owner/name` on the Hub, to upload the folder to.",
        metavar="OWNER/NAME",
        panel=PUSHING,
    )
    private: bool = option("Make a new repository private.", default=False, panel=PUSHING)
    seconds: float = option(
        "Time for measuring the latencies of int8.",
        default=20.0,
        least=0.01,
        most=LONGEST_SECONDS,
        panel=MEASURING,
    )
    console: Console | None = console_option()
