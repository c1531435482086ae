"""Cross-field checks: a recipe against the configurations of its models, before any weight is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from transformers import PreTrainedConfig

from limbeck.corpus import CorpusSettings
from limbeck.errors import CorpusError, LimbeckError, RecipeError
from limbeck.methods.composition import Term
from limbeck.methods.registry import METHODS
from limbeck.models.blueprint import StudentBlueprint, parse_blueprint
from limbeck.models.building import student_config
from limbeck.models.families import Shape, shape_of
from limbeck.models.initialise import plan_initialisation
from limbeck.models.layer_selection import selected_layers
from limbeck.models.loading import load_config
from limbeck.models.sentence_folder import SentencePooling, sentence_pooling
from limbeck.models.vocabulary import check_same_vocabulary, load_tokenizer
from limbeck.recipe.load import explain
from limbeck.recipe.schema import CorpusSpec, Recipe, StageSpec
from limbeck.recipe.training_arguments import build_arguments, check_training

_TEXT_DEFAULTS = {"unit": "document", "length": 128, "join": False, "minimum_tokens": 4}


@dataclass(frozen=True)
class StageChoice:
    """One stage, with what its options come to for these two models.

    Args:
        spec: The recipe's stage.
        terms: The weighted terms.
        corpus: How its text is cut.
        pooling: How `pooled` streams are made.
    """

    spec: StageSpec
    terms: list[Term]
    corpus: CorpusSettings
    pooling: str


@dataclass(frozen=True)
class RunPlan:
    """A recipe that has been checked against its models' configurations.

    Args:
        recipe: The recipe.
        teacher_config: The teacher's configuration.
        student_config: The student's, without dropout changes.
        blueprint: The student's shape in full.
        teacher: Shape of the teacher.
        student: Shape of the student.
        source_layers: Teacher layers that the student's blocks are copied from, or None.
        sentence: Pooling that the teacher's folder names, or None.
        stages: The stages.
    """

    recipe: Recipe
    teacher_config: PreTrainedConfig
    student_config: PreTrainedConfig
    blueprint: StudentBlueprint
    teacher: Shape
    student: Shape
    source_layers: list[int] | None
    sentence: SentencePooling | None
    stages: list[StageChoice]

    @property
    def pooling(self) -> str:
        """How sentence vectors are pooled: as the evaluation or the teacher's folder says, else the mean."""
        chosen = self.recipe.evaluation.pooling
        if chosen != "auto":
            return chosen
        return self.sentence.pooling if self.sentence is not None else "mean"


def plan_run(recipe: Recipe) -> RunPlan:
    """Check everything that can be checked without weights or text.

    Layers in range, heads that divide widths, equal heads where a method needs them, lengths within positions,
    terms that couple samples without accumulation, tokenizers that agree, sources that exist.

    Args:
        recipe: The recipe.

    Returns:
        What the run will do.

    Raises:
        LimbeckError: one line for the first contradiction.
    """
    teacher_config = load_config(recipe.teacher.model, recipe.teacher.revision)
    teacher = shape_of(teacher_config)
    shape = recipe.student.shape
    blueprint = parse_blueprint(shape if isinstance(shape, str) else shape.model_dump(exclude_none=True))
    layers = recipe.student.initialise.layers
    source_layers = None if layers == "random" else selected_layers(layers, blueprint.layers, teacher.layers)
    config = student_config(blueprint, teacher_config, source_layers=source_layers)
    student = shape_of(config)
    if recipe.student.initialise.checkpoint is None:
        plan_initialisation(student, teacher, layers=layers, embeddings=recipe.student.initialise.embeddings)
    sentence = sentence_pooling(recipe.teacher.model)
    if recipe.student.initialise.checkpoint is not None:
        _check_checkpoint(recipe.student.initialise.checkpoint, recipe.teacher.model, student)
    stages = [_plan_stage(index, stage, recipe, student, teacher) for index, stage in enumerate(recipe.stages)]
    if stages:
        assert recipe.corpus is not None
        for source in recipe.corpus.sources:
            _check_source(source)
    return RunPlan(recipe, teacher_config, config, blueprint, teacher, student, source_layers, sentence, stages)


