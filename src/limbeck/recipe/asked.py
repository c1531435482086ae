"""The recipe that was asked for, as a document: read from a file, chosen by options, or changed by them.

A *document* is a recipe as plain dictionaries and lists, before it is checked. *Options* are those of a command or of a
Python call, such as `teacher`, `steps` or `length`, by their names in Python; options that were left out are missing.
The options `teacher`, `student` and `corpus` may be plain values or mappings with the keys of that part of a recipe;
`training` has arguments of the training, and `evaluation` is that part of a recipe.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.core.paths import RECIPE
from limbeck.errors import LimbeckError, RecipeError

CHOSEN_BY = ("teacher", "student", "corpus")
"""Options that are needed where no recipe is given: limbeck then chooses one by them."""

_AMOUNTS_OF_TRAINING = ("max_steps", "num_train_epochs", "max_minutes")
"""Arguments that say how long a stage trains."""
_MOST_MINUTES = 1_000_000
"""Most minutes of all stages together."""


class _PlaceOfOption(NamedTuple):
    """The part of a recipe that an option changes, and the key in it that a plain value stands for."""

    part: str
    key: str


_PLACES_OF_OPTIONS = {
    "teacher": _PlaceOfOption("teacher", "model"),
    "student": _PlaceOfOption("student", "shape"),
    "corpus": _PlaceOfOption("corpus", "sources"),
    "text_column": _PlaceOfOption("corpus", "text_column"),
    "length": _PlaceOfOption("corpus", "length"),
    "development": _PlaceOfOption("corpus", "development"),
}
"""Options that change one part of a recipe, with their places."""

_TRAINING_ARGUMENTS = {
    "steps": "max_steps",
    "batch_size": "per_device_train_batch_size",
    "learning_rate": "learning_rate",
}
"""Options that set an argument of the training, with the name that `transformers.TrainingArguments` has for it."""


def given_document(recipe: Any, options: Mapping[str, Any], *, resume: bool = False) -> dict[str, Any] | None:
    """Read the recipe that a call gives, as a document; None where the call gives no recipe.

    A call that continues a run (`resume`) may give only the run's folder, as `output`, and some options. The recipe is
    then the one that is saved in that folder.

    Args:
        recipe: The path of a YAML file, a mapping, a `Recipe`, or None.
        options: The options that are given beside the recipe.
        resume: Whether the call continues a run.

    Raises:
        RecipeError: for a file that is no recipe, and a folder that holds none.
    """
    from limbeck.recipe.load import read_recipe
    from limbeck.recipe.schema import Recipe

    if recipe is None:
        if resume and continues_by_own_recipe(options):
            return _saved_document(options.get("output"))
        return None
    if isinstance(recipe, Recipe):
        return recipe.model_dump(exclude_unset=True)
    if isinstance(recipe, Mapping):
        return dict(recipe)
    if not isinstance(recipe, str | Path):
        raise RecipeError(
            f"recipe is of type {type(recipe).__name__}; give a Recipe, a dict or the path of a YAML file."
        )

    path = Path(recipe)
    try:
        return read_recipe(path)
    except RecipeError:
        # A shell expands an unquoted `--corpus texts/*.txt` to `--corpus texts/a.txt texts/b.txt`. --corpus takes the
        # first file only, so the second is read as the command's positional argument, which is the recipe.
        may_be_second_source = "corpus" in options and path.suffix not in (".yaml", ".yml", ".json")
        if not may_be_second_source:
            raise
        raise RecipeError(
            f"'{path}' is read as the recipe but is a text, because --corpus takes only one file. Quote the "
            f"pattern, as in --corpus '{path.parent}/*{path.suffix}', or repeat --corpus before each file."
        ) from None


def continues_by_own_recipe(options: Mapping[str, Any]) -> bool:
    """Whether a call without a recipe, which continues a run, means the recipe in the run's folder.

    With all options that a choice needs, the call may begin the run too, so a recipe is chosen. With some of them it
    can only continue a run that is there.
    """
    if not any(name in options for name in CHOSEN_BY):
        return True
    output = options.get("output")
    has_run = isinstance(output, str | Path) and (Path(output).expanduser() / RECIPE).is_file()
    return has_run and bool(_missing_for_choice(options))


def _saved_document(output: str | Path | None) -> dict[str, Any]:
    """The recipe that is saved in the folder of a run."""
    from limbeck.recipe.load import read_recipe

    if output is None:
        raise RecipeError(
            "--resume continues the run in a folder, but no folder is given; give it as --output, or give the "
            "recipe, which names it."
        )
    path = Path(output).expanduser() / RECIPE
    if not path.is_file():
        raise RecipeError(f"'{output}' holds no run to resume; give the folder of the run as --output, or its recipe.")
    document = read_recipe(path)
    document["output"] = str(output)  # The folder may have been moved.
    return document


def check_chosen_by(options: Mapping[str, Any], *more: str) -> None:
    """Refuse to choose a recipe where an option is missing that the choice needs.

    Args:
        options: The options.
        *more: Names of further options that are needed.

    Raises:
        RecipeError: naming those that are missing.
    """
    missing = _missing_for_choice(options, *more)
    if missing:
        raise RecipeError(
            f"Without a recipe, these options are needed too: {', '.join(missing)}; "
            "or give a recipe, see `limbeck recipe --example`."
        )


def _missing_for_choice(options: Mapping[str, Any], *more: str) -> list[str]:
    """The options that a choice of a recipe needs, and further needed ones, which are not given: such as `--corpus`."""
    needed = [*CHOSEN_BY, *more]
    # A teacher that is no name may be a file or table of texts and targets, whose texts are the corpus.
    teacher = options.get("teacher", "")
    if not isinstance(teacher, str | Path):
        needed.remove("corpus")
    return [f"--{name}" for name in needed if name not in options]


def merge_options(
    document: Mapping[str, Any], options: Mapping[str, Any], *, overrides: str | Sequence[str] = ()
) -> dict[str, Any]:
    """Change a recipe by options, which take precedence over its keys; options of the training change every stage.

    Args:
        document: The recipe.
        options: The options.
        overrides: Values that are set in the recipe later, which may give the task of the label column.

    Returns:
        A new document, whose `reasons` no longer explain the keys that the options changed.

    Raises:
        RecipeError: for the option `length` where a stage has a length of its own, which the option would not change.
    """
    from limbeck.recipe.overrides import without_reasons

    if "length" in options and "method" not in options:
        _check_no_own_length(document.get("stages"), options["length"])
    merged = dict(document)
    # A recipe that limbeck chose has a reason for some of its keys. The reasons at these paths no longer hold.
    changed_paths: list[str] = []
    for name in ("output", "seed"):
        if name in options:
            merged[name] = options[name]
            changed_paths.append(name)
    changed_paths += _merge_parts(merged, options, overrides)
    changed_paths += _merge_stages(merged, options)
    return without_reasons(merged, changed_paths)


def _merge_parts(merged: dict[str, Any], options: Mapping[str, Any], overrides: str | Sequence[str]) -> list[str]:
    """Change the teacher, the student, the corpus and the evaluation of a recipe by options.

    Args:
        merged: The recipe, which is changed in place.
        options: The options.
        overrides: Values that are set in the recipe later.

    Returns:
        The dotted paths of the changed values.
    """
    changed_paths: list[str] = []
    # A teacher takes the place of several.
    if "teacher" in options:
        for name in ("teachers", "combine"):
            merged.pop(name, None)

    # Options that change keys of one part of the recipe. A value that is no mapping is that of the main key.
    for name, (part, main_key) in _PLACES_OF_OPTIONS.items():
        if name not in options:
            continue
        value = options[name]
        if not isinstance(value, Mapping):
            value = {main_key: value}
        merged[part] = _mapping_or_empty(merged.get(part)) | dict(value)
        changed_paths += [f"{part}.{key}" for key in value]
    if "text_column" in options:
        _check_has_columns(_mapping_or_empty(merged.get("corpus")), options["text_column"], overrides)
    if "label_column" in options:
        corpus = _mapping_or_empty(merged.get("corpus"))
        merged["corpus"] = _with_label_column(corpus, options["label_column"], overrides)
        changed_paths.append("corpus.task.label_column")
    evaluation = options.get("evaluation")
    if isinstance(evaluation, Mapping):
        merged["evaluation"] = _mapping_or_empty(merged.get("evaluation")) | dict(evaluation)
        changed_paths += [f"evaluation.{key}" for key in evaluation]
    elif "evaluation" in options:
        # A value that is no mapping is no evaluation; the check of the recipe refuses it.
        merged["evaluation"] = evaluation
    return changed_paths


def _merge_stages(merged: dict[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Change the stages of a recipe by the options of the method and of the training.

    Args:
        merged: The recipe, which is changed in place.
        options: The options.

    Returns:
        The dotted paths of the changed values.

    Raises:
        RecipeError: for options of the training that exclude each other, or that are out of bounds.
    """
    _check_training_options(options)
    changed_paths: list[str] = []
    # A method replaces all stages of the recipe. Reasons are given at the first stage only, also where they speak of
    # all stages.
    if "method" in options:
        merged["stages"] = _stages_of(options["method"])
        changed_paths.append("stages.0.method")
    training = _training_of(options)
    if options.get("steps") == 0 and "minutes" not in options:
        # A run without stages saves its student as it starts.
        merged["stages"] = []
        changed_paths.append("stages")
    # Stages that are no list stay: the check of the recipe refuses them.
    stages = merged.get("stages")
    if "minutes" in options and isinstance(stages, list):
        # The minutes take the place of all amounts (`_AMOUNTS_OF_TRAINING`): steps, epochs and other minutes.
        stages = _with_minutes(stages, options)
        merged["stages"] = stages
        changed_paths += [f"stages.0.training.{key}" for key in _AMOUNTS_OF_TRAINING]
    if training and isinstance(stages, list):
        merged["stages"] = [_with_training(stage, training) for stage in stages]
        changed_paths += [f"stages.0.training.{key}" for key in training]
    return changed_paths


