"""The engine of all searches: a study of candidates that workers propose, train on a subset of the text, and score.

A search is a `Search`: a checked and planned request, the identity of its study, how candidates are proposed and
scored, and its record. The rest is here, once: the folder, the study of the same run or none, one worker or several
processes, candidates that train side by side, trials that are lost with their worker, and the end by an interrupt.
"""

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any, ClassVar, TypeAlias

import torch
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from rich.console import Console

from limbeck.core import studies
from limbeck.core.devices import bf16_is_fast
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.core.progress import Count, ProgressBar, print_plain
from limbeck.core.records import flat, timestamp
from limbeck.core.workers import run_workers
from limbeck.corpus import Corpus
from limbeck.errors import Interrupted, RecipeError, TrainingError
from limbeck.methods.registry import METHODS
from limbeck.models.fingerprint import model_fingerprint
from limbeck.models.quiet import quiet
from limbeck.recipe.load import load_recipe, without_places
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.schema import NOT_COMPUTED, Recipe
from limbeck.search.requests import SearchRequest
from limbeck.search.study import (
    DIVERGED,
    IDENTITY,
    open_storage,
    open_study,
    prepare_search_folder,
    quiet_optuna,
    shown,
)
from limbeck.search.workers import BEAT_SECONDS, WORKER, LostTrials, searched_together, sign_of_life
from limbeck.training.cohort_trainer import Cut
from limbeck.training.proxy import Proxy, Trained

TRAINING_SECONDS = "training_seconds"
"""User attribute of a trial: its part of the time that the candidates which were trained together took."""
POLL_SECONDS = 1.0
"""Between looks at what other workers have."""


Ask: TypeAlias = Callable[[], Trial]
"""Returns a new trial, which the worker that asks has from now on."""


@dataclass(frozen=True)
class Outcome:
    """The end of a candidate's trial.

    Args:
        value: Of the trial; a candidate without a finite one has diverged, unless it was cut.
        notes: User attributes of the trial.
        cut: Its training was not finished.
    """

    value: float = math.nan
    notes: Mapping[str, Any] = field(default_factory=dict)
    cut: bool = False


class Work(ABC):
    """The work of one worker on a study; a candidate is anything that has a `trial`.

    Attributes:
        queues_again: Whether candidates of failed trials are queued, where the sampler does not propose them again.
    """

    queues_again = False

    @abstractmethod
    def is_finished(self, study: Study) -> bool:
        """Return whether all that was asked for is in the study."""

    @abstractmethod
    def propose(self, study: Study, ask: Ask) -> Sequence[Any]:
        """Take candidates; none where other workers have all that is left."""

    @abstractmethod
    def train(self, candidates: Sequence[Any]) -> Iterable[Outcome]:
        """Train candidates and yield the outcome of each in order; it is in the study before the next is asked for."""


def work_on(
    study: Study, work: Work, *, beat_seconds: float = BEAT_SECONDS, poll_seconds: float = POLL_SECONDS
) -> None:
    """Work on a study until all that was asked for is in it, beside any number of other workers.

    If training raises, or the program is interrupted, the trials that are left fail and their candidates are open
    again; the same goes, seen by the other workers or the next run, for a worker that is killed.
    """
    lost = LostTrials(study)
    with sign_of_life(study, beat_seconds) as worker:
        while True:
            _give_back(study, work, lost.fail(worker))
            if work.is_finished(study):
                return
            if not _work_once(study, work, worker):
                time.sleep(poll_seconds)


def _work_once(study: Study, work: Work, worker: str) -> bool:
    """Take candidates and train them; return whether there was anything to do."""
    asked: list[Trial] = []

    def ask() -> Trial:
        trial = study.ask()
        asked.append(trial)
        trial.set_user_attr(WORKER, worker)
        return trial

    try:
        candidates = work.propose(study, ask)
        for candidate, outcome in zip(candidates, work.train(candidates) if candidates else (), strict=True):
            _tell(study, candidate.trial, outcome)
    except BaseException:
        running = {trial.number: trial for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))}
        left = [running[trial.number] for trial in asked if trial.number in running]
        for trial in left:
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
        _give_back(study, work, left)
        raise
    return bool(asked)


def _give_back(study: Study, work: Work, failed: Sequence[FrozenTrial]) -> None:
    for trial in failed:
        if work.queues_again and trial.params:
            study.enqueue_trial(trial.params)


