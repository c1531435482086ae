"""What a recipe names, checked before torch is imported: models, shapes, text, tasks' files and training arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import ValidationError

from limbeck.core.strict import Strict
from limbeck.corpus.settings import CorpusSpec, TaskSpec
from limbeck.errors import LimbeckError, together
from limbeck.evaluation.tasks import TASKS, check_data, is_own_task
from limbeck.models.blueprint import check_depth, depth_alone, parse_blueprint
from limbeck.models.family_table import families
from limbeck.models.layer_selection import check_listed
from limbeck.models.locating import check_not_pickled, is_local, read_json, resolve_model
from limbeck.recipe.evaluation import EvaluationSpec
from limbeck.recipe.load import check_document, document_of
from limbeck.recipe.models import ShapeSpec, StageTeacherSpec, StudentSpec, TeacherSpec
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stages import StageSpec

_NO_PATHS = ("installed-docs", "installed-text")
"""Sources that are no paths."""

Check: TypeAlias = Callable[[], None]
"""Raises a `LimbeckError` for what is wrong."""

Part = TypeVar("Part", bound=Strict)


def load_checked(recipe: Recipe | Mapping[str, Any] | str | Path, overrides: str | Sequence[str] = ()) -> Recipe:
    """Load a recipe as `load_recipe`, and refuse what `check_places` does: all mistakes of both together.

    Args:
        recipe: The recipe.
        overrides: `path=value` each, or one alone.

    Raises:
        LimbeckError: one with the `mistakes`, where they are several.
    """
    document, found = document_of(recipe, overrides), list[LimbeckError]()
    try:
        loaded = checked = check_document(document)
    except LimbeckError as error:
        found.append(error)
        checked = _parts_in_order(document)
    found += _mistakes(_checks(checked))
    if found:
        raise together(found)
    return loaded


def check_places(recipe: Recipe) -> None:
    """Refuse models and text that are nowhere, shapes that cannot be read, and training arguments that no run has.

    `limbeck.recipe.plan.plan_run` checks the same among all else, once the models' configurations are read.

    Args:
        recipe: The recipe.

    Raises:
        LimbeckError: one with the `mistakes`, where they are several.
    """
    if found := list(_mistakes(_checks(recipe))):
        raise together(found)


def _mistakes(checks: Iterable[Check]) -> Iterator[LimbeckError]:
    for check in checks:
        try:
            check()
        except LimbeckError as error:
            yield error


def _checks(recipe: Recipe) -> Iterator[Check]:
    """Yield what each part of a recipe is checked by; parts may be missing, see `_parts_in_order`."""
    if recipe.teacher is not None:
        yield partial(check_not_pickled, recipe.teacher.model)
    if recipe.student is not None:
        yield partial(check_student, recipe.student, None if recipe.teacher is None else recipe.teacher.model)
    # Without stages a student is compared with its teacher on it.
    if recipe.corpus is not None and (not recipe.stages or any(stage.corpus is None for stage in recipe.stages)):
        yield partial(check_corpus, recipe.corpus)
    for index, stage in enumerate(recipe.stages):
        place = f"stages.{index}"
        if stage.teacher is not None and stage.teacher.stage is None:
            yield partial(check_not_pickled, stage.teacher.model)
        if stage.student is not None:
            yield _at(f"{place}.student", partial(check_student, stage.student))
        if stage.corpus is not None:
            yield _at(f"{place}.corpus", partial(check_corpus, stage.corpus))
    yield partial(check_data, None if recipe.evaluation.data is None else Path(recipe.evaluation.data).expanduser())


def _at(place: str, check: Check) -> Check:
    """Put the place in the recipe before what a check refuses."""

    def checked() -> None:
        try:
            check()
        except LimbeckError as error:
            raise together([type(error)(f"{place}: {line}") for line in error.mistakes or (str(error),)]) from None

    return checked


def _parts_in_order(document: Mapping[str, Any]) -> Recipe:
    """Return of a recipe with mistakes what else can be checked: parts without any, None in the place of others."""

    def read(part: Mapping[str, Any], **kinds: type[Strict]) -> dict[str, Any]:
        return {name: _in_order(kind, part.get(name)) for name, kind in kinds.items()}

    stages = document.get("stages")
    parts = read(document, teacher=TeacherSpec, student=StudentSpec, corpus=CorpusSpec, evaluation=EvaluationSpec)
    parts["evaluation"] = parts["evaluation"] or EvaluationSpec()
    parts["stages"] = []
    for stage in (each for each in (stages if isinstance(stages, list) else ()) if isinstance(each, dict)):
        own = read(stage, teacher=StageTeacherSpec, student=StudentSpec, corpus=CorpusSpec)
        training = stage.get("training")
        parts["stages"].append(
            StageSpec.model_construct(training=training if isinstance(training, dict) else {}, method={}, **own)
        )
    return Recipe.model_construct(**parts)


def _in_order(kind: type[Part], part: Any) -> Part | None:
    """Return a part of a recipe without its keys that are wrong; None where it cannot do without them."""
    try:
        return kind.model_validate(part)
    except ValidationError as error:
        wrong = {item["loc"][0] for item in error.errors() if item["loc"]}
    if isinstance(part, dict):
        with suppress(ValidationError):
            kept = kind.model_validate({k: v for k, v in part.items() if k in kind.model_fields and k not in wrong})
            # Its files are of rows all the same.
            is_rows = isinstance(kept, CorpusSpec) and "task" in wrong
            return (
                kept.model_copy(update={"task": TaskSpec.model_construct(kind="classification")}) if is_rows else kept
            )
    return None


def check_choice(teacher: str | Path, student: Any, corpus: Sequence[str | Path]) -> None:
    """Refuse what a recipe cannot be chosen for, as far as that shows without torch; see `choosing.choose_recipe`.

    Args:
        teacher: A folder, `package:NAME` or a Hub name.
        student: A shape; a number alone is that many of the teacher's layers.
        corpus: Sources of text or rows, or the name of a task.

    Raises:
        LimbeckError: one line for the first.
    """
    check_not_pickled(str(teacher))
    if (depth := depth_alone(student)) is None:
        parse_blueprint(student)
    elif (size := _size_of(str(teacher))) is not None:
        check_depth(depth, *size)
    for source in map(str, corpus):
        if source not in TASKS and not is_own_task(source):
            _check_source(source, None)


def check_student(student: StudentSpec, teacher: str | None = None) -> None:
    """Refuse a shape that cannot be read, layers that its teacher lacks, and a checkpoint that is nowhere.

    Args:
        student: What the recipe says of it.
        teacher: The model that it starts from, where it is known.

    Raises:
        ModelError: for either.
    """
    shape = student.shape
    written = shape.model_dump(exclude_none=True) if isinstance(shape, ShapeSpec) else shape
    depth, size = depth_alone(written), None if teacher is None else _size_of(teacher)
    layers = parse_blueprint(written).layers if depth is None else depth
    if depth is not None and size is not None:
        check_depth(depth, *size)
    if size is not None and isinstance(student.initialise.layers, list):
        check_listed(student.initialise.layers, layers, size[0])
    if student.initialise.checkpoint is not None:
        check_not_pickled(student.initialise.checkpoint)


def _size_of(model: str) -> tuple[int, int] | None:
    """Return depth and width of a model in a folder or package, as its config.json has them; None where unknown.

    Models on the Hub, of unknown families and without a readable configuration are left to `plan_run`.
    """
    try:
        resolved = resolve_model(model)
        config = read_json(Path(resolved) / "config.json", {}) if is_local(resolved) else {}
    except LimbeckError:
        return None
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(kind, str) or kind not in families:
        return None
    fields = families[kind].fields
    depth, width = config.get(fields.layers), config.get(fields.hidden)
    return (depth, width) if isinstance(depth, int) and isinstance(width, int) else None


def check_corpus(corpus: CorpusSpec) -> None:
    """Refuse text and development rows that are nowhere.

    Raises:
        CorpusError: one with the `mistakes`, where they are several.
    """
    checks = [partial(check_data, None if corpus.data is None else Path(corpus.data).expanduser())]
    content: Literal["texts", "rows"] = "texts" if corpus.task is None else "rows"
    checks += [partial(_check_source, source, content) for source in (*corpus.places, *(corpus.development or ()))]
    if found := list(_mistakes(checks)):
        raise together(found)


def _check_source(source: str, content: Literal["texts", "rows"] | None) -> None:
    if source not in _NO_PATHS and not source.startswith("hub:"):
        from limbeck.corpus.sources import check_source

        check_source(source, content)
