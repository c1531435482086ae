"""Facts that a recipe names, checked before torch is imported: models, shapes, text, and tasks' files.

A *fact* is what a recipe says about the world outside: that a folder or file is there, that a teacher has so many
layers. The *parts* of a recipe are its teacher, student, corpus, evaluation and stages. Mistakes are collected
(`Mistakes`), so that one call names all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from limbeck.core.kinds import KIND_NAMES
from limbeck.core.strict import Strict
from limbeck.corpus.settings import CorpusSpec, TaskSpec
from limbeck.errors import LimbeckError, RecipeError
from limbeck.evaluation.tasks.registry import TASKS, check_data, is_own_task
from limbeck.models.blueprint import WHOLE, check_depth, depth_alone, parse_blueprint
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
from limbeck.recipe.teacher_targets import names_targets
from limbeck.targets.facts import read_facts
from limbeck.targets.target_file import check_target_file

PartT = TypeVar("PartT", bound=Strict)


@dataclass(frozen=True)
class _Parts:
    """The parts of a recipe, or of a stage, whose facts can be checked.

    A part is None where the recipe does not have it, and where its mistakes leave nothing of it to check. Only a recipe
    has an evaluation, stages, and `members`: its teachers, where it names several.
    """

    teacher: TeacherSpec | None
    student: StudentSpec | None
    corpus: CorpusSpec | None
    evaluation: EvaluationSpec | None = None
    stages: list[_Parts] = field(default_factory=list)
    members: tuple[TeacherSpec, ...] = ()

    @property
    def teachers(self) -> tuple[TeacherSpec, ...]:
        """All teachers: the several ones, or else the one."""
        if self.members or self.teacher is None:
            return self.members
        return (self.teacher,)


def load_checked(recipe: Recipe | Mapping[str, Any] | str | Path, overrides: str | Sequence[str] = ()) -> Recipe:
    """Load a recipe as `load_recipe` does, and check its facts; the mistakes of both come in one error.

    Args:
        recipe: The recipe.
        overrides: `path=value` each, or one alone.

    Raises:
        LimbeckError: one with the `mistakes`, where they are several.
    """
    document = document_of(recipe, overrides)
    # A block `with mistakes.of(place)` keeps its error for `tell`, so that the checks after it are made too.
    mistakes = Mistakes()
    loaded = None
    with mistakes.of():
        loaded = check_document(document)
    # The facts of a recipe with mistakes are checked too, as far as its parts can be read.
    parts = _readable_parts(document) if loaded is None else _parts_of(loaded)
    with mistakes.of():
        _check_parts(parts)
    mistakes.tell()
    assert loaded is not None  # Else there was a mistake to tell.
    return loaded


def check_facts(recipe: Recipe) -> None:
    """Refuse models and text that do not exist, and shapes that cannot be read.

    Args:
        recipe: The recipe.

    Raises:
        LimbeckError: one with the `mistakes`, where they are several.
    """
    _check_parts(_parts_of(recipe))


def _parts_of(recipe: Recipe) -> _Parts:
    stages = [_Parts(stage.teacher, stage.student, stage.corpus) for stage in recipe.stages]
    parts = _Parts(recipe.teacher, recipe.student, recipe.corpus, recipe.evaluation, stages)
    if recipe.teachers is None:
        return parts
    return replace(parts, members=tuple(recipe.teachers.values()))


def _check_parts(recipe: _Parts) -> None:
    """Check the facts of all parts, and raise their mistakes as one error."""
    mistakes = Mistakes()
    for spec in recipe.teachers:
        with mistakes.of():
            check_teacher(spec)
    if recipe.student is not None:
        source = None if recipe.teacher is None else recipe.teacher.model
        with mistakes.of():
            check_student(recipe.student, source)

    # A stage may have a corpus of its own. A run without stages compares its student with the teacher on the corpus.
    corpus_is_read = not recipe.stages or any(stage.corpus is None for stage in recipe.stages)
    if recipe.corpus is not None and corpus_is_read:
        with mistakes.of():
            check_corpus(recipe.corpus)

    for index, stage in enumerate(recipe.stages):
        _check_stage(stage, f"stages.{index}", mistakes)
    if recipe.evaluation is not None:
        with mistakes.of("evaluation.data"):
            check_data(_folder(recipe.evaluation.data))
    mistakes.tell()


def _check_stage(stage: _Parts, place: str, mistakes: Mistakes) -> None:
    """Check the teacher, the student and the corpus that a stage has of its own, and add its mistakes to the others."""
    # The student of an earlier stage has no files before the run.
    is_assistant = isinstance(stage.teacher, StageTeacherSpec) and stage.teacher.stage is not None
    if stage.teacher is not None and not is_assistant:
        with mistakes.of():
            check_teacher(stage.teacher)
    if stage.student is not None:
        with mistakes.of(f"{place}.student"):
            check_student(stage.student)
    if stage.corpus is not None:
        with mistakes.of(f"{place}.corpus"):
            check_corpus(stage.corpus)


def check_teacher(teacher: TeacherSpec) -> None:
    """Refuse a teacher whose files or stored outputs are not there.

    Raises:
        LimbeckError: naming the first of them.
    """
    if teacher.target_file is not None:
        check_target_file(teacher.target_file)
        return
    if teacher.stored is not None:
        read_facts(teacher.stored)
    # Stored outputs may be of a teacher that had no files, such as a model behind an endpoint.
    if teacher.has_files:
        _check_is_model(teacher.model)


def _check_is_model(name: str) -> None:
    """Refuse a model whose only weights are pickles, and a file of texts in the place of a model."""
    if names_targets(name) and Path(name).expanduser().is_file():
        raise RecipeError(
            f"'{name}' is no model; if it holds texts and what a model said of them, name it as teacher.targets in a "
            "recipe, with its columns."
        )
    check_not_pickled(name)


def _readable_parts(document: Mapping[str, Any]) -> _Parts:
    """Read the parts of a document with mistakes, each without its wrong keys."""
    stages = []
    stage_documents = document.get("stages")
    if isinstance(stage_documents, list):
        stages = [_readable_parts_of_stage(stage) for stage in stage_documents if isinstance(stage, dict)]
    return _Parts(
        teacher=_readable_part(TeacherSpec, model_alone(document.get("teacher"))),
        student=_readable_part(StudentSpec, shape_alone(document.get("student"))),
        corpus=_readable_corpus(document.get("corpus")),
        evaluation=_readable_part(EvaluationSpec, document.get("evaluation")),
        stages=stages,
    )


def _readable_parts_of_stage(stage: Mapping[str, Any]) -> _Parts:
    return _Parts(
        teacher=_readable_part(StageTeacherSpec, model_alone(stage.get("teacher"))),
        student=_readable_part(StudentSpec, shape_alone(stage.get("student"))),
        corpus=_readable_corpus(stage.get("corpus")),
    )


def _readable_corpus(document: Any) -> CorpusSpec | None:
    """Read a corpus without its wrong keys; None where that is not possible.

    A corpus whose task has mistakes keeps a task, since its sources would be checked as texts without one.
    """
    # A mistake in the name of the task is reported by the check of the whole document.
    with suppress(ValidationError):
        document = expand_corpus(document)
    corpus = _readable_part(CorpusSpec, document)
    if corpus is None or corpus.task is not None:
        return corpus
    has_task = isinstance(document, dict) and document.get("task") is not None
    if has_task:
        # Any kind will do: whether files of rows exist does not depend on the kind.
        any_task = TaskSpec.model_construct(kind=KIND_NAMES[0])
        return corpus.model_copy(update={"task": any_task})
    return corpus


def _readable_part(cls: type[PartT], document: Any) -> PartT | None:
    """Read a part of a recipe without its wrong keys; None where one of these is required."""
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        wrong_keys = {item["loc"][0] for item in error.errors() if item["loc"]}
    if not isinstance(document, dict):
        return None
    right_keys = cls.model_fields.keys() - wrong_keys
    rest = {key: value for key, value in document.items() if key in right_keys}
    with suppress(ValidationError):
        return cls.model_validate(rest)
    return None


def check_choice(teacher: str | Path, student: Any, corpus: Sequence[str | Path]) -> None:
    """Refuse models and text for which no recipe can be chosen (`choosing.choose_recipe`), without importing torch.

    Args:
        teacher: A folder, `package:NAME` or a Hub name.
        student: A shape; a number alone is that many of the teacher's layers. None for the shape of a model that the
            student starts from.
        corpus: Sources of text or rows, or the name of a task.

    Raises:
        LimbeckError: one line for the first mistake.
    """
    _check_is_model(str(teacher))
    # A number alone is a depth, which is checked against the teacher's if this can be read without torch.
    depth = depth_alone(student)
    if depth is not None:
        size = _size_of(str(teacher))
        if size is not None:
            check_depth(depth, size.layers, size.hidden)
    elif student is not None:
        parse_blueprint(student)
    for place in corpus:
        source = str(place)
        is_task = source in TASKS or is_own_task(source)
        if not is_task:
            _check_source(source, content=None)


def check_student(student: StudentSpec, teacher: str | None = None) -> None:
    """Refuse a shape that cannot be read, layers that its source lacks, and models that do not exist.

    Args:
        student: The recipe's student.
        teacher: The model that it starts from unless it names another one, where it is known.

    Raises:
        ModelError: for any of these.
    """
    start = student.initialise
    source = teacher
    if start.from_ is not None:
        check_not_pickled(start.from_)
        source = start.from_
    size = None if source is None else _size_of(source)

    # A shape has a depth, its number of layers, and perhaps other sizes. `depth` is that of a shape without other
    # sizes, which takes these from the source.
    shape = student.shape
    depth = None
    if isinstance(shape, ShapeSpec):
        layers = parse_blueprint(shape.model_dump(exclude_none=True)).layers
    elif shape == WHOLE:
        # The source's own shape. Where the source cannot be read here, no check below needs the number.
        layers = 0 if size is None else size.layers
    else:
        depth = depth_alone(shape)
        layers = parse_blueprint(shape).layers if depth is None else depth

    if size is not None:
        if depth is not None:
            check_depth(depth, size.layers, size.hidden)
        if isinstance(start.layers, list):
            check_listed(start.layers, layers, size.layers)
    if start.checkpoint is not None:
        check_not_pickled(start.checkpoint)


class _Size(NamedTuple):
    """The size of a model: its number of layers, and the width of its hidden states."""

    layers: int
    hidden: int


def _size_of(model: str) -> _Size | None:
    """The size of a model in a folder or package, as its config.json has it; None where it cannot be told from there.

    `plan_run` checks the others: models on the Hub, of unknown families, and without a readable configuration.
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
    layers = config.get(fields.layers)
    hidden = config.get(fields.hidden)
    if not isinstance(layers, int) or not isinstance(hidden, int):
        return None
    return _Size(layers, hidden)


def check_corpus(corpus: CorpusSpec) -> None:
    """Refuse text and development rows that do not exist.

    Raises:
        CorpusError: one with the `mistakes`, where they are several.
    """
    mistakes = Mistakes()
    with mistakes.of():
        check_data(_folder(corpus.data))
    content: Literal["texts", "rows"] | None = "rows"
    if corpus.task is None:
        content = "texts"
    elif not corpus.task.labelled:
        content = None  # Text files have rows without labels too.
    for source in corpus.places:
        with mistakes.of():
            _check_source(source, content)
    for source in corpus.development or ():
        with mistakes.of():
            _check_source(source, "rows")
    mistakes.tell()


def _check_source(source: str, content: Literal["texts", "rows"] | None) -> None:
    """Refuse a source that does not exist, or that holds texts instead of rows or the reverse; None allows both."""
    from limbeck.corpus.sources.named_sources import check_source  # It imports what reads files.

    check_source(source, content)


def _folder(place: str | None) -> Path | None:
    if place is None:
        return None
    return Path(place).expanduser()
