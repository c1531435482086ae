"""`EvaluationRequest`, the request for an evaluation, with the checks that read no models and no rows.

Nothing heavy is imported, so that a mistake is reported at once; `limbeck.evaluation.plan.planner` plans a request.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from limbeck.core import folders, paths
from limbeck.core.blocks import counted
from limbeck.core.studies import EvaluationRequest as Manifest
from limbeck.corpus.rows.labelled_rows import without_surrogates
from limbeck.errors import RecipeError
from limbeck.evaluation.protocols.overrides import Override, parse_overrides
from limbeck.evaluation.protocols.protocol import PROTOCOLS, Protocol
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.evaluation.tasks.registry import check_data, check_trainable, evaluator_named, find_task, parse_tasks
from limbeck.kinds.task import Task
from limbeck.models.hub_files import check_there

_MOST_WORKERS = 1024
_MOST_SEEDS = 1000
FINE_TUNING_PRESET = "comparative_study"
"""The protocol of a fine-tuning for which none is named: one grid point, three seeds."""
WEIGHTS_TO_KEEP = ("best", "all")
"""Of which cells weights may be kept."""


@dataclass(frozen=True)
class EvaluationRequest:
    """A request for an evaluation, checked as far as possible without looking at any file.

    Attributes:
        models: Folders, `package:NAME` or Hub names.
        tasks: Names of tasks and groups, and task files, by commas.
        output: The folder of the evaluation; finished cells in it are not run again.
        data: Folder with the tasks' files; None for the Hub.
        preset: Name of a protocol.
        average: Table of the preset's paper whose average is taken; None for the preset's usual one.
        keep_weights: `"best"` keeps those of the best seed of each model's chosen grid point on each task, `"all"`
            those of every cell; None keeps none.
        seeds: Runs of every grid point; None leaves it to the protocol.
        teacher: The reference, evaluated too; None for the first model.
        workers: Processes that run cells.
        overrides: `setting=value` or `task.setting=value` each.
        as_is: Score the models by their heads as they are, without training.
        classes: For `as_is`, names of a model's classes to the task's names of them.
    """

    models: tuple[str, ...]
    tasks: str
    output: Path
    data: Path | None = None
    preset: str = "minilmv2"
    seeds: int | None = None
    teacher: str | None = None
    workers: int = 1
    overrides: tuple[str, ...] = field(default=())
    average: str | None = None
    as_is: bool = False
    classes: Mapping[str, str] = field(default_factory=dict)
    keep_weights: str | None = None

    @property
    def protocol(self) -> Protocol:
        """The preset, with the average that is asked for.

        Raises:
            RecipeError: if either is unknown.
        """
        return PROTOCOLS[self.preset].averaged_as(self.average)

    def settings(self, task: Task) -> FineTuning:
        """Return the settings of a task.

        Raises:
            RecipeError: for a setting that does not exist or cannot have its value, or two task files of one name.
        """
        return self.protocol.settings(task, self._parsed_overrides())

    def length_of_kind(self, task: Task) -> int | None:
        """Return the length of a task's kind, where rows are read up to it; see `Protocol.length_of_kind`."""
        return self.protocol.length_of_kind(task, self._parsed_overrides())

    def _parsed_overrides(self) -> list[Override]:
        """Return the user's settings.

        Raises:
            RecipeError: for a setting that does not exist.
        """
        return parse_overrides(self.overrides, self._names_in_tables(), as_is=self.as_is)

    def _names_in_tables(self) -> list[str]:
        """Return the names that overrides and tables have for the tasks.

        A task file is requested by its path, but known by the name of the task that it describes.

        Raises:
            RecipeError: if two files describe a task of the same name, whose figures would replace each other.
        """
        requested_as: dict[str, str] = {}
        for requested in self.task_names():
            name = requested
            if not evaluator_named(requested):
                name = find_task(requested).name
            if name in requested_as:
                raise RecipeError(
                    f"The task files '{requested_as[name]}' and '{requested}' both have the name '{name}'; give one of "
                    "them another."
                )
            requested_as[name] = requested
        return list(requested_as)

    def all_models(self) -> list[str]:
        """Return every model that is evaluated; the teacher comes first, with which the others are compared.

        Raises:
            RecipeError: if there is none.
        """
        if not self.models:
            raise RecipeError("Name at least one model to evaluate: a folder, package:NAME or a Hub name.")
        if self.teacher is None:
            return list(self.models)
        return [self.teacher, *(name for name in self.models if name != self.teacher)]

    def titles(self, names: Sequence[str] = ()) -> dict[str, str]:
        """Return the name of every model in tables: the user's name for it, else the last part of its own name.

        Args:
            names: The user's names, in the order of the models. The name of a teacher that is none of them comes last.

        Raises:
            RecipeError: for more names than models, or a name that is empty or another's too.
        """
        models = self.all_models()
        # The user names the models in the order of the options: `--teacher` after the others, if it is none of them.
        named_models = list(dict.fromkeys(self.models))
        if self.teacher is not None and self.teacher not in named_models:
            named_models.append(self.teacher)
        _check_count(names, named_models)
        _check_characters(names)

        # There may be fewer names than models. Without a name, a model is called by the last part of its own name,
        # unless several models have the same last part: they keep their whole names.
        chosen_names = {model: name.strip() for model, name in zip(named_models, names, strict=False)}
        models_of_short_name = Counter(paths.short_model_name(model) for model in models)
        titles = {}
        for model in models:
            short_name = paths.short_model_name(model)
            if model in chosen_names:
                titles[model] = chosen_names[model]
            elif models_of_short_name[short_name] == 1:
                titles[model] = short_name
            else:
                titles[model] = model
        for title, count in Counter(titles.values()).items():
            if not title:
                raise RecipeError("The name '' is empty; give another.")
            if count > 1:
                raise RecipeError(
                    f"Two models would have the name '{title}' in the tables; give each its own with --name."
                )
        return titles

    def task_names(self) -> list[str]:
        """Return the tasks, groups expanded.

        Raises:
            RecipeError: for an unknown preset, average or task, a number out of range, or options that exclude each
                other.
            CorpusError: for a task file that is not there.
        """
        self._check_options()
        return parse_tasks(self.tasks, others=True)

    def _check_options(self) -> None:
        """Refuse options that are unknown or out of range, or that exclude each other.

        Raises:
            RecipeError: naming the option.
        """
        _ = self.protocol  # Refuses an unknown preset or average.
        _check_number("--workers", self.workers, _MOST_WORKERS)
        if self.seeds is not None:
            _check_number("--seeds", self.seeds, _MOST_SEEDS)
        if self.as_is and self.seeds is not None:
            raise RecipeError(
                "--seeds counts training runs, but --as-is trains nothing; leave one of the two options out."
            )
        if self.classes and not self.as_is:
            raise RecipeError(
                "--classes applies only to models that are scored with the heads they have; give --as-is too, or "
                "leave --classes out."
            )
        if self.keep_weights not in (None, *WEIGHTS_TO_KEEP):
            raise RecipeError(f"--keep-weights is '{self.keep_weights}'; give {' or '.join(WEIGHTS_TO_KEEP)}.")
        if self.keep_weights is not None and self.as_is:
            raise RecipeError(
                "--keep-weights keeps fine-tuned models, but --as-is trains nothing; leave one of the two options out."
            )
        if not self.tasks.strip(" ,"):
            raise RecipeError(
                "There is nothing to measure: give tasks (--tasks, with names, groups or files), --speed, or both."
            )

    def check(self) -> None:
        """Check the request without reading models and rows; torch is not imported.

        Raises:
            ModelError: for a model that is nowhere.
            OutputError: for a folder of something else.
            LimbeckError: see `check_tasks`.
        """
        if self.tasks.strip(" ,"):
            self.check_tasks()
        EVALUATION.look(self.output.expanduser())
        check_there(*self.all_models())

    def check_tasks(self) -> None:
        """Check the names of tasks, the settings and the numbers.

        Raises:
            RecipeError: for an unknown task, preset, average or setting, or a number out of range.
            CorpusError: for a task file or a folder of rows that is not there.
        """
        for name in self.task_names():
            if not evaluator_named(name):  # Evaluators are asked once torch is there.
                self.settings(find_task(name).task)
        check_data(self.data)


