"""Facts that a recipe names, checked before torch is imported: models, shapes, text, and tasks' files.

A *fact* is what a recipe says about the world outside: that a folder or file is there, that a teacher has so many
layers. The *parts* of a recipe are its teacher, student, corpus, evaluation and stages. Mistakes are collected
(`Mistakes`), so that one call names all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    # An error within a block `with mistakes.gathered()` is raised only at the end, so that later checks are made too.
    mistakes = Mistakes()
    loaded = None
    with mistakes.gathered():
        loaded = check_document(document)
    # The facts of a recipe with mistakes are checked too, as far as its parts can be read.
    parts = _readable_parts(document) if loaded is None else _parts_of(loaded)
    with mistakes.gathered():
        _check_parts(parts)
    mistakes.raise_all()
    assert loaded is not None  # A document that was not loaded has mistakes, which were raised.
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
    """Take the parts of a recipe without mistakes."""
    stages = [_Parts(stage.teacher, stage.student, stage.corpus) for stage in recipe.stages]
    parts = _Parts(recipe.teacher, recipe.student, recipe.corpus, recipe.evaluation, stages)
    if recipe.teachers is None:
        return parts
    return replace(parts, members=tuple(recipe.teachers.values()))


def _check_parts(recipe: _Parts) -> None:
    """Check the facts of all parts of a recipe, and raise their mistakes as one error."""
    mistakes = Mistakes()
    for spec in recipe.teachers:
        with mistakes.gathered():
            check_teacher(spec)
    if recipe.student is not None:
        teacher_model = None
        if recipe.teacher is not None:
            teacher_model = recipe.teacher.model
        with mistakes.gathered():
            check_student(recipe.student, teacher_model)

    # A stage may have a corpus of its own. A run without stages compares its student with the teacher on the corpus.
    corpus_is_read = not recipe.stages or any(stage.corpus is None for stage in recipe.stages)
    if recipe.corpus is not None and corpus_is_read:
        # The columns of a file of targets are keys of the teacher, whose own check names them.
        targets = [spec.target_file.place for spec in recipe.teachers if spec.target_file is not None]
        with mistakes.gathered():
            check_corpus(recipe.corpus, targets)

    for index, stage in enumerate(recipe.stages):
        _check_stage(stage, f"stages.{index}", mistakes)
    if recipe.evaluation is not None:
        with mistakes.gathered("evaluation.data"):
            check_data(_folder(recipe.evaluation.data))
    mistakes.raise_all()


def _check_stage(stage: _Parts, place: str, mistakes: Mistakes) -> None:
    """Check the teacher, the student and the corpus that a stage has of its own, and add its mistakes to the others."""
    # The student of an earlier stage has no files before the run.
    is_assistant = isinstance(stage.teacher, StageTeacherSpec) and stage.teacher.stage is not None
    if stage.teacher is not None and not is_assistant:
        with mistakes.gathered():
            check_teacher(stage.teacher)
    if stage.student is not None:
        with mistakes.gathered(f"{place}.student"):
            check_student(stage.student)
    if stage.corpus is not None:
        with mistakes.gathered(f"{place}.corpus"):
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
            f"'{name}' is a file, not a model; if it holds texts with a teacher's outputs, name it as "
            "teacher.targets in a recipe, such as teacher: {targets: FILE, text: text, vector: embedding}."
        )
    check_not_pickled(name)


def _readable_parts(document: Mapping[str, Any]) -> _Parts:
    """Read the parts of a document with mistakes, each without its wrong keys."""
    stages: list[_Parts] = []
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
    """Read the parts that a stage of such a document has of its own."""
    return _Parts(
        teacher=_readable_part(StageTeacherSpec, model_alone(stage.get("teacher"))),
        student=_readable_part(StudentSpec, shape_alone(stage.get("student"))),
        corpus=_readable_corpus(stage.get("corpus")),
    )


def _readable_corpus(document: Any) -> CorpusSpec | None:
    """Read a corpus without its wrong keys; None where that is not possible."""
    # A mistake in the name of the task is reported by the check of the whole document.
    with suppress(ValidationError):
        document = expand_corpus(document)
    corpus = _readable_part(CorpusSpec, document)
    if corpus is None or corpus.task is not None:
        return corpus
    task_was_left_out = isinstance(document, dict) and document.get("task") is not None
    if task_was_left_out:
        # The task has mistakes. Another one takes its place, since sources of rows would be checked as texts without
        # any. Its kind does not matter for whether files of rows exist.
        any_task = TaskSpec.model_construct(kind=KIND_NAMES[0])
        return corpus.model_copy(update={"task": any_task})
    # limbeck chooses the task of rows only for a method without mistakes, so the sources may be rows or name a task.
    if any(source in TASKS or is_own_task(source) for source in corpus.places):
        return None
    any_task = TaskSpec.model_construct(kind=KIND_NAMES[0], labelled=False)
    return corpus.model_copy(update={"task": any_task})


def _readable_part(cls: type[PartT], document: Any) -> PartT | None:
    """Read a part of a recipe without its wrong keys; None where one of these is required."""
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        # The place of a mistake begins with a key of the part; a mistake of the part as a whole has no place.
        wrong_keys = {mistake["loc"][0] for mistake in error.errors() if mistake["loc"]}
    if not isinstance(document, dict):
        return None
    right_keys = cls.model_fields.keys() - wrong_keys
    readable = {key: value for key, value in document.items() if key in right_keys}
    with suppress(ValidationError):
        return cls.model_validate(readable)
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
    source_size = None
    if source is not None:
        source_size = _size_of(source)

    layers = _layers_of(student.shape)
    if source_size is not None:
        if layers is None:
            layers = source_size.layers
        # A number of layers alone takes its other sizes from the source.
        if depth_alone(student.shape) is not None:
            check_depth(layers, source_size.layers, source_size.hidden)
        if isinstance(start.layers, list):
            check_listed(start.layers, layers, source_size.layers)
    if start.checkpoint is not None:
        check_not_pickled(start.checkpoint)


def _layers_of(shape: int | str | ShapeSpec) -> int | None:
    """Return the number of layers of a student's shape; None for the whole shape of the model that it starts from.

    Raises:
        ModelError: for a shape that cannot be read.
    """
    if isinstance(shape, ShapeSpec):
        return parse_blueprint(shape.model_dump(exclude_none=True)).layers
    if shape == WHOLE:
        return None
    depth = depth_alone(shape)
    if depth is not None:
        return depth
    return parse_blueprint(shape).layers


class _Size(NamedTuple):
    """The size of a model: its number of layers, and the width of its hidden states."""

    layers: int
    hidden: int


def _size_of(model: str) -> _Size | None:
    """The size of a model in a folder or package, as its config.json has it; None where it cannot be told from there.

    None stands for models on the Hub, of unknown families, and without a readable configuration. `plan_run` checks
    these later.
    """
    try:
        place = resolve_model(model)
        if not is_local(place):
            return None
        config = read_json(Path(place) / "config.json", {})
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


def check_corpus(corpus: CorpusSpec, files_of_targets: Collection[str] = ()) -> None:
    """Refuse text and development rows that do not exist.

    Args:
        corpus: The corpus.
        files_of_targets: Sources whose columns are not checked here.

    Raises:
        CorpusError: one with the `mistakes`, where they are several.
    """
    mistakes = Mistakes()
    with mistakes.gathered():
        check_data(_folder(corpus.data))
    content: Literal["texts", "rows"] | None = "rows"
    if corpus.task is None:
        content = "texts"
    elif not corpus.task.labelled:
        content = None  # Text files have rows without labels too.
    for source in corpus.places:
        with mistakes.gathered():
            _check_source(source, content)
            if content == "texts" and source not in files_of_targets:
                _check_text(source, corpus)
    for source in corpus.development or ():
        with mistakes.gathered():
            _check_source(source, "rows")
    mistakes.raise_all()


def _check_source(source: str, content: Literal["texts", "rows"] | None) -> None:
    """Refuse a source that does not exist, or that holds texts instead of rows or the reverse; None allows both."""
    from limbeck.corpus.sources.named_sources import check_source  # It imports what reads files.

    check_source(source, content)


def _check_text(source: str, corpus: CorpusSpec) -> None:
    """Refuse a source without any text, such as a table without the column of the text."""
    from limbeck.corpus.sources.named_sources import check_text  # It imports what reads files.

    check_text(source, corpus.text_column, corpus.separator)


def _folder(place: str | None) -> Path | None:
    """The folder of tasks' files that a recipe names, if it does."""
    if place is None:
        return None
    return Path(place).expanduser()