def choose_by_options(
    options: Mapping[str, Any], *, overrides: str | Sequence[str] = (), resume: bool = False
) -> dict[str, Any]:
    """Choose a recipe by teacher, student and corpus, and change it by all other options.

    With the option `method`, only three things are chosen: the student's start, which are the layers of the teacher
    that it copies, the task of labelled rows, which is that of the teacher, and the share of text that is held out.
    Mistakes that can be seen without torch are refused before torch is imported.

    Args:
        options: The options, `teacher`, `student` and `corpus` among them.
        overrides: Values that are set in the recipe later. Those of the corpus name columns of the rows, and those of
            the student may name its start.
        resume: Whether a run is continued, see `limbeck.recipe.choosing.choose_recipe`.

    Raises:
        LimbeckError: for models or text that cannot be read, and for a student that does not fit its teacher.
    """
    from limbeck.recipe.load import check_overrides
    from limbeck.recipe.overrides import apply_overrides

    _check_training_options(options)
    check_overrides(overrides)
    options = _with_texts_of_targets(options)
    # A start that an override names is the user's own, as one that a mapping names.
    options["student"] = apply_overrides({"student": options["student"]}, overrides)["student"]
    if "method" in options:
        return _choose_beside_method(options, overrides, resume=resume)

    further_options = dict(options)
    teacher = further_options.pop("teacher")
    student = further_options.pop("student")
    corpus = further_options.pop("corpus")

    # A mapping has other keys of a corpus beside its sources; they are laid over the chosen corpus below.
    sources = corpus
    if isinstance(corpus, Mapping):
        corpus_keys = dict(corpus)
        sources = corpus_keys.pop("sources", None)
        further_options["corpus"] = corpus_keys
    if sources is None:
        raise RecipeError(
            "'corpus' has no 'sources', but limbeck chooses a recipe by looking at the texts; give files or texts "
            "as corpus.sources."
        )

    from limbeck.recipe.facts import check_choice

    if isinstance(teacher, Mapping) and "model" not in teacher:
        raise RecipeError(
            "limbeck chooses a recipe by the teacher's model, but this teacher names no model; give a method too, "
            "such as aligned_embedding for stored vectors, or a whole recipe."
        )
    teacher_name = teacher["model"] if isinstance(teacher, Mapping) else teacher
    check_choice(teacher_name, _shape_of(student), sources)
    columns = _named_columns(further_options, overrides)
    _check_text_column(sources, columns)

    from limbeck.recipe.choosing import choose_recipe  # It imports torch, which takes seconds.

    chosen = choose_recipe(
        teacher,
        student,
        sources,
        columns=columns,
        output=further_options.get("output"),
        resume=resume,
        trains=options.get("steps") != 0,
    )
    return merge_options(chosen, further_options, overrides=overrides)


