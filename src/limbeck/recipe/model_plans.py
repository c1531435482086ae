"""A recipe's models, known from their configurations before any weight is loaded.

A teacher is a model in a folder or on the Hub, the student of an earlier stage of the same run (which has no files
before the run), or a *teaching*: code that is registered by name and teaches in place of a model.
"""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedConfig

from limbeck.errors import RecipeError
from limbeck.evaluation.evaluators.head_match import names_of_classes, rename_classes
from limbeck.methods.teaching import Teaching, make_teaching
from limbeck.models.blueprint import StudentBlueprint, parse_blueprint
from limbeck.models.families import Shape, shape_of
from limbeck.models.layer_selection import selected_layers
from limbeck.models.loading import load_config
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling
from limbeck.models.start import check_start, source_shape
from limbeck.models.start_checkpoint import same_tensors
from limbeck.models.start_step import StartSettings
from limbeck.models.students import student_config
from limbeck.models.teaching_facts import TeachingFacts
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import check_same_vocabulary
from limbeck.models.weight_files import check_not_pickled
from limbeck.recipe.models import InitialiseSpec, ShapeSpec, StudentSpec, TeacherSpec


@dataclass(frozen=True)
class TeacherInfo:
    """What is known of a teacher before its weights are loaded.

    Args:
        spec: The recipe's keys.
        config: Its configuration.
        shape: Its shape.
        sentence: How it makes sentence vectors, where its files say so.
        stage: The name of the earlier stage whose student it is; None for a teacher with files.
        teaching: The teaching in place of the model; None where the model teaches.
    """

    spec: TeacherSpec
    config: PreTrainedConfig
    shape: Shape
    sentence: SentencePooling | None = None
    stage: str | None = None
    teaching: Teaching | None = None

    @property
    def title(self) -> str:
        """Its name in messages and records."""
        if self.stage is not None:
            return f"the student of stage '{self.stage}'"
        return self.spec.name or self.spec.model

    @property
    def facts(self) -> TeachingFacts:
        """What is known of the teaching before anything is loaded."""
        if self.teaching is not None:
            return self.teaching.facts
        return TeachingFacts(self.title, self.shape, labels=self.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of a classifier's classes, in the order of its outputs."""
        return names_of_classes(self.config)


@dataclass(frozen=True)
class StudentPlan:
    """A student that will be made.

    Args:
        spec: The recipe's keys.
        config: Its configuration, with the teacher's dropout.
        blueprint: Every size that it is made with.
        shape: The sizes that methods compare with the teacher's.
        source_layers: Teacher layers that its blocks are copied from, or None.
    """

    spec: StudentSpec
    config: PreTrainedConfig
    blueprint: StudentBlueprint
    shape: Shape
    source_layers: list[int] | None


def plan_teacher(spec: TeacherSpec) -> TeacherInfo:
    """Read a teacher's configuration, and its files about sentence vectors.

    Raises:
        ModelError: if there is no configuration, or its only weights are pickles.
        RecipeError: for a key of `teacher.classes` that names none of its classes.
    """
    check_not_pickled(spec.model)
    config = load_config(spec.model, spec.revision)
    if spec.classes:
        config = rename_classes(config, spec.classes, f"teacher.classes of '{spec.name or spec.model}'")
    sentence = sentence_pooling(spec.model, spec.revision)
    teaching = None if spec.teaching is None else make_teaching(spec.teaching)
    return TeacherInfo(spec, config, shape_of(config), sentence=sentence, teaching=teaching)


def plan_student(spec: StudentSpec, teacher: TeacherInfo) -> StudentPlan:
    """Derive a student from its teacher, and check its start.

    Args:
        spec: The recipe's keys.
        teacher: The teacher that it is initialised from.

    Raises:
        LimbeckError: for a shape, layers or a checkpoint that do not fit.
    """
    shape_keys = spec.shape
    if isinstance(shape_keys, ShapeSpec):
        blueprint = parse_blueprint(shape_keys.model_dump(exclude_none=True), teacher.shape)
    else:
        blueprint = parse_blueprint(shape_keys, teacher.shape)
    source_layers = None
    if spec.initialise.layers != "random":
        source_layers = selected_layers(spec.initialise.layers, blueprint.layers, teacher.shape.layers)

    # The start may have steps that change the vocabulary, so its size is that of the model they come to.
    settings = start_settings(spec.initialise)
    vocabulary = source_shape(teacher.shape, settings).vocabulary
    config = student_config(blueprint, teacher.config, source_layers=source_layers, vocabulary=vocabulary)
    shape = shape_of(config)

    # The student of an earlier stage has no tokenizer of its own yet to compare a checkpoint's with.
    checkpoint = spec.initialise.checkpoint
    if checkpoint is None:
        check_start(shape, teacher.shape, settings)
    elif teacher.stage is None:
        _check_checkpoint(checkpoint, teacher.spec.model, config)
    return StudentPlan(spec, config, blueprint, shape, source_layers)


def start_settings(spec: InitialiseSpec, *, seed: int = 0) -> StartSettings:
    """Return the options of a start that a recipe asks for.

    Args:
        spec: The recipe's `initialise`, without a checkpoint.
        seed: The run's.
    """
    narrow_by = "weights" if spec.narrow_by is None else spec.narrow_by
    steps = {} if spec.steps is None else spec.steps
    return StartSettings(layers=spec.layers, embeddings=spec.embeddings, narrow_by=narrow_by, seed=seed, steps=steps)


def _check_checkpoint(checkpoint: str, teacher: str, student: PreTrainedConfig) -> None:
    """Refuse a start without the tensors of the student's shape, or with another vocabulary than the teacher's."""
    check_not_pickled(checkpoint)
    config = load_config(checkpoint)
    if not same_tensors(student, config):
        raise RecipeError(
            f"student.initialise.checkpoint '{checkpoint}' is a {shape_of(config)}, but student.shape asks for a "
            f"{shape_of(student)}; change one of them."
        )
    check_same_vocabulary(load_tokenizer(checkpoint), load_tokenizer(teacher))
