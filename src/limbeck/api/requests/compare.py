"""The options of `limbeck compare` and `limbeck.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.requests import values
from limbeck.api.requests.fields import MEASURING, argument, option, request
from limbeck.api.requests.shared import console_option

if TYPE_CHECKING:
    from limbeck.comparison.plan import ComparisonPlan
else:
    ComparisonPlan = Any  # Importing it takes long, and a request does not look into it.


@request
class CompareRequest:
    """A plan of a comparison, and its folder."""

    plan: ComparisonPlan | Mapping[str, Any] | str | Path = argument(
        "The plan of the comparison (YAML).",
        python="A `ComparisonPlan`, a dict (with objects in the places of names), or the path of a YAML file.",
        cls=Path,
    )
    overrides: str | Sequence[str] = option(
        "Override a value: --set budget.tokens=1e7",
        default=(),
        python="`path.to.key=value` each, or one alone.",
        cls=list[str],
        flag="--set",
        metavar="PATH=VALUE",
        reads=values.texts,
    )
    _: KW_ONLY
    output: str | Path | None = option(
        "Output folder; runs that are finished there are not repeated.",
        default=None,
        python="The comparison's folder; finished runs in it are not run again.",
        cls=Path,
    )
    data: str | Path | None = option(
        "Folder with the task files, or `hub`; replaces the plan's folder.",
        default=None,
        python="Folder with the tasks' files, or `\"hub\"`; wins over the plan's.",
        cls=str,
        metavar="DIR",
        panel=MEASURING,
    )
    console: Console | None = console_option()