def _choose_beside_method(
    options: Mapping[str, Any], overrides: str | Sequence[str], *, resume: bool
) -> dict[str, Any]:
    """Choose the student's start, the task of the rows and the held-out text, for a recipe whose method is given.

    Args:
        options: The options, `method` among them.
        overrides: Values that are set in the recipe later.
        resume: Whether a run is continued, which keeps its share of held-out text.
    """
    from limbeck.recipe.chosen_held_out import recipe_of_run, with_held_out

    further_options = dict(options)
    label_column = further_options.pop("label_column", None)
    columns = _named_columns(options, overrides)
    corpus = options["corpus"]
    sources = corpus.get("sources") if isinstance(corpus, Mapping) else corpus
    _check_text_column(sources, columns)
    document = _with_start_and_task(merge_options({}, further_options), columns)
    saved_recipe = recipe_of_run(options.get("output")) if resume else None
    document = with_held_out(document, named=columns, saved_recipe=saved_recipe)
    if label_column is None:
        return document

    # The label column is a key of the task. A recipe with mistakes has no chosen task: its mistakes are reported here,
    # before the missing task, which follows from them. In a recipe without mistakes an override may give the task.
    if "task" not in document["corpus"]:
        from limbeck.recipe.load import check_document, document_of

        check_document(document_of(document, overrides))
    return merge_options(document, {"label_column": label_column}, overrides=overrides)


