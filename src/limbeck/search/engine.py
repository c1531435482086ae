"""The engine of all searches: a study of candidates that workers propose, train on a subset of the text, and score.

A *candidate* is a variant of the run, such as one layer mapping. The *proxy* trains candidates as the run would, on a
share of its text and for fewer steps. A *study* is Optuna's record of all trials, each of which evaluates a candidate;
its *storage* is a file or database that several *workers* (processes) may share. The *identity* of a study holds the
settings that its values depend on, so that no study mixes values that cannot be compared.

Each kind of search is a subclass of `Search`, which says what is proposed, how candidates are scored, and what the
record holds. Everything else is here, once for all kinds.
"""

import math
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any, ClassVar

import torch
from optuna.samplers import BaseSampler
from optuna.study import Study
from rich.console import Console

from limbeck.core import studies
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.core.progress import Count
from limbeck.core.progress_bars import ProgressBar, print_plain
from limbeck.core.records import timestamp
from limbeck.core.workers import run_workers
from limbeck.errors import Interrupted, TrainingError
from limbeck.models.fingerprint import model_fingerprint
from limbeck.models.quiet import quiet
from limbeck.recipe.plan import RunPlan
from limbeck.search.folder import prepare_search_folder
from limbeck.search.identity import proxy_identity
from limbeck.search.processes import searched_together
from limbeck.search.requests import SearchRequest
from limbeck.search.storage import open_storage, shown
from limbeck.search.study import IDENTITY, open_study, quiet_optuna
from limbeck.search.work import POLL_SECONDS, TRAINING_SECONDS, Outcome, Work, work_on
from limbeck.training.cohort_trainer import Cut
from limbeck.training.proxy import Proxy, Trained


class Search(Work):
    """A search that is checked and planned, and the work of this process on it.

    A subclass sets `plan` when it is made. `run_search_of` and the workers that it starts then call the methods in this
    order: `identity`, for its errors; `read_text`, which sets `proxy`; `check_text`; `open`, which calls `sampler`;
    `announce`; `load`; `train` for the candidates that the sampler proposes, which calls `plan_of`, `cuts_of` and
    `score`; and at the end `record`, which calls `results`.

    Args:
        request: The request.

    Attributes:
        kind: Its name in commands, records and studies.
        searched: A regular expression of the dotted names of settings, such as `student.shape`, in which candidates
            differ. They are no part of the study's identity.
        stopped: Message of a search that is stopped; `{place}` is the storage, `{done}` the attribute `done`.
        done: The word for a candidate that the search has finished with, for messages.
        on_tasks: Whether candidates are fine-tuned on tasks, which a launcher of several processes cannot do.
        plan: The plan of one candidate's run, which stands for all in what they share; set by each kind of search.
        proxy: Trains candidates, and holds the text; set by `read_text`.

    Raises:
        LimbeckError: one line for the first thing that is wrong with the request.
    """

    kind: ClassVar[str]
    searched: ClassVar[str]
    stopped: ClassVar[str] = (
        "Stopped; everything {done} so far is kept in {place}; run the same command again to continue."
    )
    done: ClassVar[str] = "trained"
    on_tasks = False
    plan: RunPlan
    proxy: Proxy

    def __init__(self, request: Any) -> None:
        self.request: SearchRequest = request
        self.request.check()

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the part of the study's identity that this kind of search adds to that of the run, by dotted names."""

    @abstractmethod
    def sampler(self) -> BaseSampler:
        """Return the sampler that proposes candidates; every worker brings one, all alike."""

    @abstractmethod
    def check_text(self) -> None:
        """Refuse text on which candidates cannot be compared, before the study is made."""

    @abstractmethod
    def load(self, study: Study) -> None:
        """Load the teacher, or the scores, that candidates are compared by, before any is trained."""

    @abstractmethod
    def plan_of(self, candidate: Any) -> RunPlan:
        """Return the plan of a candidate's run."""

    def cuts_of(self, candidates: Sequence[Any]) -> Mapping[int, Cut]:
        """Return the steps after which candidates are left out, each with the function that chooses which go on.

        By default all candidates train to the end.
        """
        return {}

    @abstractmethod
    def score(self, candidate: Any, trained: Trained) -> tuple[Outcome, str]:
        """Return the outcome of a candidate, and a line about it to print."""

    def train(self, candidates: Sequence[Any]) -> Iterator[Outcome]:
        """Train candidates side by side, then score each in order, and yield its outcome as soon as it is known.

        The line about an outcome is printed when the caller asks for the next one, and has the outcome in the study.
        """
        started = time.monotonic()
        plans = [self.plan_of(candidate) for candidate in candidates]
        try:
            trained = self.proxy.train(plans, cuts=self.cuts_of(candidates))
        except torch.OutOfMemoryError:
            raise TrainingError(
                "The device is out of memory; train fewer candidates at once (a smaller --batch), or give a "
                "smaller --batch-size."
            ) from None
        # Each candidate's part of the time of the common training.
        seconds = round((time.monotonic() - started) / len(candidates), ndigits=1)
        for candidate, student in zip(candidates, trained, strict=True):
            outcome, line = self.score(candidate, student)
            yield replace(outcome, notes={TRAINING_SECONDS: seconds, **outcome.notes})
            # A candidate that was cut has no value either, but has not failed.
            has_failed = math.isnan(outcome.value) and not outcome.cut
            self.say(f"  {line}", style="yellow" if has_failed else None)

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line, without interpreting Rich's markup in it."""
        print_plain(self.proxy.console, text, style)

    @abstractmethod
    def results(self, study: Study) -> dict[str, Any]:
        """Return the part of the record that this kind of search has.

        Its `recipe` is the searched run with the best candidate; None where there is none.
        """

    def open(self) -> Study:
        """Open the study, or make it."""
        request = self.request.proxy
        # The identity has the settings that all candidates share. It leaves out those that are searched, which differ
        # between candidates, with all keys below them: `student.shape` and `student.shape.layers`.
        identity: dict[str, Any] = {"search": self.kind}
        run_identity = proxy_identity(self.plan, self.proxy.corpora, request.share)
        for name, value in run_identity.items():
            is_searched = re.fullmatch(rf"{self.searched}(\..*)?", name)
            if not is_searched:
                identity[name] = value
        identity.update(self.identity())

        # Studies of earlier versions identify the same text by the names of its cache folders, and the same teacher by
        # a fingerprint without the modules behind its pooling. Both are accepted too.
        views = [view for corpus in self.proxy.corpora for view in corpus.views]
        earlier = {
            "corpus": [view.path.name for view in views],
            "teacher": model_fingerprint(self.plan.recipe.teacher.model, modules=False),
        }
        return open_study(request.place, request.name, identity, self.sampler(), earlier=earlier)

    @abstractmethod
    def announce(self, study: Study) -> None:
        """Print what is going to be done, or is done already."""

    def read_text(self, console: Console) -> None:
        """Build or open the corpora."""
        self.proxy = Proxy(self.plan, share=self.request.proxy.share, console=console)

    def carry_out(self, study: Study, poll_seconds: float) -> None:
        """Do what is missing in the study."""
        self.load(study)
        work_on(study, self, poll_seconds=poll_seconds)

    def record(self, study: Study) -> studies.Search:
        """Return the record of a finished study."""
        proxy = self.request.proxy
        plan = self.plan
        results = self.results(study)
        recipe = results.pop("recipe")
        if recipe is not None:
            recipe = recipe.model_dump(mode="json", exclude_unset=True)
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
            # The results may replace `teacher` by one with more facts, and `created` by the time at which the study was
            # finished.
            **results,
            "recipe": recipe,
            "versions": {**versions(), "optuna": metadata.version("optuna")},
            "git_commit": git_commit(),
            "hardware": hardware(),
        }
        return studies.Search.read(values)