def _tell(study: Study, trial: Trial, outcome: Outcome) -> None:
    # A worker that was taken for dead cannot tell any more: the candidate went to another.
    with suppress(UpdateFinishedTrialError):
        for name, value in outcome.notes.items():
            trial.set_user_attr(name, value)
        if outcome.cut:
            study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        elif math.isfinite(outcome.value):
            study.tell(trial, outcome.value, skip_if_finished=True)
        else:
            trial.set_user_attr(DIVERGED, True)
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


class Search(Work):
    """A search that is checked and planned, and the work of this process on it.

    Args:
        request: The request.

    Attributes:
        kind: Its name in commands, records and studies.
        searched: Names of the run's identity that it decides, as a regular expression.
        stopped: Said when it is stopped; `{place}` is the storage.
        on_tasks: Whether candidates are fine-tuned on tasks, which one process does.
        plan: The run of a candidate.
        proxy: Trains candidates, and knows the text; there when the search runs.

    Raises:
        LimbeckError: one line for the first thing that is wrong with the request.
    """

    kind: ClassVar[str]
    searched: ClassVar[str]
    stopped: ClassVar[str] = "Stopped; what is {done} is kept in {place}; the same command continues from there."
    done: ClassVar[str] = "trained"
    on_tasks = False
    plan: RunPlan
    proxy: Proxy

    def __init__(self, request: Any) -> None:
        self.request: SearchRequest = request
        self.request.check()

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what values must have in common to be compared, besides the run: by dotted names."""

    @abstractmethod
    def sampler(self) -> BaseSampler:
        """Return what proposes candidates; every worker brings one, all alike."""

    @abstractmethod
    def check_text(self) -> None:
        """Refuse text that candidates cannot be compared on, before there is a study."""

    @abstractmethod
    def load(self, study: Study) -> None:
        """Load what candidates are compared with, before any is trained."""

    @abstractmethod
    def plan_of(self, candidate: Any) -> RunPlan:
        """Return the plan of a candidate's run."""

    def cuts_of(self, candidates: Sequence[Any]) -> Mapping[int, Cut]:
        """Return after how many steps candidates are left out, and how those that go on are chosen; never."""
        return {}

    @abstractmethod
    def score(self, candidate: Any, trained: Trained) -> tuple[Outcome, str]:
        """Return the outcome of a candidate, and the line that tells it."""

    def train(self, candidates: Sequence[Any]) -> Iterator[Outcome]:
        """Train candidates side by side, score each, and yield its outcome as soon as it is known, in order.

        An outcome is shown only when the next is asked for, so that it is in the study by then.
        """
        started = time.monotonic()
        try:
            trained = self.proxy.train([self.plan_of(one) for one in candidates], cuts=self.cuts_of(candidates))
        except torch.OutOfMemoryError:
            raise TrainingError(
                "The device is out of memory; train fewer candidates at once with --batch, or lower --batch-size."
            ) from None
        seconds = round((time.monotonic() - started) / len(candidates), 1)
        for candidate, found in zip(candidates, trained, strict=True):
            outcome, line = self.score(candidate, found)
            yield replace(outcome, notes={TRAINING_SECONDS: seconds, **outcome.notes})
            failed = math.isnan(outcome.value) and not outcome.cut
            self.say(f"  {line}", style="yellow" if failed else None)

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line as it is."""
        print_plain(self.proxy.console, text, style)

    @abstractmethod
    def found(self, study: Study) -> dict[str, Any]:
        """Return the record's part of this kind of search, with the recipe that has the best candidate, or None."""

    def open(self) -> Study:
        """Open the study, or make it."""
        request = self.request.proxy
        run = proxy_identity(self.plan, self.proxy.corpora, request.share)
        kept = {name: value for name, value in run.items() if not re.fullmatch(rf"{self.searched}(\..*)?", name)}
        identity = {"search": self.kind, **kept, **self.identity()}
        # Before text was known by its content, it was by its cache, whose name has paths and dates.
        earlier: dict[str, Any] = {"corpus": [view.path.name for corpus in self.proxy.corpora for view in corpus.views]}
        earlier["teacher"] = model_fingerprint(self.plan.recipe.teacher.model, modules=False)
        return open_study(request.place, request.name, identity, self.sampler(), earlier=earlier)

    @abstractmethod
    def announce(self, study: Study) -> None:
        """Say what is going to be done, or is done already."""

    def read_text(self, console: Console) -> None:
        """Build or open the corpora."""
        self.proxy = Proxy(self.plan, share=self.request.proxy.share, console=console)

    def carry_out(self, study: Study, poll_seconds: float) -> None:
        """Do what is missing in the study."""
        self.load(study)
        work_on(study, self, poll_seconds=poll_seconds)

    def record(self, study: Study) -> studies.Search:
        """Return the record of a finished study."""
        proxy, plan, found = self.request.proxy, self.plan, self.found(study)
        recipe = found.pop("recipe")
        values = {
            "kind": self.kind,
            "name": proxy.name,
            "status": "finished",
            "created": timestamp(),
            "storage": shown(proxy.place),
            "identity": study.user_attrs[IDENTITY],
            "teacher": {"name": plan.teacher_info.title, "shape": str(plan.teacher)},
            "methods": list(dict.fromkeys(stage.method["name"] for stage in plan.recipe.stages)),
            "share": proxy.share,
            **found,
            "recipe": None if recipe is None else recipe.model_dump(mode="json", exclude_unset=True),
            "versions": {**versions(), "optuna": metadata.version("optuna")},
            "git_commit": git_commit(),
            "hardware": hardware(),
        }
        return studies.Search.read(values)


