"""A recipe chosen by what the teacher is: method, start, text and budget, each with its reason.

A *reason* explains the value of a key, which is named by its path, such as `stages.0.method`. Reasons are saved in the
recipe. A *budget* is how long a stage trains: passes through the text, or steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.core.kinds import KINDS
from limbeck.core.paths import short_model_name
from limbeck.core.yaml import parse_yaml
from limbeck.errors import RecipeError
from limbeck.evaluation.tasks.registry import find_task
from limbeck.methods.pairing import TEXT, Pairing
from limbeck.methods.registry import METHODS
from limbeck.models.families import family_of
from limbeck.models.family_table import families
from limbeck.models.heads import head_of
from limbeck.models.sentences import SentencePooling
from limbeck.recipe.budget import PASSES, TOKENS_OF_BLOCK, TOKENS_OF_SENTENCE, choose_budget
from limbeck.recipe.chosen_held_out import recipe_of_run, with_held_out
from limbeck.recipe.chosen_models import ChosenModels, choose_models
from limbeck.recipe.chosen_rows import choose_rows
from limbeck.recipe.method_recipe import TASK_TRAINING, TEXT_TRAINING, stages_of
from limbeck.recipe.mistakes import error_of_part
from limbeck.recipe.models import TeacherSpec, model_alone, names_start
from limbeck.recipe.shipped import read_shipped
from limbeck.recipe.stage_terms import compose_terms, needed_head
from limbeck.recipe.stages import StageSpec
from limbeck.recipe.text_size import size_of_text, sizes_of_rows

_WIDTH_OF_RATES = 384
"""Width of the students whose learning rates were measured: the quickstart's, and those of tasks."""
_LENGTH_OF_BLOCK = 128
"""Most tokens of a block of text that is not for sentence vectors, as in the example recipes on text."""
_TASK_RATE = 3e-4
"""Learning rate of a student of a task, see `_rate_for_width`. It was the best of 2e-5, 1e-4 and 3e-4 on rows of SST-2
and MRPC to choose by (docs/results/tasks.md)."""
_RERANKER_TRAINING = {"num_train_epochs": 3, "per_device_train_batch_size": 8, "learning_rate": 5e-5}
"""Training of a reranker, in place of a task's usual one."""


@dataclass(frozen=True)
class _Choice:
    """The chosen corpus, stages and dropout (None is the student's default), with the reasons by keys of the recipe."""

    corpus: dict[str, Any]
    stages: list[dict[str, Any]]
    reasons: dict[str, str]
    dropout: float | None = None


def choose_recipe(
    teacher: str | Path | Mapping[str, Any],
    student: int | str | Mapping[str, Any],
    corpus: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    trains: bool = True,
) -> dict[str, Any]:
    """Choose a recipe by what the teacher is; no weight is read.

    A sentence-embedding model teaches its vectors, a cross-encoder its scores of documents, a model with the head of
    another task its layers and scores on labelled rows, any other encoder the relations of its last layer.

    Args:
        teacher: A folder, `package:NAME` or a Hub name, or a recipe's teacher.
        student: A shape as in recipes, or a recipe's student; a number alone is that many of the teacher's layers.
        corpus: Sources of text; of rows where the teacher has a task's head, or the name of a task.
        columns: Keys of a recipe's corpus that name columns of rows, such as `text_column` and `task.label_column`.
            By default columns are found by their usual names.
        output: The run's folder.
        resume: Keep the stages and the share of held-out text of the run in that folder: budgets follow the machine
            that they were chosen on.
        trains: Whether the student is trained. One that is not is fitted to its teacher on the text, where it can be,
            unless it names its start.

    Returns:
        A recipe. Its `reasons` say why keys have their values, by their paths.

    Raises:
        LimbeckError: one line for a decoder, a student that does not fit, and text or rows that are missing.
    """
    places = [corpus] if isinstance(corpus, str | Path) else corpus
    sources = [str(place) for place in places]
    if not sources:
        raise RecipeError("'corpus' is empty: give a file, folder or data set.")
    named_columns = columns or {}
    spec = _teacher_spec(teacher)
    models = choose_models(spec, student)
    choice = _choose_stages(models, sources, named_columns)
    chooses_fit = not _says_whether_fitted(student)
    # Where nothing is trained, the copied layers are fitted to the teacher on the text or the rows.
    if chooses_fit and not trains:
        models = models.with_fit()

    # A teacher may be named `package:NAME`.
    _, _, name_alone = (spec.name or spec.model).rpartition(":")
    recipe: dict[str, Any] = {"name": f"{short_model_name(name_alone)}-{models.size}{_width_in_name(models)}"}
    if output is not None:
        recipe["output"] = str(output)
    recipe["teacher"] = spec.model_dump(mode="json", exclude_unset=True)
    recipe["student"] = models.student.spec.model_dump(mode="json", exclude_unset=True)
    if choice.dropout is not None:
        recipe["student"].setdefault("dropout", choice.dropout)
    recipe["corpus"] = choice.corpus
    recipe["stages"] = choice.stages
    recipe["reasons"] = {**models.reasons, **choice.reasons}

    saved_recipe = recipe_of_run(output) if resume else None
    recipe = with_held_out(recipe, named=named_columns, saved_recipe=saved_recipe)
    if saved_recipe is not None:
        _keep_choices(recipe, saved_recipe, keeps_start=chooses_fit)
    return recipe


