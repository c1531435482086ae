"""Tasks named `mteb:NAME`: those of mteb's registry, and those of limbeck whose rows mteb scores.

limbeck and mteb name splits differently. A data set of mteb has *subsets*, which are languages or pairs of them, and
each has splits: the split `test` of the subset `de` is `test.de` in limbeck.
"""

import importlib.util
import json
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from limbeck.errors import CorpusError, PluginError, RecipeError, shorten_error, suggestion
from limbeck.evaluation.evaluators.evaluator import MTEB
from limbeck.evaluation.evaluators.mteb_rows import CLUSTERING, ONLY_SUBSET, Form, find_form, make_mteb_task
from limbeck.evaluation.evaluators.rows import load_rows
from limbeck.evaluation.plan.identity import data_fingerprint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.tasks.registry import TASKS, find_task, is_own_task
from limbeck.kinds.task import SplitFacts, Task, TaskData
from limbeck.models.hub_files import hub_answers


@dataclass(frozen=True)
class Content:
    """The data of a task, as far as an evaluation is planned by them.

    Attributes:
        task: The task, with the splits that are there.
        fingerprint: A text that differs where scores may differ.
        notes: Notes for the user to read.
    """

    task: Task
    fingerprint: str
    notes: tuple[str, ...] = ()


class MtebTask(ABC):
    """A task that mteb scores.

    Args:
        name: The task, as the user named it.

    Attributes:
        has_queries: Whether there are queries and documents.
    """

    has_queries: bool

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def facts(self) -> Task:
        """Return the facts of the task, before its data are read."""

    @abstractmethod
    def content(self, request: EvaluationRequest) -> Content:
        """Return its data, as far as an evaluation is planned by them.

        Raises:
            CorpusError: for rows that are not there or cannot be read.
        """

    @abstractmethod
    def fetch(self, request: EvaluationRequest) -> TaskData | None:
        """Return its rows; None where mteb reads the data, which are then on the disk.

        Raises:
            CorpusError: for data that are not there or cannot be read.
        """

    @abstractmethod
    def open(self, rows: TaskData | None, fingerprint: str) -> Any:
        """Return the task of mteb, with its data.

        Args:
            rows: Its rows, as `fetch` returned them.
            fingerprint: Fingerprint of its data.
        """

    def _task(self, title: str, metric: str, splits: Sequence[str]) -> Task:
        """Return the facts of the task.

        Args:
            title: Its name in tables.
            metric: mteb's main score.
            splits: The splits that are scored.
        """
        return Task(
            name=self.name,
            title=title,
            group="own",
            kind=MTEB,
            metrics=(metric,),
            train=None,
            select=None,
            scored=tuple(splits),
            splits={split: SplitFacts() for split in splits},
        )