def _shape_of(student: Any) -> Any:
    """The shape of a student that is given by its shape or by the keys of a recipe's student; None without any."""
    if not isinstance(student, Mapping):
        return student
    if "shape" in student:
        return student["shape"]
    # A student that names only a start has the shape of the model that it starts from.
    if "initialise" in student:
        return None
    # The keys are those of the shape.
    return student


def _with_texts_of_targets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Add what follows from a teacher that is a file of texts and targets: its texts as the corpus, and a method.

    Raises:
        RecipeError: for another teacher, if no corpus is given.
    """
    from limbeck.recipe.teacher_targets import corpus_of_targets, method_of_targets, target_file_of

    completed = dict(options)
    file = target_file_of(options["teacher"])
    if file is not None and "method" not in completed:
        completed["method"] = method_of_targets(file)
    if file is not None and "corpus" not in completed:
        completed["corpus"] = corpus_of_targets(file, completed["method"])
    if "corpus" not in completed:
        raise RecipeError("Without a recipe, --corpus is needed too; give --corpus, or a recipe.")
    return completed


def _named_columns(options: Mapping[str, Any], overrides: str | Sequence[str]) -> dict[str, Any]:
    """The keys of a corpus, and of its task, that options and overrides give; overrides win."""
    from limbeck.recipe.overrides import apply_overrides

    corpus = _mapping_or_empty(options.get("corpus"))
    for name, key in (("text_column", "text_column"), ("label_column", "task.label_column")):
        if name in options:
            corpus = apply_overrides({"corpus": corpus}, f"corpus.{key}={json.dumps(options[name])}")["corpus"]
    return _mapping_or_empty(apply_overrides({"corpus": corpus}, overrides).get("corpus"))


def _check_has_columns(corpus: dict[str, Any], column: str, overrides: str | Sequence[str]) -> None:
    """Refuse the option `text_column` for text without columns, where it would change nothing.

    Args:
        corpus: The corpus.
        column: The column.
        overrides: Values that are set in the recipe later, which may give other sources or a task.

    Raises:
        RecipeError: where no source has columns.
    """
    from limbeck.corpus.sources.named_sources import holds_texts_alone
    from limbeck.recipe.mistakes import text_without_columns
    from limbeck.recipe.overrides import apply_overrides

    corpus = _mapping_or_empty(apply_overrides({"corpus": corpus}, overrides).get("corpus"))
    # Labelled rows may be in a text file too, with tabs between their columns.
    if "task" in corpus:
        return
    sources = corpus.get("sources")
    if isinstance(sources, str | Path):
        sources = [sources]
    if not isinstance(sources, list) or not sources:
        return
    places: list[str] = []
    for source in sources:
        place = source.get("source") if isinstance(source, Mapping) else source
        # Parallel text has several places, and the check of the recipe refuses other values.
        if not isinstance(place, str | Path):
            return
        try:
            if not holds_texts_alone(str(place)):
                return
        except LimbeckError:
            return  # The check of the recipe refuses a source that is missing.
        places.append(str(place))
    raise text_without_columns(column, places)


def _check_text_column(sources: Any, columns: Mapping[str, Any]) -> None:
    """Refuse a column of text that no table of a source has, before the choice of a recipe imports torch.

    Args:
        sources: The sources; other values than names are left to the check of the recipe.
        columns: Keys of the corpus that the user gives, see `_named_columns`.

    Raises:
        CorpusError: for the first source without the column.
    """
    from limbeck.corpus.sources.named_sources import check_text

    # The layout of labelled rows may name the columns of their tables.
    if "text_column" not in columns or "task" in columns:
        return
    sources = columns.get("sources", sources)
    places = [sources] if isinstance(sources, str | Path) else sources
    if not isinstance(places, list | tuple):
        return
    for place in places:
        if isinstance(place, str | Path):
            check_text(str(place), columns["text_column"], may_be_rows=True, is_named=True)


def _with_label_column(corpus: dict[str, Any], column: str, overrides: str | Sequence[str]) -> dict[str, Any]:
    """Return a corpus whose task has the label in a column; without a task, only if the overrides give one.

    Args:
        corpus: The corpus.
        column: The column of the label.
        overrides: Values that are set in the recipe later, which may give the task.

    Raises:
        RecipeError: for a corpus of text.
    """
    from limbeck.recipe.overrides import apply_overrides

    task = corpus.get("task")
    if task is None:
        with_column = {**corpus, "task": {"label_column": column}}
        # The overrides are applied later. Here they only tell whether the recipe will have a task with a label column:
        # one of them may replace the whole task, and with it the column.
        overridden_task = _mapping_or_empty(apply_overrides({"corpus": with_column}, overrides)["corpus"]["task"])
        if "kind" in overridden_task and "label_column" in overridden_task:
            return with_column
        raise RecipeError(
            f"--label-column {column} names the label of rows, but this run has no task, so it reads text without "
            "labels. There are three ways out: leave --label-column out; give a teacher that `limbeck finetune` made "
            "of these rows; or name the task in a recipe as corpus.task.kind, such as classification."
        )
    task_keys = {"name": task} if isinstance(task, str) else _mapping_or_empty(task)
    return {**corpus, "task": {**task_keys, "label_column": column}}


def _with_start_and_task(document: dict[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Choose what a student starts from, and the task of a fine-tuned teacher, where the recipe does not say them.

    A document with mistakes is returned unchanged, since the later check of the whole recipe reports them together.

    Args:
        document: The recipe.
        columns: Keys of the corpus that the user gives, see `_named_columns`.

    Raises:
        LimbeckError: for rows without the columns of the task.
    """
    from pydantic import ValidationError

    from limbeck.models.weight_files import check_not_pickled
    from limbeck.recipe.facts import check_student
    from limbeck.recipe.models import StudentSpec, TeacherSpec, names_start
    from limbeck.recipe.stages import StageSpec

    if "teacher" not in document or "student" not in document:
        return document
    has_start = names_start(document["student"])
    named_task = columns.get("task")
    has_task = isinstance(named_task, str) or "kind" in _mapping_or_empty(named_task)
    if has_start and has_task:
        return document
    try:
        # The parts are read for their errors alone, so that torch is not imported for a document with mistakes.
        for stage in document["stages"]:
            StageSpec.model_validate(stage)
        teacher = TeacherSpec.model_validate(document["teacher"])
        if teacher.has_files:
            check_not_pickled(teacher.model)
        check_student(StudentSpec.model_validate(document["student"]), teacher.model)

        from limbeck.recipe.choosing import choose_start, choose_task  # It imports torch, which takes seconds.

        if not has_start:
            document = choose_start(document)
    except (LimbeckError, ValidationError):
        return document

    has_sources = "sources" in _mapping_or_empty(document.get("corpus"))
    if has_task or not has_sources:
        return document
    return choose_task(document, columns)