class SharedSearch(Search):
    """A search that processes of this machine share, as many as `--workers` asks for."""

    @abstractmethod
    def progress(self, study: Study) -> tuple[float, str, Count]:
        """Return the share of the search that is done, its present step in words, and a count of candidates."""

    def carry_out(self, study: Study, poll_seconds: float) -> None:
        """Do what is missing in the study: in this process for one worker, else in several that are started here."""
        if self.request.workers == 1:
            super().carry_out(study, poll_seconds)
            return
        with ProgressBar(self.proxy.console) as bar:

            def show_progress() -> None:
                bar(*self.progress(study))

            # Each process makes the search again from its request.
            task = (type(self), self.request)
            problems = run_workers(work_alone, task, self.request.workers, show_progress)
        if not self.is_finished(study):
            reasons = "; ".join(dict.fromkeys(problems))
            # `done` is a word such as "trained".
            raise TrainingError(
                f"All workers of the search ended before the search was finished: {reasons} Everything {self.done} "
                f"so far is kept in {shown(self.request.proxy.place)}; run the same command again to continue."
            )
        # Workers that ended early did no harm, since the others finished the search.
        for problem in problems:
            self.say(f"  {problem}", style="yellow")


def work_alone(task: tuple[Callable[[Any], Search], SearchRequest]) -> None:
    """Run one worker process of a search, whose study and corpora exist already.

    Args:
        task: The class of the search, and its request.
    """
    make_search, request = task
    search = make_search(request)
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
        console: Receives the progress; by default it is not shown.
        poll_seconds: Seconds between looks at what other workers do.

    Returns:
        The record, as plain values; nothing but the study is on disk yet. Under a launcher of several processes it is
        empty in all but the main one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what is in the study is kept.
    """
    if console is None:
        console = Console(quiet=True)
    request = search.request
    together = searched_together(search.plan, share=request.proxy.share, workers=request.workers, tasks=search.on_tasks)
    with together as is_main_process:
        if not is_main_process:
            return {}
        with quiet_optuna(), quiet():
            prepare_search_folder(request.proxy.output, kind=search.kind, name=request.proxy.name)
            # Both are called for their errors alone, before any text is read: the first refuses a storage that cannot
            # be opened, the second tasks that cannot be scored.
            open_storage(request.proxy.place)
            search.identity()
            try:
                search.read_text(console)
                search.check_text()
                study = search.open()
                search.announce(study)
                if not search.is_finished(study):
                    search.carry_out(study, poll_seconds)
            except (Interrupted, KeyboardInterrupt):
                # `stopped` is a message with gaps for the place and for a word such as "trained".
                message = search.stopped.format(done=search.done, place=shown(request.proxy.place))
                raise Interrupted(message) from None
            return search.record(study).to_dict()
