"""Facts that a recipe names, checked before torch is imported: models, shapes, text, and tasks' files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from limbeck.core.strict import Strict
from limbeck.corpus.settings import CorpusSpec, TaskSpec
from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks.registry import TASKS, check_data, is_own_task
from limbeck.models.blueprint import check_depth, depth_alone, parse_blueprint
from limbeck.models.family_table import families
from limbeck.models.folder_files import read_json
from limbeck.models.layer_selection import check_listed
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.weight_files import check_not_pickled
from limbeck.recipe.corpus import expand_corpus
from limbeck.recipe.evaluation import EvaluationSpec
from limbeck.recipe.load import check_document, document_of
from limbeck.recipe.mistakes import Mistakes
from limbeck.recipe.models import ShapeSpec, StageTeacherSpec, StudentSpec, TeacherSpec, model_alone, shape_alone
from limbeck.recipe.schema import Recipe

_NO_PATHS = ("installed-docs", "installed-text")
"""Sources that are no paths."""

PartT = TypeVar("PartT", bound=Strict)


@dataclass(frozen=True)
class _Parts:
    """The parts of a recipe, or of a stage, whose facts can be checked; None for those that are not there or wrong."""

    teacher: TeacherSpec | None
    student: StudentSpec | None
    corpus: CorpusSpec | None
    evaluation: EvaluationSpec | None = None
    stages: list[_Parts] = field(default_factory=list)


def load_checked(recipe: Recipe | Mapping[str, Any] | str | Path, overrides: str | Sequence[str] = ()) -> Recipe:
    """Load a recipe as `load_recipe`, and check its facts; all mistakes of both are told together.

    Args:
        recipe: The recipe.
        overrides: `path=value` each, or one alone.

    Raises:
        LimbeckError: one with the `mistakes`, where they are several.
    """
    document = document_of(recipe, overrides)
    mistakes = Mistakes()
    loaded = None
    with mistakes.of():
        loaded = check_document(document)
    with mistakes.of():
        _check_parts(_readable_parts(document) if loaded is None else _parts_of(loaded))
    mistakes.tell()
    assert loaded is not None
    return loaded


def check_facts(recipe: Recipe) -> None:
    """Refuse models and text that are nowhere, and shapes that cannot be read.

    Args:
        recipe: The recipe.

    Raises:
        LimbeckError: one with the `mistakes`, where they are several.
    """
    _check_parts(_parts_of(recipe))


def _parts_of(recipe: Recipe) -> _Parts:
    stages = [_Parts(stage.teacher, stage.student, stage.corpus) for stage in recipe.stages]
    return _Parts(recipe.teacher, recipe.student, recipe.corpus, recipe.evaluation, stages)


def _check_parts(recipe: _Parts) -> None:
    mistakes = Mistakes()
    if recipe.teacher is not None:
        with mistakes.of():
            check_not_pickled(recipe.teacher.model)
    if recipe.student is not None:
        with mistakes.of():
            check_student(recipe.student, None if recipe.teacher is None else recipe.teacher.model)

    # Without stages a student is compared with its teacher on the text.
    is_read = not recipe.stages or any(stage.corpus is None for stage in recipe.stages)
    if recipe.corpus is not None and is_read:
        with mistakes.of():
            check_corpus(recipe.corpus)

    for index, stage in enumerate(recipe.stages):
        is_assistant = isinstance(stage.teacher, StageTeacherSpec) and stage.teacher.stage is not None
        if stage.teacher is not None and not is_assistant:
            with mistakes.of():
                check_not_pickled(stage.teacher.model)
        if stage.student is not None:
            with mistakes.of(f"stages.{index}.student"):
                check_student(stage.student)
        if stage.corpus is not None:
            with mistakes.of(f"stages.{index}.corpus"):
                check_corpus(stage.corpus)

    if recipe.evaluation is not None:
        with mistakes.of("evaluation.data"):
            check_data(_folder(recipe.evaluation.data))
    mistakes.tell()


def _readable_parts(document: Mapping[str, Any]) -> _Parts:
    """Read the parts of a document with mistakes that have none, and others without their keys that are wrong."""
    stages = document.get("stages")
    stage_documents = [stage for stage in stages if isinstance(stage, dict)] if isinstance(stages, list) else []
    return _Parts(
        _readable_part(TeacherSpec, model_alone(document.get("teacher"))),
        _readable_part(StudentSpec, shape_alone(document.get("student"))),
        _readable_corpus(document.get("corpus")),
        _readable_part(EvaluationSpec, document.get("evaluation")),
        [
            _Parts(
                _readable_part(StageTeacherSpec, model_alone(stage.get("teacher"))),
                _readable_part(StudentSpec, shape_alone(stage.get("student"))),
                _readable_corpus(stage.get("corpus")),
            )
            for stage in stage_documents
        ],
    )


def _readable_corpus(document: Any) -> CorpusSpec | None:
    with suppress(ValidationError):
        document = expand_corpus(document)
    corpus = _readable_part(CorpusSpec, document)
    if corpus is not None and corpus.task is None and isinstance(document, dict) and document.get("task") is not None:
        # The task has mistakes; its files are of rows all the same.
        return corpus.model_copy(update={"task": TaskSpec.model_construct(kind="classification")})
    return corpus


def _readable_part(cls: type[PartT], document: Any) -> PartT | None:
    """Read a part of a recipe without its keys that are wrong; None where it cannot do without them."""
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        wrong_keys = {item["loc"][0] for item in error.errors() if item["loc"]}
    if not isinstance(document, dict):
        return None
    rest = {key: value for key, value in document.items() if key in cls.model_fields and key not in wrong_keys}
    with suppress(ValidationError):
        return cls.model_validate(rest)
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
    depth = depth_alone(student)
    if depth is None:
        parse_blueprint(student)
    else:
        size = _size_of(str(teacher))
        if size is not None:
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
    if isinstance(shape, ShapeSpec):
        layers = parse_blueprint(shape.model_dump(exclude_none=True)).layers
        depth = None
    else:
        depth = depth_alone(shape)
        layers = parse_blueprint(shape).layers if depth is None else depth

    size = None if teacher is None else _size_of(teacher)
    if size is not None:
        if depth is not None:
            check_depth(depth, *size)
        if isinstance(student.initialise.layers, list):
            teacher_layers, _ = size
            check_listed(student.initialise.layers, layers, teacher_layers)
    if student.initialise.checkpoint is not None:
        check_not_pickled(student.initialise.checkpoint)


def _size_of(model: str) -> tuple[int, int] | None:
    """Depth and width of a model in a folder or package, as its config.json has them; None where unknown.

    Models on the Hub, of unknown families and without a readable configuration are left to `plan_run`.
    """
    try:
        place = resolve_model(model)
        config = read_json(Path(place) / "config.json", {}) if is_local(place) else {}
    except LimbeckError:
        return None
    family = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(family, str) or family not in families:
        return None
    fields = families[family].fields
    depth = config.get(fields.layers)
    width = config.get(fields.hidden)
    if not isinstance(depth, int) or not isinstance(width, int):
        return None
    return depth, width


def check_corpus(corpus: CorpusSpec) -> None:
    """Refuse text and development rows that are nowhere.

    Raises:
        CorpusError: one with the `mistakes`, where they are several.
    """
    mistakes = Mistakes()
    with mistakes.of():
        check_data(_folder(corpus.data))
    content: Literal["texts", "rows"] = "texts" if corpus.task is None else "rows"
    for source in (*corpus.places, *(corpus.development or ())):
        with mistakes.of():
            _check_source(source, content)
    mistakes.tell()


def _check_source(source: str, content: Literal["texts", "rows"] | None) -> None:
    if source in _NO_PATHS or source.startswith("hub:"):
        return
    from limbeck.corpus.sources.named_sources import check_source  # It imports what reads files.

    check_source(source, content)


def _folder(place: str | None) -> Path | None:
    return None if place is None else Path(place).expanduser()