class TaskOfMteb(MtebTask):
    """A task of mteb's registry, whose data set mteb reads from the Hub.

    Args:
        name: The task, as the user named it.
        name_in_mteb: Its name in mteb.

    Raises:
        RecipeError: for a task that mteb does not have, or that is not one task on texts.
    """

    def __init__(self, name: str, name_in_mteb: str) -> None:
        from mteb.abstasks import AbsTaskRetrieval

        super().__init__(name)
        self._task_in_mteb = _registered(name_in_mteb)
        self._metadata = self._task_in_mteb.metadata
        self.has_queries = isinstance(self._task_in_mteb, AbsTaskRetrieval)

    def facts(self) -> Task:
        """Return its facts, by mteb's metadata."""
        splits = []
        for split in self._task_in_mteb.eval_splits:
            splits += [split_in_limbeck(split, subset) for subset in self._task_in_mteb.hf_subsets]
        return self._task(f"mteb {self._metadata.name}", self._metadata.main_score, splits)

    def content(self, request: EvaluationRequest) -> Content:
        """Return its data set by name and revision; nothing is read."""
        task = self.facts()
        notes = []
        if self._metadata.superseded_by:
            notes.append(f"{task.title}: mteb names {self._metadata.superseded_by} as the task's successor")
        data_set = json.dumps(self._metadata.dataset, sort_keys=True)
        return Content(task, f"{self._metadata.name} {data_set}", tuple(notes))

    def fetch(self, request: EvaluationRequest) -> None:
        """Load its data set once, so that it is on the disk before any cell runs."""
        self._load()
        self._task_in_mteb.unload_data()

    def open(self, rows: TaskData | None, fingerprint: str) -> Any:
        """Return the task with its data set."""
        self._load()
        if self.has_queries:
            # Some tasks have their data in an older form at first.
            self._task_in_mteb.convert_v1_dataset_format_to_v2(num_proc=None)
        return self._task_in_mteb

    def _load(self) -> None:
        """Load the data set, from the Hub or from its cache.

        Raises:
            CorpusError: if it cannot be read.
        """
        try:
            with quiet_mteb(), _cache_alone_without_hub():
                self._task_in_mteb.load_data()
        except Exception as error:  # Of the network, the Hub, the cache, the task: each has its own class.
            reason = shorten_error(error).removesuffix(".")
            raise CorpusError(
                f"Cannot read '{self._metadata.dataset['path']}', the data set of {self.name}: {reason}. Check the "
                "connection to the Hub (HF_HUB_OFFLINE, a token for gated data), or let mteb score files of yours "
                "(mteb:FILE.yaml)."
            ) from error


class TaskOfRows(MtebTask):
    """A task of limbeck whose rows mteb scores.

    Args:
        name: The task, as the user named it.
        task: The task of limbeck: built in, or a YAML file.
        is_clustered: Whether its rows are clustered, rather than classified.

    Raises:
        RecipeError: for an unknown task, or a kind of task that mteb does not score.
    """

    def __init__(self, name: str, task: str, *, is_clustered: bool) -> None:
        super().__init__(name)
        self._task_of_rows = task
        self._definition = find_task(task)
        self._form: Form = find_form(self._definition.task, is_clustered=is_clustered)
        self._is_clustered = is_clustered
        self.has_queries = self._form.has_queries

    def facts(self) -> Task:
        """Return its facts, by its description."""
        return self._facts_of(self._definition.task)

    def content(self, request: EvaluationRequest) -> Content:
        """Return its rows by their fingerprint."""
        rows = self.fetch(request)
        return Content(self._facts_of(rows.task), f"{self._form.type} {data_fingerprint(rows)}", rows.notes)

    def fetch(self, request: EvaluationRequest) -> TaskData:
        """Return the rows that are scored, and those to train on where mteb trains a classifier."""
        rows = load_rows(self._task_of_rows, request.data, training=self._form.is_trained)
        if not rows.task.scored:
            raise CorpusError(
                f"{rows.task.title} has no labelled split for {self.name}: name a labelled split in the task's "
                "files, or give a folder that has one as --data."
            )
        return rows

    def open(self, rows: TaskData | None, fingerprint: str) -> Any:
        """Return the task of mteb with the rows."""
        assert rows is not None
        name = rows.task.name
        if self._is_clustered:
            name += f".{CLUSTERING}"
        return make_mteb_task(name, self._form, rows.task, rows.splits, fingerprint)

    def _facts_of(self, task: Task) -> Task:
        """Return the facts of a task of limbeck as mteb scores it."""
        what = f"{CLUSTERING} of " if self._is_clustered else ""
        return self._task(f"mteb {what}{task.title}", self._form.metric, task.scored)


def find_mteb_task(name: str) -> MtebTask:
    """Return the task of a name.

    Args:
        name: `mteb:NAME`, with a name in mteb, or that of a task of limbeck; or `mteb:clustering:NAME`, with the
            latter.

    Raises:
        PluginError: if mteb is not installed.
        RecipeError: for an unknown task, or one that cannot be scored.
        CorpusError: for a task file that cannot be read.
    """
    if importlib.util.find_spec("mteb") is None:
        raise PluginError(f'{name} needs the package mteb, which is not installed: pip install "limbeck[mteb]"')
    _, _, task = name.partition(":")
    prefix = f"{CLUSTERING}:"
    if task.startswith(prefix):
        return TaskOfRows(name, task.removeprefix(prefix), is_clustered=True)
    if task in TASKS or is_own_task(task):
        return TaskOfRows(name, task, is_clustered=False)
    return TaskOfMteb(name, task)


