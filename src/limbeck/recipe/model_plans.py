"""A recipe's models, known from their configurations before any weight is loaded.

A teacher is a model in a folder or on the Hub, the student of an earlier stage of the same run (which has no files
before the run), or a *teaching*: code that is registered by name and teaches in place of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformers import PreTrainedConfig

from limbeck.errors import ModelError, RecipeError
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
from limbeck.targets.facts import TEACHER_FOLDER
from limbeck.targets.stored_teaching import StoredTeaching


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
        if self.spec.name is None and self.teaching is not None and self.spec.stored is not None:
            return self.teaching.facts.title
        return self.spec.name or self.spec.model

    @property
    def facts(self) -> TeachingFacts:
        """What is known of the teaching before anything is loaded."""
        if self.teaching is not None:
            return self.teaching.facts
        # Stored answers of a model are found by the texts of rows.
        reads: Literal["tokens", "rows"] = "rows" if self.spec.remembers else "tokens"
        return TeachingFacts(self.title, self.shape, labels=self.labels, reads=reads)

    @property
    def is_read(self) -> bool:
        """Whether the model itself is run, so that all of its layers can be read."""
        return self.teaching is None

    @property
    def has_weights(self) -> bool:
        """Whether the model can be loaded; of stored outputs only the teacher's other files are there."""
        return self.spec.stored is None or self.spec.model != str(Path(self.spec.stored) / TEACHER_FOLDER)

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
        source_layers: Layers of the source that its blocks are copied from, or None.
        source: The model that it starts from: the teacher, or another one that its start names.
    """

    spec: StudentSpec
    config: PreTrainedConfig
    blueprint: StudentBlueprint
    shape: Shape
    source_layers: list[int] | None
    source: TeacherInfo


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
    teaching = None
    if spec.teaching is not None:
        teaching = make_teaching(spec.teaching)
    elif spec.stored is not None:
        stored = StoredTeaching(spec.stored)
        if not spec.remembers:
            teaching = stored
    return TeacherInfo(spec, config, shape_of(config), sentence=sentence, teaching=teaching)


def plan_student(spec: StudentSpec, teacher: TeacherInfo) -> StudentPlan:
    """Derive a student from its teacher, and check its start.

    Args:
        spec: The recipe's keys.
        teacher: The teacher that it is initialised from.

    Raises:
        LimbeckError: for a shape, layers or a checkpoint that do not fit.
    """
    source = teacher
    if spec.initialise.from_ is not None:
        source = _plan_source(spec.initialise.from_, teacher)
    elif not teacher.has_weights:
        spec = _without_source(spec, teacher)

    shape_keys = spec.shape
    if isinstance(shape_keys, ShapeSpec):
        blueprint = parse_blueprint(shape_keys.model_dump(exclude_none=True), source.shape)
    else:
        blueprint = parse_blueprint(shape_keys, source.shape)
    source_layers = None
    if spec.initialise.layers != "random":
        source_layers = selected_layers(spec.initialise.layers, blueprint.layers, source.shape.layers)

    # The start may have steps that change the vocabulary, so its size is that of the model they come to.
    settings = start_settings(spec.initialise)
    vocabulary = source_shape(source.shape, settings).vocabulary
    config = student_config(blueprint, source.config, source_layers=source_layers, vocabulary=vocabulary)
    shape = shape_of(config)

    # The student of an earlier stage has no tokenizer of its own yet to compare a checkpoint's with.
    checkpoint = spec.initialise.checkpoint
    if checkpoint is None:
        check_start(shape, source.shape, settings)
    elif teacher.stage is None:
        _check_checkpoint(checkpoint, teacher.spec.model, config)
    return StudentPlan(spec, config, blueprint, shape, source_layers, source)


def _plan_source(model: str, teacher: TeacherInfo) -> TeacherInfo:
    """Plan the model that a student starts from in place of its teacher.

    Raises:
        LimbeckError: for a model that cannot be read, or has another vocabulary than the teacher.
    """
    source = plan_teacher(TeacherSpec(model=model))
    if teacher.stage is None:
        try:
            check_same_vocabulary(load_tokenizer(model), load_tokenizer(teacher.spec.model))
        except ModelError:
            raise RecipeError(
                f"student.initialise.from '{model}' has a different vocabulary from the teacher's, which the student "
                "reads; choose a model with the same tokenizer."
            ) from None
    return source


def _without_source(spec: StudentSpec, teacher: TeacherInfo) -> StudentSpec:
    """Return a student that starts at random, where only the outputs of its teacher are stored.

    Raises:
        RecipeError: for a student that is to start from the teacher's layers or embeddings, or is filled with them.
    """
    start = spec.initialise
    way_out = "name a model that the student starts from as student.initialise.from"
    if start.checkpoint is None and (start.layers != "random" or start.embeddings not in ("auto", "random")):
        raise RecipeError(
            f"The student starts from layers or embeddings of its teacher, but {teacher.facts.title} have no weights; "
            f"{way_out}, or set initialise: {{layers: random, embeddings: random}}."
        )
    if spec.untrained == "teacher":
        raise RecipeError(
            f"student.untrained is teacher, but {teacher.facts.title} have no weights; leave it out, or {way_out}."
        )
    return spec.model_copy(update={"initialise": start.model_copy(update={"embeddings": "random"})})


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