def _keep_choices(recipe: dict[str, Any], saved_recipe: Mapping[str, Any], *, keeps_start: bool) -> None:
    """Put the choices of a run that is continued in the place of those of its new recipe.

    Budgets depend on the speed of the machine, and an earlier version may have chosen otherwise.

    Args:
        recipe: The new recipe, which is changed.
        saved_recipe: The recipe that the run began with.
        keeps_start: Whether the student's start was limbeck's choice too, and no wish of the user.
    """
    for key in ("stages", "reasons"):
        if key in saved_recipe:
            recipe[key] = saved_recipe[key]
    saved_student = saved_recipe.get("student") or {}
    if keeps_start and "initialise" in saved_student:
        recipe["student"]["initialise"] = saved_student["initialise"]


def choose_start(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Add the start to the student of a recipe that `choose_recipe` would choose, with the reason.

    Args:
        recipe: A recipe with a teacher, and with a student that names no start.

    Raises:
        LimbeckError: for a teacher that cannot be read, or a student that does not fit it.
    """
    models = choose_models(_teacher_spec(recipe["teacher"]), recipe["student"])
    # Where nothing is trained, the copied layers are fitted to the teacher on the text or rows of the corpus.
    has_corpus = isinstance(recipe.get("corpus"), Mapping)
    is_trained = bool(recipe.get("stages"))
    if has_corpus and not is_trained and not _says_whether_fitted(recipe["student"]):
        models = models.with_fit()
    chosen = dict(recipe)
    chosen["student"] = models.student.spec.model_dump(mode="json", exclude_unset=True)
    chosen["reasons"] = dict(recipe.get("reasons") or {}) | models.reasons
    return chosen


def _says_whether_fitted(student: int | str | Mapping[str, Any]) -> bool:
    """Whether a student names its start, or the fit of it, so that limbeck chooses no fit."""
    if not isinstance(student, Mapping):
        return False
    return names_start(student) or "fit" in (student.get("initialise") or {})


def choose_task(recipe: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Add the task of a fine-tuned teacher to a recipe of text, as `choose_recipe` would choose it, with the reason.

    A task is needed where the user names columns of it, such as that of the label, and where a method teaches the
    teacher's scores. Other methods read the rows as text, and get no task.

    Args:
        recipe: A recipe with a teacher, a student, stages, and a corpus with sources.
        columns: Keys of the corpus that name columns of rows, see `choose_recipe`.

    Raises:
        LimbeckError: one line for a teacher that cannot be read, and for rows without the columns of the task.
    """
    spec = _teacher_spec(recipe["teacher"])
    if not spec.has_files:
        return dict(recipe)
    models = choose_models(spec, recipe["student"])
    head = head_of(models.teacher.config)
    if head not in KINDS:
        return dict(recipe)
    names_columns = bool(columns.get("task"))
    if not names_columns and not _teach_scores(recipe["stages"], models):
        return dict(recipe)

    given_corpus = dict(recipe["corpus"])
    places = given_corpus.pop("sources")
    sources = [str(place) for place in ([places] if isinstance(places, str | Path) else places)]
    corpus = choose_rows(models.teacher, sources, str(head), columns)
    kind = find_task(corpus["task"]).kind if isinstance(corpus["task"], str) else corpus["task"]["kind"]
    corpus["length"] = models.fit_length(KINDS[kind].length)
    chosen = dict(recipe)
    chosen["corpus"] = corpus | given_corpus
    if isinstance(corpus["task"], dict):
        chosen["corpus"]["task"] = corpus["task"] | (given_corpus.get("task") or {})
    chosen["reasons"] = dict(recipe.get("reasons") or {}) | {"corpus.task": _reason_of_task(corpus, kind)}
    return chosen


def _teach_scores(stages: Sequence[Mapping[str, Any]], models: ChosenModels) -> bool:
    """Whether a stage teaches the teacher's scores, or has a method that is made for labelled rows alone."""
    pairing = Pairing(models.student.shape, models.teacher.facts, TEXT, sentence=models.sentence)
    for index, stage in enumerate(stages):
        spec = StageSpec.model_validate(stage)
        if not METHODS[spec.method["name"]].takes(TEXT):
            return True
        terms = compose_terms(spec, pairing, f"stages.{index}")
        if needed_head(terms, pairing, "teacher") is not None:
            return True
    return False


def _teacher_spec(teacher: str | Path | Mapping[str, Any]) -> TeacherSpec:
    """Read a teacher: a name, or the keys of a recipe's teacher."""
    keys = model_alone(str(teacher) if isinstance(teacher, Path) else teacher)
    try:
        return TeacherSpec.model_validate(keys)
    except ValidationError as error:
        raise error_of_part("teacher", error) from None


def _choose_stages(models: ChosenModels, sources: list[str], columns: Mapping[str, Any]) -> _Choice:
    """Choose text and stages by what the teacher is."""
    teacher = models.teacher
    if models.sentence is not None:
        return _teach_vectors(models, sources, models.sentence)
    # The head of a task, or a masked language model's, which is no kind of task; None for neither.
    head = head_of(teacher.config)
    if head in KINDS:
        return _teach_task(models, sources, str(head), columns)
    if family_of(teacher.config).causal:
        raise RecipeError(
            f"The teacher '{teacher.title}' is a decoder ({teacher.config.model_type}), but limbeck chooses "
            "recipes only for encoders; name a method, or write a recipe (`limbeck recipe --example`)."
        )
    description = "an encoder" if head is None else "a masked language model"
    return _teach_text(models, sources, description)


def _teach_vectors(models: ChosenModels, sources: list[str], sentence: SentencePooling) -> _Choice:
    """Choose stages that teach sentence vectors.

    A student of the teacher's width is taught as in the recipe of `limbeck quickstart`, any other through a learned map
    between the two widths.
    """
    quickstart = parse_yaml(read_shipped("quickstart"), "The quickstart recipe")
    quickstart_stage = quickstart["stages"][-1]
    description = f"{models.teacher.title} makes sentence vectors ({sentence})"

    stage: dict[str, Any] = {"name": "vectors"}
    if models.have_same_width and models.read_alike:
        stage["method"] = _quickstart_method(quickstart_stage, models)
        if "freeze" in quickstart_stage:
            stage["freeze"] = quickstart_stage["freeze"]
        reason = f"{description}, and the student, which has the same width, learns to make the same vectors"
    elif models.read_alike:
        stage["method"] = {"name": "aligned_embedding"}
        reason = f"{description} of a width other than the student's, which learns a map to them and keeps it"
    else:
        stage["method"] = {"name": "aligned_embedding"}
        reason = f"{description}, and the student reads other tokens, so only finished vectors can be compared"

    # All arguments of the quickstart's training are taken over, except for its number of steps: the budget gives the
    # steps, or the passes, that suit these models, this text and this machine.
    training = dict(quickstart_stage["training"])
    training.pop("max_steps", None)
    training["learning_rate"] = _rate_for_width(training["learning_rate"], models.student.shape.hidden)
    tokens_per_step = training["per_device_train_batch_size"] * TOKENS_OF_SENTENCE
    budget = choose_budget(models, size_of_text(sources), tokens_per_step, PASSES)
    stage["training"] = {**budget.training, **training}

    # Text is cut as the quickstart cuts it, though never longer than both models can read.
    text = quickstart_stage["text"]
    corpus = {"sources": sources, **text, "length": models.fit_length(text["length"])}
    reasons = {
        "stages.0.method": f"{stage['method']['name']}: {reason}",
        "corpus": f"cut into {text['unit']}s, as in the recipe of `limbeck quickstart`; {_describe_prompt(sentence)}",
        "stages.0.training": budget.reason,
    }
    return _Choice(corpus, [stage], reasons, dropout=quickstart["student"].get("dropout"))


def _quickstart_method(quickstart_stage: Mapping[str, Any], models: ChosenModels) -> dict[str, Any]:
    """The method of the quickstart's stage, fitted to another teacher and student."""
    method = dict(quickstart_stage["method"])
    # The files of this teacher name its pooling.
    method.pop("pooling", None)
    if "layer_mapping" in method:
        method["layer_mapping"] = models.layer_mapping
    return method


def _width_in_name(models: ChosenModels) -> str:
    """Return the width of sentence vectors for a student's name, such as `-768d`; empty where its size says it."""
    if models.sentence is None or models.have_same_width:
        return ""
    # The student keeps a map to the teacher's vectors.
    return f"-{models.sentence.width(models.teacher.shape.hidden)}d"


def _describe_prompt(sentence: SentencePooling) -> str:
    """Return a description of the prompt before texts without a role, the only texts that a chosen recipe has."""
    if sentence.prompt():
        return f"the teacher's prompt {sentence.prompt()!r} before each"
    if sentence.prompts:
        return f"no prompt: the role of a source gives the teacher's ({', '.join(sentence.prompts)})"
    return "no prompt, as its files say"


def _teach_text(models: ChosenModels, sources: list[str], description: str) -> _Choice:
    """Choose a stage on text, for a student that is fine-tuned later."""
    training: dict[str, Any] = dict(TEXT_TRAINING)
    tokens_per_step = training["per_device_train_batch_size"] * TOKENS_OF_BLOCK
    budget = choose_budget(models, size_of_text(sources), tokens_per_step, PASSES)
    # The budget gives the steps or the passes.
    training.pop("max_steps")
    training = budget.training | training
    if models.teacher.config.model_type in families:
        method = "minilmv2"
        reason = "relations of one layer fit students of any width and number of heads"
    else:
        method = "hidden_states"
        reason = (
            "of a family that limbeck examines when loading it, so its hidden states can be relied on, its "
            "relations cannot"
        )
    reasons = {
        "stages.0.method": f"{method}: {models.teacher.title} is {description}, and {reason}; the student is for "
        "fine-tuning",
        "stages.0.training": budget.reason,
    }
    corpus = {"sources": sources, "unit": "document", "length": models.fit_length(_LENGTH_OF_BLOCK)}
    stage = {"method": {"name": method}, "training": training}
    return _Choice(corpus, [stage], reasons)


def _teach_task(models: ChosenModels, sources: list[str], head: str, columns: Mapping[str, Any]) -> _Choice:
    """Choose stages that teach the task of a fine-tuned teacher, on labelled rows."""
    title = models.teacher.title
    corpus = choose_rows(models.teacher, sources, head, columns)
    task = corpus["task"]
    kind = find_task(task).kind if isinstance(task, str) else task["kind"]
    kind_in_words = kind.replace("_", " ")

    rate = _rate_for_width(_TASK_RATE, models.student.shape.hidden)
    training: dict[str, Any] = {**TASK_TRAINING, "learning_rate": rate}
    # Rows of queries teach a reranker: it learns the differences between the scores of a query's documents.
    if KINDS[kind].has_queries:
        training |= _RERANKER_TRAINING
        methods = stages_of(METHODS["reranker"])
        methods[0]["loss"] = "margin_mse"
        reason = f"reranker: {title} is a cross-encoder, whose scores put the documents of a query in order"
    else:
        methods = stages_of(METHODS["mlkd_bert"])
        # Each layer learns from the teacher's layer that it is a copy of.
        start = models.student.spec.initialise
        if start.layers == "ends" and start.from_ is None:
            methods[0]["mapping"] = "ends"
        reason = (
            f"mlkd_bert: {title} does {kind_in_words}. The student learns from the teacher's layers in the first "
            "stage, and from the teacher's scores in the second stage. The student may have any number of heads"
        )
    corpus["length"] = models.fit_length(KINDS[kind].length)

    passes = training.pop("num_train_epochs")
    sizes = sizes_of_rows(corpus, columns, kind, models.teacher)
    tokens_per_step = training["per_device_train_batch_size"] * sizes.tokens_of_row
    budget = choose_budget(models, sizes.size, tokens_per_step, passes, stages=len(methods))
    stages: list[dict[str, Any]] = []
    for number, method in enumerate(methods, start=1):
        stage: dict[str, Any] = {}
        if len(methods) > 1:
            stage["name"] = f"stage-{number}"
        stage["method"] = method
        stage["training"] = {**budget.training, **training}
        stages.append(stage)
    reasons = {
        "corpus.task": _reason_of_task(corpus, kind),
        "stages.0.method": reason,
        "stages.0.training": budget.reason,
    }
    return _Choice(corpus, stages, reasons)


def _rate_for_width(rate: float, width: int) -> float:
    """Return a learning rate for a student: of a wider one than `_WIDTH_OF_RATES`, proportionally less.

    Adam changes each weight by about the rate, and in a wider layer more of these changes add up.
    """
    return rate * min(1.0, _WIDTH_OF_RATES / width)


def _reason_of_task(corpus: Mapping[str, Any], kind: str) -> str:
    """Return the reason for the task of a chosen corpus.

    Args:
        corpus: The corpus, with its task.
        kind: The kind of the task.
    """
    kind_in_words = kind.replace("_", " ")
    task = corpus["task"]
    has_labels = isinstance(task, str) or task.get("labelled", True)
    if has_labels:
        return f"{kind_in_words}, by the teacher's head and the columns of the rows"
    reason = (
        f"{kind_in_words}, by the teacher's head, on text without labels: the student learns from the teacher alone"
    )
    # The texts are in a column of a table, of which another column may hold labels under a name of its own.
    if "text_column" in corpus:
        reason += "; if another column holds labels, name it with --label-column"
    return reason
