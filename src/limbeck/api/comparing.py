"""`compare`: students of several methods, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.api.calls import python_call
from limbeck.api.objects import Objects
from limbeck.api.progress import progress_console
from limbeck.api.requests.compare import CompareRequest
from limbeck.api.results import Result
from limbeck.core import studies
from limbeck.core.blocks import Block
from limbeck.errors import RecipeError

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class ComparisonResult(Result):
    """The result of a comparison.

    Args:
        comparison: The record, as in `comparison.json`; its `summary` has the content of the tables.
        failed: Number of runs and fine-tunings that gave nothing; the summary's notes say why.
        files: The tables.
    """

    comparison: studies.Comparison
    failed: int
    files: tuple[Path, ...]

    @property
    def record(self) -> dict[str, Any]:
        """The record as plain values, as in `comparison.json`."""
        return self.comparison.to_dict()

    @property
    def folder(self) -> Path:
        """The comparison's folder."""
        return self.files[0].parent

    def blocks(self) -> Iterator[Block]:
        """Yield the table of all students, that of each, and the notes."""
        from limbeck.report.comparison import methods_blocks

        yield from methods_blocks(self.comparison)

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        from limbeck.report.comparison import methods_csv

        return methods_csv(self.comparison)

    def to_pandas(self) -> DataFrame:
        """Return its figures as a table of pandas, unrounded, a row each, with their units."""
        from limbeck.api.figure_units import add_units

        measures = frozenset(measure.key for measure in self.comparison.summary.held_out)
        return add_units(super().to_pandas(), "figure", without_unit=measures)


def carry_out_comparison(request: CompareRequest) -> ComparisonResult:
    """Distil students by several methods under one token budget, and evaluate them side by side.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`. A run that fails raises nothing: see `failed`.

    Example:
        >>> plan = {
        ...     "name": "two methods",
        ...     "teacher": {"model": "intfloat/e5-small-v2"},
        ...     "students": [{"shape": "3x384"}],
        ...     "corpus": {"sources": ["texts"]},
        ...     "budget": {"tokens": 1_000_000},
        ...     "methods": ["minilmv2", "hidden_states"],
        ... }
        >>> result = limbeck.compare(plan, output="runs/methods")
        >>> result.failed
        0
    """
    from limbeck.api.distilling import write_cards_of_run
    from limbeck.comparison.folder import COMPARISON
    from limbeck.comparison.load import load_plan
    from limbeck.comparison.places import check_places

    if request.output is None:
        raise RecipeError("The comparison has no folder; give --output DIR.")
    console = progress_console(request.console)
    folder = Path(request.output).expanduser()
    plan = request.plan
    if isinstance(plan, Mapping):
        # Objects are kept in the folder before the plan is checked, but not in a folder of something else.
        plan = Objects(folder, partial(COMPARISON.look, folder)).document(plan)
    checked = load_plan(plan, request.overrides, data=request.data)
    check_places(checked, folder)
    # Torch is imported from here on, which takes seconds.
    from limbeck.comparison.run import run_comparison
    from limbeck.report.comparison import write_comparison

    outcome = run_comparison(checked, folder, console, write_cards_of_run)
    files = write_comparison(outcome.record, folder)
    return ComparisonResult(outcome.record, outcome.failed, tuple(files))


compare = python_call("compare", CompareRequest, carry_out_comparison)
