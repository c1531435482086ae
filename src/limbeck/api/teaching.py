"""`teach`: a teacher's outputs stored for students that learn without it; and the check of such a store."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.calls import python_call
from limbeck.api.endpoint_asking import ask_endpoint, check_endpoint, refuse_endpoint_options
from limbeck.api.named_recipes import named_recipe
from limbeck.api.progress import progress_console
from limbeck.api.requests.teach import TeachRequest
from limbeck.api.results import Shown
from limbeck.core.blocks import Block, Facts, Notes
from limbeck.core.files import check_writable
from limbeck.core.ranks import connect, on_all_ranks, on_main_rank
from limbeck.errors import ModelError, RecipeError, suggestion
from limbeck.recipe.facts import load_checked
from limbeck.recipe.schema import Recipe
from limbeck.targets.row_files import NUMBER_FORMATS

_USUAL_METHOD = "aligned_embedding"
"""The method whose outputs are stored where neither a recipe nor a method is given: finished sentence vectors."""
_BATCH_SIZE = 64
"""Texts that a model reads at once, unless the request says otherwise."""


@dataclass(frozen=True, repr=False)
class TeachResult(Shown):
    """The result of a call of `teach`.

    Args:
        folder: The folder of the store.
        figures: What it holds and what was done, by name.
        notes: Further lines.
    """

    folder: Path
    figures: Mapping[str, str | int | float]
    notes: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The line below the table: how a recipe names the store."""
        return f"In a recipe: teacher: {{stored: {self.folder}}}"

    def content(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {"store": str(self.folder), **self.figures}

    def blocks(self) -> Iterator[Block]:
        """Yield the table of figures, and the notes."""
        yield Facts(tuple((name, _text_of(value)) for name, value in self.figures.items()))
        if self.notes:
            yield Notes(self.notes)

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["figure", "value"])
        writer.writerows(self.figures.items())
        return text.getvalue()


