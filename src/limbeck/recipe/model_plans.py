"""A recipe's models, known from their configurations before any weight is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedConfig

from limbeck.errors import RecipeError
from limbeck.evaluation.head_match import names_of_classes, rename_classes
from limbeck.methods.pairing import Task
from limbeck.methods.teaching import Teaching, make_teaching
from limbeck.methods.term import Term
from limbeck.models.blueprint import StudentBlueprint, parse_blueprint
from limbeck.models.families import Shape, shape_of
from limbeck.models.heads import Head
from limbeck.models.layer_selection import selected_layers
from limbeck.models.loading import load_config
from limbeck.models.locating import check_not_pickled
from limbeck.models.start import check_start, source_shape
from limbeck.models.start_checkpoint import same_tensors
from limbeck.models.start_step import StartSettings
from limbeck.models.students import student_config
from limbeck.models.teaching_facts import TeachingFacts
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import check_same_vocabulary
from limbeck.recipe.models import InitialiseSpec, ShapeSpec, StudentSpec, TeacherSpec


@dataclass(frozen=True)
class TeacherInfo:
    """A teacher, known from its configuration.

    Args:
        spec: What the recipe says.
        config: Its configuration.
        shape: Its shape.
        stage: The earlier stage whose student it is, or None.
        teaching: What teaches in place of the model; None where the model does.
    """

    spec: TeacherSpec
    config: PreTrainedConfig
    shape: Shape
    stage: str | None = None
    teaching: Teaching | None = None

    @property
    def title(self) -> str:
        """What messages and records call it."""
        return f"the student of stage '{self.stage}'" if self.stage else self.spec.name or self.spec.model

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
        spec: What the recipe says.
        config: Its configuration, without dropout changes.
        blueprint: Its shape in full.
        shape: The same, as methods compare it.
        source_layers: Teacher layers that its blocks are copied from, or None.
    """

    spec: StudentSpec
    config: PreTrainedConfig
    blueprint: StudentBlueprint
    shape: Shape
    source_layers: list[int] | None


def choose_teacher(spec: TeacherSpec) -> TeacherInfo:
    """Read a teacher's configuration.

    Raises:
        ModelError: if there is none, or its only weights are pickles.
        RecipeError: for a name that is none of its classes.
    """
    check_not_pickled(spec.model)
    config = load_config(spec.model, spec.revision)
    if spec.classes:
        config = rename_classes(config, spec.classes, f"teacher.classes of '{spec.name or spec.model}'")
    teaching = None if spec.teaching is None else make_teaching(spec.teaching)
    return TeacherInfo(spec, config, shape_of(config), teaching=teaching)


def choose_student(spec: StudentSpec, teacher: TeacherInfo) -> StudentPlan:
    """Derive a student from its teacher, and check its start.

    Args:
        spec: What the recipe says of the student.
        teacher: The teacher that it is initialised from.

    Raises:
        LimbeckError: for a shape, layers or a checkpoint that do not fit.
    """
    shape = spec.shape
    written = shape.model_dump(exclude_none=True) if isinstance(shape, ShapeSpec) else shape
    blueprint = parse_blueprint(written, teacher.shape)
    layers = spec.initialise.layers
    sources = None if layers == "random" else selected_layers(layers, blueprint.layers, teacher.shape.layers)
    settings = start_settings(spec.initialise)
    vocabulary = source_shape(teacher.shape, settings).vocabulary
    config = student_config(blueprint, teacher.config, source_layers=sources, vocabulary=vocabulary)
    found = shape_of(config)
    if spec.initialise.checkpoint is None:
        check_start(found, teacher.shape, settings)
    elif not teacher.stage:
        _check_checkpoint(spec.initialise.checkpoint, teacher.spec.model, config)
    return StudentPlan(spec, config, blueprint, found, sources)


def start_settings(spec: InitialiseSpec, *, seed: int = 0) -> StartSettings:
    """Return the options of a start that a recipe asks for.

    Args:
        spec: The recipe's `initialise`, without a checkpoint.
        seed: The run's.
    """
    return StartSettings(
        layers=spec.layers,
        embeddings=spec.embeddings,
        narrow_by=spec.narrow_by or "weights",
        seed=seed,
        steps=spec.steps or {},
    )


def needed_head(terms: Sequence[Term], task: Task, owner: str) -> Head | None:
    """Return the head that terms read scores from, or None if they read none.

    Args:
        terms: The terms of a stage.
        task: The task of its corpus.
        owner: `"student"` or `"teacher"`.
    """
    reads = any(key.kind == "logits" for term in terms for key in getattr(term, owner))
    if not reads:
        return None
    return "masked_lm" if task == "text" else task


def _check_checkpoint(checkpoint: str, teacher: str, student: PreTrainedConfig) -> None:
    """A student to start from has the tensors of the recipe's shape and the teacher's vocabulary."""
    check_not_pickled(checkpoint)
    config = load_config(checkpoint)
    if not same_tensors(student, config):
        raise RecipeError(
            f"student.initialise.checkpoint '{checkpoint}' is a {shape_of(config)}, but student.shape asks for a "
            f"{shape_of(student)}; change one of them."
        )
    check_same_vocabulary(load_tokenizer(checkpoint), load_tokenizer(teacher))