class SharedSearch(Search):
    """A search that processes of this machine share, as many as `--workers` asks for."""

    @abstractmethod
    def progress(self, study: Study) -> tuple[float, str, Count]:
        """Return which share is done, what is done now, and how many candidates are."""

    def carry_out(self, study: Study, poll_seconds: float) -> None:
        """Do what is missing in this process, or have several do it and show how far they are."""
        if self.request.workers == 1:
            super().carry_out(study, poll_seconds)
            return
        with ProgressBar(self.proxy.console) as bar:
            task = type(self), self.request
            problems = run_workers(work_alone, task, self.request.workers, lambda: bar(*self.progress(study)))
        if not self.is_finished(study):
            raise TrainingError(
                f"All workers of the search ended before it was finished: {'; '.join(dict.fromkeys(problems))} What is "
                f"{self.done} is kept in {shown(self.request.proxy.place)}; the same command continues from there."
            )
        for problem in problems:
            self.say(f"  {problem}", style="yellow")


def work_alone(task: tuple[Callable[[Any], Search], SearchRequest]) -> None:
    """Be one worker process of a search whose study and text are there."""
    kind, request = task
    search = kind(request)
    with quiet_optuna(), quiet():
        search.read_text(Console(quiet=True))
        study = search.open()
        search.load(study)
        work_on(study, search)


def run_search_of(
    search: Search, console: Console | None = None, *, poll_seconds: float = POLL_SECONDS
) -> dict[str, Any]:
    """Run a search to its end, or go on with it, and return its record.

    Args:
        search: The search.
        console: Where progress goes; nowhere by default.
        poll_seconds: Between looks at what other workers have.

    Returns:
        The record, as plain values; nothing but the study is on disk yet. Under a launcher of several processes it is
        empty in all but the main one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what is in the study is kept.
    """
    console = console if console is not None else Console(quiet=True)
    request = search.request
    share, workers = request.proxy.share, request.workers
    with searched_together(search.plan, share=share, workers=workers, tasks=search.on_tasks) as leads:
        if not leads:
            return {}
        with quiet_optuna(), quiet():
            prepare_search_folder(request.proxy.output, kind=search.kind, name=request.proxy.name)
            open_storage(request.proxy.place)
            search.identity()  # Tasks that cannot be scored are refused before any text is read.
            try:
                search.read_text(console)
                search.check_text()
                study = search.open()
                search.announce(study)
                if not search.is_finished(study):
                    search.carry_out(study, poll_seconds)
            except (Interrupted, KeyboardInterrupt):
                place = shown(request.proxy.place)
                raise Interrupted(search.stopped.format(done=search.done, place=place)) from None
            return search.record(study).to_dict()


# Which recipes can be searched, and their variants.