def split_in_limbeck(split: str, subset: str) -> str:
    """Return limbeck's name of a split of mteb's."""
    return split if subset == ONLY_SUBSET else f"{split}.{subset}"


@dataclass(frozen=True)
class SplitSize:
    """The size of a split.

    Attributes:
        rows: Number of its rows, or of its queries; 0 where mteb keeps them in another way.
        texts: Number of its texts, about.
    """

    rows: int
    texts: int


def measure_splits(task_in_mteb: Any) -> dict[str, SplitSize]:
    """Return the size of each split of a task of mteb that has its data, by limbeck's name of the split."""
    sizes = {}
    for split in task_in_mteb.eval_splits:
        for subset in task_in_mteb.hf_subsets:
            data = task_in_mteb.dataset
            # As in mteb, a data set with one subset may have its splits without the subset around them.
            if subset in data:
                data = data[subset]
            # A subset may lack a split.
            size = SplitSize(rows=0, texts=0)
            if split in data:
                size = _measure_split(data[split])
            sizes[split_in_limbeck(split, subset)] = size
    return sizes


def _measure_split(data: Any) -> SplitSize:
    """Return the size of a split of mteb's: a dictionary with queries and their corpus, or rows."""
    if isinstance(data, dict):
        queries = len(data["queries"])
        return SplitSize(rows=queries, texts=queries + len(data["corpus"]))
    is_of_pairs = "sentence2" in data.column_names
    texts_in_row = 2 if is_of_pairs else 1
    return SplitSize(rows=len(data), texts=len(data) * texts_in_row)


@contextmanager
def quiet_mteb() -> Iterator[None]:
    """Silence the logs and warnings of mteb, and the progress bars of datasets."""
    from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    logger = logging.getLogger("mteb")
    level = logger.level
    had_bars = not are_progress_bars_disabled()
    logger.setLevel(logging.CRITICAL)
    disable_progress_bars()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
        if had_bars:
            enable_progress_bars()


@contextmanager
def _cache_alone_without_hub() -> Iterator[None]:
    """Let data sets be read from the Hub's cache alone where the Hub does not answer, as HF_HUB_OFFLINE=1 does.

    Otherwise each file is asked for again and again, for a minute and with lines on the terminal.
    """
    import datasets.config
    from huggingface_hub import constants

    if hub_answers():
        yield
        return
    switches: tuple[Any, ...] = (constants, datasets.config)
    before = [switch.HF_HUB_OFFLINE for switch in switches]
    for switch in switches:
        switch.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.HF_HUB_OFFLINE = value


def _registered(name: str) -> Any:
    """Return a task of mteb's registry.

    Raises:
        RecipeError: for a task that mteb does not have, that is made of several tasks, or that is not on texts alone.
    """
    from mteb.get_tasks import TASK_LIST, get_task

    try:
        with quiet_mteb():
            task = get_task(name)
    except KeyError:
        names = [task_class.metadata.name for task_class in TASK_LIST]
        hint = suggestion(name, [*names, *TASKS])
        raise RecipeError(f"Neither mteb nor limbeck has a task '{name}'.{hint}") from None
    if task.is_aggregate:
        parts = ",".join(f"{MTEB}:{part.metadata.name}" for part in task.metadata.tasks)
        raise RecipeError(f"'{name}' stands for several tasks of mteb; name one or more of them: {parts}.")
    # What else than texts a task is on, such as images.
    other_modalities = [modality for modality in task.modalities if modality != "text"]
    if other_modalities:
        shown = " and ".join(other_modalities)
        raise RecipeError(
            f"mteb's task '{name}' is on {shown}, but limbeck's models read only text; choose a task on text."
        )
    return task