def _plan_stage(index: int, stage: StageSpec, recipe: Recipe, student: Shape, teacher: Shape) -> StageChoice:
    place = f"stages.{index}"
    assert recipe.corpus is not None
    method = METHODS[stage.method["name"]]
    try:
        options = method.options.model_validate({k: v for k, v in stage.method.items() if k != "name"})
    except ValidationError as error:
        raise RecipeError(f"{place}.method.{explain(error)}") from None
    try:
        terms = method.compose(options, student, teacher)
    except LimbeckError as error:
        raise type(error)(f"{place}.method: {error}") from None
    training = check_training(stage.training, f"{place}.training")
    try:
        build_arguments(training, output="", seed=recipe.seed, evaluates=True)
    except RecipeError as error:
        raise RecipeError(f"{place}.{error}") from None
    coupled = [term.name for term in terms if term.batch_coupled]
    if coupled and training.get("gradient_accumulation_steps", 1) > 1:
        raise RecipeError(
            f"{place}: the term '{coupled[0]}' relates the samples of a batch, so it cannot be accumulated over "
            "several; set training.gradient_accumulation_steps to 1 and raise per_device_train_batch_size, or give "
            "the term the weight 0."
        )
    settings = corpus_settings(recipe.corpus, stage)
    for owner, shape in (("teacher", teacher), ("student", student)):
        if shape.positions is not None and settings.length > shape.positions:
            raise RecipeError(
                f"{place}.text.length {settings.length} is longer than the {owner}'s {shape.positions} positions; "
                f"use {shape.positions} or less."
            )
    pooling = stage.method.get("pooling", "mean")
    return StageChoice(stage, terms, settings, pooling)


def corpus_settings(corpus: CorpusSpec, stage: StageSpec) -> CorpusSettings:
    """Join the corpus with what a stage says of its text, the stage's word being the last."""
    text: dict[str, Any] = dict(_TEXT_DEFAULTS)
    for layer in (corpus, stage.text):
        text.update({key: value for key in text if (value := getattr(layer, key)) is not None})
    return CorpusSettings(
        sources=tuple(corpus.sources),
        text_column=corpus.text_column,
        held_out=corpus.held_out,
        max_documents=corpus.max_documents,
        **text,
    )


def _check_checkpoint(checkpoint: str, teacher: str, student: Shape) -> None:
    """A student to start from has the recipe's shape and the teacher's vocabulary."""
    found = shape_of(load_config(checkpoint))
    if found != student:
        raise RecipeError(
            f"student.initialise.checkpoint '{checkpoint}' is a {found}, but student.shape asks for a {student}; "
            "change one of them."
        )
    check_same_vocabulary(load_tokenizer(checkpoint), load_tokenizer(teacher))


def _check_source(source: str) -> None:
    """Refuse a path that is not there before models are loaded; other kinds are checked when they are read."""
    looks_like_path = source.startswith(("/", "./", "../", "~")) or Path(source).suffix in (
        ".txt", ".md", ".jsonl", ".parquet", ".gz", ".zst",
    )  # fmt: skip
    if looks_like_path and not has_magic(source) and not Path(source).expanduser().exists():
        raise CorpusError(f"Corpus source '{source}' does not exist; give a file, a folder, a glob or installed-docs.")


def summarise(plan: RunPlan) -> Mapping[str, str]:
    """Describe a plan in a few lines, for people."""
    lines = {"teacher": f"{plan.recipe.teacher.model} ({plan.teacher})", "student": str(plan.student)}
    for index, stage in enumerate(plan.stages):
        lines[f"stage {index + 1}: {stage.spec.title}"] = ", ".join(map(_summarise_term, stage.terms))
    return lines


def _summarise_term(term: Term) -> str:
    student, teacher = (", ".join(map(str, keys)) for keys in (term.student, term.teacher))
    return f"{term.weight:g} x {term.objective}({student} <- {teacher})"