def searched_stages(recipe: Recipe, option: str, lack: str = "") -> list[int]:
    """Return the stages whose method has an option, counted from 0.

    Raises:
        RecipeError: where there is none and `lack` says it of the methods.
    """
    found = [index for index, stage in enumerate(recipe.stages) if stage.method["name"] in methods_with(option)]
    if lack and not found:
        used = " and ".join(dict.fromkeys(f"'{stage.method['name']}'" for stage in recipe.stages))
        raise RecipeError(f"{used} {lack}; methods that do are {', '.join(methods_with(option))}.")
    return found


def methods_with(option: str) -> list[str]:
    """Return the methods that have an option."""
    return [name for name, method in METHODS.items() if option in method.options.model_fields]


def with_option(recipe: Recipe, option: str, value: Any) -> Recipe:
    """Return a recipe with another value of an option, wherever a method has it; nothing else is changed."""
    return load_recipe(recipe, [f"stages.{index}.method.{option}={value}" for index in searched_stages(recipe, option)])


def check_text_only(plan: RunPlan) -> None:
    """Refuse recipes whose students cannot be compared on held-out text.

    Raises:
        RecipeError: for one without stages, or with a stage that learns from labelled rows.
    """
    if not plan.stages:
        raise RecipeError("The recipe has no stages, so candidates would learn nothing; give it one.")
    for choice in plan.stages:
        if choice.pairing.task != "text":
            raise RecipeError(
                f"Stage '{choice.spec.title}' learns from labelled rows ({choice.pairing.task}), but candidates "
                "are compared on text; leave corpus.task out for the search, and use its result in this recipe."
            )


def steps_of_only_stage(plan: RunPlan, way_out: str) -> int:
    """Return the steps of a recipe of one stage, which candidates can be stopped on the way through.

    Args:
        plan: Of a candidate's recipe.
        way_out: What to do where they cannot, for the message: an option.

    Raises:
        RecipeError: for several stages, or a stage that counts epochs.
    """
    if len(plan.stages) > 1:
        raise RecipeError(
            f"The recipe has {len(plan.stages)} stages, but candidates can be stopped early only where it has "
            "one; give "
            f"{way_out}, or a recipe of one stage."
        )
    steps = int(plan.stages[0].spec.training.get("max_steps") or -1)
    if steps < 1:
        raise RecipeError(
            f"The recipe counts epochs, but candidates are stopped early after a number of steps; give --steps, or "
            f"{way_out}."
        )
    return steps


# The identity of a run: teacher, text and everything of it that is computed.


def proxy_identity(plan: RunPlan, corpora: Sequence[Corpus], share: float) -> dict[str, Any]:
    """Return what values of two runs must have in common to be compared, by dotted names.

    Models and text are known by their content, not by their place, so that machines may keep them elsewhere.

    Args:
        plan: Of a candidate's recipe.
        corpora: Of its stages.
        share: Of the text that is trained on.
    """
    recipe = plan.recipe.model_dump(mode="json", exclude=NOT_COMPUTED)
    teacher, corpus = recipe.pop("teacher"), recipe.pop("corpus")
    stages = [_stage(stage) for stage in recipe.pop("stages")]
    return {
        "teacher": model_fingerprint(plan.recipe.teacher.model),
        "corpus": [view.identity for corpus in corpora for view in corpus.views],
        "share": share,
        "teacher.dtype": teacher["dtype"],
        "teacher.revision": teacher["revision"],
        **{f"teacher.{key}": teacher[key] for key in ("precision",) if key in teacher},
        **flat({"corpus": _without_sources(corpus)}),
        **flat(recipe),
        **flat({"stages": {str(index): stage for index, stage in enumerate(stages)}}),
    }


def _stage(stage: dict[str, Any]) -> dict[str, Any]:
    """A stage with every default."""
    given = dict(stage["method"])
    name = given.pop("name")
    options = METHODS[name].options.model_validate(given).deciding()
    training = dict(stage["training"])
    if not {"bf16", "fp16"} & training.keys():
        training["bf16"] = bf16_is_fast()  # Machines that compute in another number format find other values.
    corpus = _without_sources(stage["corpus"])
    return {**stage, "corpus": corpus, "method": {"name": name, **options}, "training": training}


def _without_sources(corpus: Mapping[str, Any] | None) -> dict[str, Any]:
    kept = without_places({"corpus": corpus or {}})["corpus"]
    return {key: value for key, value in kept.items() if key != "sources"}