def _check_training_options(options: Mapping[str, Any]) -> None:
    """Refuse options of the training that exclude each other, and numbers that are out of bounds.

    The check of the recipe would name a key of a stage, and it comes after the choice of the recipe, which imports
    torch.

    Args:
        options: The options.

    Raises:
        RecipeError: for steps beside minutes, for minutes that are no time, and for a learning rate of 0 or less.
    """
    minutes = options.get("minutes")
    if minutes is not None:
        if "steps" in options:
            raise RecipeError(
                f"--steps {options['steps']} and --minutes {minutes:g} both say how long to train; give only one of "
                "them."
            )
        if not 0 < minutes <= _MOST_MINUTES:
            raise RecipeError(f"--minutes {minutes:g} is no time to train; give more than 0, up to {_MOST_MINUTES:,}.")
    learning_rate = options.get("learning_rate")
    if learning_rate is not None and not 0 < learning_rate < math.inf:
        raise RecipeError(f"--learning-rate is {learning_rate:g}; give a number above 0.")


def _training_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the training that options give, named as in `transformers.TrainingArguments`."""
    arguments = {}
    for name, argument in _TRAINING_ARGUMENTS.items():
        if name in options:
            arguments[argument] = options[name]
    return arguments | dict(options.get("training") or {})


def _with_training(stage: Any, training: Mapping[str, Any]) -> Any:
    """A stage with other arguments of the training."""
    if not isinstance(stage, dict):
        return stage  # The check of the recipe refuses it.
    arguments = _mapping_or_empty(stage.get("training"))
    # Steps and epochs (`_AMOUNTS_OF_TRAINING`) take the place of the stage's minutes.
    if any(name in training for name in _AMOUNTS_OF_TRAINING):
        arguments.pop("max_minutes", None)
    # Transformers ignores num_train_epochs where max_steps is given, so epochs take the place of the stage's steps.
    if "num_train_epochs" in training and "max_steps" not in training:
        arguments.pop("max_steps", None)
    return {**stage, "training": {**arguments, **training}}


def _with_minutes(stages: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
    """Stages that share minutes, in place of steps and epochs.

    The minutes are divided in the proportion of the stages' steps, or evenly where a stage does not say its steps.

    Args:
        stages: The stages.
        options: The options, with `minutes`.
    """
    minutes = options["minutes"]
    shares: list[float] = []
    for stage in stages:
        training = _mapping_or_empty(_mapping_or_empty(stage).get("training"))
        steps = training.get("max_steps")
        if isinstance(steps, int) and steps > 0:
            shares.append(float(steps))
    if len(shares) < len(stages):
        shares = [1.0] * len(stages)
    changed: list[Any] = []
    for stage, share in zip(stages, shares, strict=True):
        if not isinstance(stage, dict):
            changed.append(stage)  # The check of the recipe refuses it.
            continue
        training = _mapping_or_empty(stage.get("training"))
        for name in _AMOUNTS_OF_TRAINING:
            training.pop(name, None)
        training["max_minutes"] = minutes * share / sum(shares)
        changed.append({**stage, "training": training})
    return changed


def _check_no_own_length(stages: Any, length: int) -> None:
    """Refuse the option `length`, which sets the corpus's length, where a stage has a length of its own instead."""
    if not isinstance(stages, list):
        return
    for number, stage in enumerate(stages):
        text = _mapping_or_empty(_mapping_or_empty(stage).get("text"))
        for key in ("lengths", "length"):
            if text.get(key) is not None:
                path = f"stages.{number}.text.{key}"
                raise RecipeError(
                    f"--length {length} has no effect, because {path} is {text[key]} and takes precedence; give "
                    f"--set {path}=…"
                )