def _check_count(names: Sequence[str], models: Sequence[str]) -> None:
    """Refuse more names than models.

    Raises:
        RecipeError: quoting the names that are too many.
    """
    surplus = [f"'{name}'" for name in names[len(models) :]]
    if not surplus:
        return
    quoted = surplus[-1]
    if len(surplus) > 1:
        quoted = f"{', '.join(surplus[:-1])} and {surplus[-1]}"
    raise RecipeError(f"--name is given {len(names)} times for {counted(len(models), 'model')}; leave out {quoted}.")


def _check_characters(names: Sequence[str]) -> None:
    """Refuse a name with half of a character (a lone surrogate), such as one of an emoji, which no file can hold.

    Raises:
        RecipeError: quoting the name.
    """
    for name in names:
        if without_surrogates(name) != name:
            raise RecipeError(
                f"The name {name!a} has half of a character (a lone surrogate), which cannot be saved in a file; "
                "give the model another name."
            )


def _check_number(option: str, number: int, most: int) -> None:
    """Refuse a number that is not from 1 to `most`.

    Raises:
        RecipeError: naming the option.
    """
    if not 1 <= number <= most:
        raise RecipeError(f"{option} is {number}; give 1 to {most:,}.")


def fine_tuned_task(request: EvaluationRequest) -> Task:
    """Check a request to fine-tune and keep a model, and return the one task that it is fine-tuned on.

    Raises:
        RecipeError: if there are several tasks, or nothing is trained on it; and for all that an evaluation refuses.
        LimbeckError: see `EvaluationRequest.check`.
    """
    names = request.task_names()
    if len(names) > 1:
        raise RecipeError(
            f"--task '{request.tasks}' names {len(names)} tasks, but a model is fine-tuned on exactly one; name "
            "one task."
        )
    evaluator = evaluator_named(names[0])
    if evaluator is not None:
        raise RecipeError(
            f"'{names[0]}' is scored by the evaluator '{evaluator}', and nothing is trained on it; choose a task that "
            "has rows to train on."
        )
    definition = find_task(names[0])
    task = definition.task
    if definition.is_trained:
        check_trainable(task)
    else:
        raise RecipeError(
            f"{task.title} is scored by the cosine of sentence vectors, and nothing is trained on it; choose a task "
            "that has rows to train on."
        )
    request.check()
    return task


EVALUATION = folders.FolderKind("evaluation", Manifest.FILE, beside=frozenset({paths.LOCK, paths.INPUTS}))
"""The folder of an evaluation."""