def _text_of(value: str | float) -> str:
    """A figure as the table shows it."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def carry_out_teaching(request: TeachRequest) -> TeachResult:
    """Run a teacher once over a text, and store what it says: sentence vectors, or scores of texts or pairs.

    Students then learn from the store without the teacher, by `teacher: {stored: FOLDER}` in their recipes. A recipe
    says which outputs are needed. Without one, the finished sentence vectors are stored. The same call goes on where
    it was stopped. Under a launcher of several processes (`torchrun`) all of them call this and share the work.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> result = limbeck.teach(teacher="intfloat/e5-small-v2", corpus="texts", output="stores/e5")
        >>> result.figures["texts"]
        12000
    """
    refuse_endpoint_options(request)
    if request.check:
        return _check(request)
    if request.output is None:
        raise RecipeError("--output is missing: give the folder for the teacher's outputs.")
    if request.number_format not in NUMBER_FORMATS:
        hint = suggestion(request.number_format, NUMBER_FORMATS)
        raise RecipeError(f"The format of numbers is '{request.number_format}'.{hint}")
    folder = Path(request.output).expanduser()
    check_writable(path=Path(request.output), folder=folder)
    console = progress_console(request.console)
    if request.endpoint is not None:
        return _ask_endpoint(request, folder, console)
    # From here all processes of a launcher work together. The main one reads the recipe, and may write objects of it
    # into the folder. Each process then makes the plan of what was read, since each runs the teacher by it.
    connect()
    checked = on_main_rank(lambda: load_checked(_recipe_of(request, folder), request.overrides))
    from limbeck.recipe.plan import plan_checked
    from limbeck.training.teach import teach as run_teacher

    plan = on_all_ranks(lambda: plan_checked(checked))
    taught_rows = run_teacher(
        plan,
        folder,
        number_format=request.number_format,
        batch_size=request.batch_size or _BATCH_SIZE,
        console=console,
    )
    figures: dict[str, str | int | float] = dict(_facts_of(folder))
    # An earlier call may have computed some rows or all of them. The time is that of the rows of this call.
    figures["texts"] = taught_rows.rows
    figures["computed now"] = taught_rows.computed
    if taught_rows.computed:
        figures["seconds"] = round(taught_rows.seconds, 1)
        figures["tokens per second"] = round(taught_rows.tokens / max(taught_rows.seconds, 1e-9))
    if taught_rows.compared:
        figures["texts to compare students on"] = taught_rows.compared
    return TeachResult(folder, figures)


def _recipe_of(request: TeachRequest, folder: Path) -> Recipe | dict[str, Any]:
    """Return the recipe of a request; where only a teacher and a text are given, one that reads its vectors."""
    options: dict[str, Any] = {}
    for name in ("teacher", "corpus", "method", "length"):
        value = getattr(request, name)
        if value is not None:
            options[name] = value
    if request.recipe is None:
        missing = [f"--{name}" for name in ("teacher", "corpus") if name not in options]
        if missing:
            raise RecipeError(
                f"Without a recipe, {' and '.join(missing)} must be given; give all of that, or a recipe."
            )
        options.setdefault("method", _USUAL_METHOD)
        # The student is not made. A recipe needs one, and every teacher has a first layer.
        options["student"] = {"shape": 1}
        options["training"] = {"max_steps": 1}
        recipe: Any = {"name": "targets"}
    else:
        recipe = request.recipe
        if isinstance(recipe, Recipe) and not options:
            return recipe
    return named_recipe(recipe, options, tokenizer=request.tokenizer, kept_in=folder)


def _ask_endpoint(request: TeachRequest, folder: Path, console: Console) -> TeachResult:
    """Store the vectors that an endpoint makes, and return what is stored and what it took."""
    filled = ask_endpoint(request, folder, console)
    figures: dict[str, str | int | float] = dict(_facts_of(folder))
    figures["texts"] = filled.rows
    figures["texts sent now"] = filled.sent
    if filled.cut:
        figures["of these cut"] = filled.cut
    if filled.sent:
        figures["seconds"] = round(filled.seconds, 1)
    if filled.tokens:
        figures["tokens, as the endpoint counts"] = filled.tokens
        if request.price is not None:
            figures["cost"] = float(f"{filled.tokens * request.price / 1e6:.4g}")
    return TeachResult(folder, figures)


def _check(request: TeachRequest) -> TeachResult:
    """Compare a store with its hashes, and with its teacher or endpoint; return what it holds and what was found."""
    place = request.recipe or request.output
    if not isinstance(place, str | Path):
        raise RecipeError("--check needs the folder of a store; give it as in limbeck teach FOLDER --check.")
    folder = Path(place).expanduser()
    from limbeck.models.weight_files import check_not_pickled
    from limbeck.targets.drift import describe_drift
    from limbeck.targets.facts import read_facts
    from limbeck.training.store_check import check_store

    stored = read_facts(folder)
    notes = []
    if request.teacher is not None:
        # An empty name compares the store with no teacher.
        checked = check_store(folder, request.teacher or None)
    elif stored.endpoint is not None:
        checked = check_store(folder)
        try:
            drift = check_endpoint(request, checked.store, progress_console(request.console))
            checked = replace(checked, drift=drift, notes=(*checked.notes, describe_drift(drift, stored)))
        except ModelError as error:
            notes.append(f"Not compared with its endpoint: {error}")
    else:
        # The model that the store was made with may be gone by now. Then only the hashes are compared.
        model = stored.model
        if model:
            try:
                check_not_pickled(model)
            except Exception as error:
                # Whatever is wrong with the model, or with the way to it, is no fault of the store.
                notes.append(f"Not compared with its teacher: {error}")
                model = ""
        checked = check_store(folder, model or None)
    figures: dict[str, str | int | float] = dict(_facts_of(folder))
    figures["texts"] = len(checked.store)
    figures["files"] = len(checked.store.files)
    if checked.merged:
        figures["files merged"] = checked.merged
    if checked.drift is not None:
        figures["texts compared with the teacher"] = checked.drift.rows
        figures["least cosine"] = round(checked.drift.cosine, 6)
        figures["largest difference"] = float(f"{checked.drift.difference:.2g}")
    return TeachResult(folder, figures, (*notes, *checked.notes))


def _facts_of(folder: Path) -> Iterator[tuple[str, str | int]]:
    """Yield the facts of a store, by the names of the table."""
    from limbeck.targets.facts import read_facts

    facts = read_facts(folder)
    yield "teacher", facts.teacher
    yield "streams", ", ".join(f"{name} ({width})" for name, width in facts.streams.items())
    yield "numbers", facts.number_format
    if facts.computed_in:
        yield "computed in", facts.computed_in
    yield "bytes per text", facts.row_bytes
    if facts.endpoint is not None:
        yield "endpoint", facts.endpoint.url
        if facts.endpoint.cut_to:
            yield "texts cut to", facts.endpoint.cut_to
        if facts.endpoint.terms:
            yield "terms", facts.endpoint.terms


teach = python_call("teach", TeachRequest, carry_out_teaching)