def _stages_of(method: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The stages of a method, or of several methods that follow each other."""
    if isinstance(method, str | Mapping):
        return _stages_of_method(method)
    stages: list[dict[str, Any]] = []
    for method_of_stage in method:
        stages += _stages_of_method(method_of_stage)
    return stages


def _stages_of_method(method: str | Mapping[str, Any]) -> list[dict[str, Any]]:
    """The stages that a method consists of, each with the options that are given beside the method's name.

    Most methods have one stage; `mlkd_bert` has two. `{name: mlkd_bert, stage: 2}` means its second stage alone.
    """
    from limbeck.methods.registry import METHODS

    options = {"name": method} if isinstance(method, str) else dict(method)
    name = options.get("name")
    # An unknown method is one stage as it is given, which the check of the recipe refuses.
    stages_of_method: Sequence[Mapping[str, Any]] = ()
    if isinstance(name, str) and name in METHODS and "stage" not in options:
        stages_of_method = METHODS[name].stages
    if not stages_of_method:
        # A name alone stays a name, as recipes have it.
        return [{"method": method if isinstance(method, str) else options}]

    stages: list[dict[str, Any]] = []
    for number, stage_options in enumerate(stages_of_method, start=1):
        stages.append({"name": f"stage-{number}", "method": {**stage_options, **options}})
    return stages


def _mapping_or_empty(value: Any) -> dict[str, Any]:
    """Return a copy of a mapping; an empty one for anything else, which the check of the recipe refuses."""
    return dict(value) if isinstance(value, Mapping) else {}
