"""The scores of candidates: proxy tasks after fine-tuning, or held-out text, which needs no labels."""

import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from limbeck.comparison.held_out import LastLayers, held_out_batches, pair_agreement
from limbeck.comparison.run import check_tasks, evaluate_students
from limbeck.core import devices, progress
from limbeck.core.blocks import counted
from limbeck.core.paths import STUDENT
from limbeck.errors import CorpusError, TrainingError
from limbeck.evaluation import SentencePair, build_pairs
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.models.streams import OF_OUTPUT
from limbeck.models.students import build_student
from limbeck.recipe.plan import RunPlan
from limbeck.training.learned_maps import Learned
from limbeck.training.proxy import Proxy
from limbeck.training.student_folder import finished_head, save_student

Scores = dict[str, float]
"""By name, in percent; more is better."""


def mean_score(scores: Mapping[str, float]) -> float:
    """Return the mean of all scores; NaN if one is not finite. Source: ELM (arXiv 2012.06153) section 4.4."""
    values = list(scores.values())
    return statistics.fmean(values) if all(map(math.isfinite, values)) else math.nan


def describe_tasks(spec: MeasuresSpec) -> dict[str, Any]:
    """Check proxy tasks, before any student is trained, and say what tells them from others.

    Args:
        spec: Tasks, protocol, settings and the folder of their files.

    Returns:
        Plain values: what a study's fitness is. `tasks` has the name and the rows' fingerprint of each.

    Raises:
        RecipeError: for an unknown task or setting.
        CorpusError: for a task whose rows are not there, cannot be read, or have no labels to score by.
    """
    planned = check_tasks(spec, read=True)
    for one in planned:
        if not one.task.scored:
            raise CorpusError(
                f"{one.task.title} has no labelled split to score, so it is not a proxy task; leave it out."
            )
    rows = {one.task.name: one.data for one in planned}
    return {"tasks": rows, "preset": spec.preset, "seeds": spec.seeds, "settings": spec.settings}


class TaskScores:
    """Fine-tunes students on proxy tasks: of each task its main figure, in percent.

    The main figure is that of the task's first column: accuracy of SST-2, matched accuracy of MNLI, F1 of SQuAD 1.1.

    Args:
        proxy: Has trained the students.
        spec: What `describe_tasks` has checked.
        names: Of the tasks, as it returned them.
        folder: For the student that is fine-tuned, one at a time; it is removed afterwards.

    Source:
        ELM (arXiv 2012.06153) sections 4.3 and 5.2.
    """

    def __init__(self, proxy: Proxy, spec: MeasuresSpec, names: Sequence[str], folder: Path) -> None:
        # Students are compared with each other, so no teacher is evaluated beside them.
        self._spec = spec.model_copy(update={"teacher": False})
        self._tokenizer, self._console, self._folder = proxy.tokenizer, proxy.console, folder
        self.names = tuple(names)

    def measure(self, student: PreTrainedModel, plan: RunPlan, name: str, learned: Learned | None = None) -> Scores:
        """Score a student.

        Args:
            student: Trained; left as it is.
            plan: Of its run.
            name: Of the candidate, as a file may be called.
            learned: Of the stage that taught its sentence vectors, see `Trained`.

        Raises:
            TrainingError: if it cannot be scored.
        """
        place = self._folder / name
        # A worker that was killed may have left a part of it.
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            path = place / STUDENT
            sentence = plan.student_sentence
            save_student(path, student, self._tokenizer, plan.student_plan, sentence=sentence, learned=learned)
            with progress.ProgressBar(self._console) as bar:
                outcome = evaluate_students(self._spec, place, teacher="", students=[path], report=bar)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            with suppress(OSError):  # Another worker fine-tunes in it.
                self._folder.rmdir()
        figures = outcome.summary.models[0].columns
        found: Scores = {}
        for column in outcome.summary.columns:
            if column.key in figures:
                found.setdefault(str(column.task), figures[column.key].mean)
        if missing := [task for task in self.names if task not in found]:
            raise TrainingError(f"No score of {', '.join(missing)}: {' '.join(outcome.summary.notes)}")
        return {task: found[task] for task in self.names}


PAIRS = 1500
BLOCKS = 128
LOSS_BLOCKS = 96
_FEWEST = 3

MAPPING_SCORES = ("agreement", "relations")
LAYER_SCORES = ("agreement", "explained")
"""No relations, which one candidate is trained on at the teacher's last layer and the others are not."""


class HeldOutScores:
    """Scores students on held-out text against the whole teacher, always at the last layers of both, in percent.

    `agreement` is Spearman's correlation of the student's and the teacher's similarities of sentence pairs.
    `relations` is the share of the teacher's token relations that the student has: 1 - d(student) / d(uniform), where d
    is the mean divergence KL(teacher ‖ ·) of query-query, key-key and value-value relations (MiniLMv2 section 3.1) and
    the uniform relation looks at all tokens alike. `explained` is the share of the variance of the teacher's last
    hidden states that the best linear map of the student's explains. All are 100 for a student that equals its teacher,
    and 0 for one that knows nothing.

    The loss that a candidate was trained on is no score, not even on held-out text: a mapping that teaches fewer or
    easier layers, and a layer that is easier to learn, have a lower loss, however good the student is. These scores ask
    the same of every candidate. They do prefer mappings that teach the last layer what the teacher's last one does; for
    students that are to be fine-tuned, tasks say more.

    The teacher's similarities and relations are computed once and kept; the teacher itself only for `explained`.

    Args:
        proxy: Of the recipe that is searched for, and its text, of which some is held out.
        names: The scores.

    Raises:
        CorpusError: if too little text is held out.
    """

    def __init__(self, proxy: Proxy, names: Sequence[str] = MAPPING_SCORES) -> None:
        self.names = tuple(names)
        self._device = devices.choose_device("auto")
        teacher = proxy.load_teacher().to(self._device).eval()
        corpus, plan, kept = proxy.corpora[0], proxy.plan, "explained" not in names
        self._agreement = pair_agreement(teacher, proxy.tokenizer, corpus, held_out_pairs(proxy), plan.vectors())
        batches = held_out_batches(corpus, proxy.tokenizer, BLOCKS, 1) if kept else loss_batches(proxy)
        self._layers = LastLayers(teacher, batches, [plan.student], kept=kept)

    def measure(self, student: PreTrainedModel, plan: RunPlan, name: str, learned: Learned | None = None) -> Scores:
        """Score a student without taps; arguments as of `TaskScores.measure`."""
        student = student.to(self._device)
        sentence = plan.student_sentence if plan.recipe.evaluation.pooling == "auto" else None
        head = None if sentence is None else finished_head(sentence, learned)
        found = {"agreement": self._agreement(student, head)}
        relations, explained = self._layers.compare(student)
        if explained is None:
            found["relations"] = 1 - relations / self._layers.uniform
        else:
            found["explained"] = explained
        student.cpu()
        return {score: 100 * found[score] for score in self.names}


def held_out_pairs(proxy: Proxy) -> list[SentencePair]:
    """Choose the sentence pairs of the agreement.

    Raises:
        CorpusError: if too little text is held out.
    """
    corpus = proxy.corpora[0]
    documents = [document.text for document in corpus.held_out_documents()]
    if not documents or not len(corpus.held_out):
        raise CorpusError(
            "No text is held out, but without proxy tasks candidates are scored on it; give corpus.held_out a share "
            "above 0, or --tasks."
        )
    try:
        return build_pairs(documents, PAIRS)
    except CorpusError as problem:
        raise CorpusError(f"{problem} Raise corpus.held_out, give more text, or give --tasks.") from None


def loss_kind(plan: RunPlan) -> str:
    """Return which loss says what a method teaches: `hidden` where it reaches the end of the student's last block.

    A method that stops at the queries, keys and values of that block leaves its hidden states untrained.
    """
    last = plan.student.layers
    keys = [key for stage in plan.own_stages for term in stage.terms for key in term.student]
    reaches_end = any(key.kind in OF_OUTPUT or (key.kind in ("hidden", "cls") and key.layer == last) for key in keys)
    return "hidden" if reaches_end else "relations"


def taught_layers(plan: RunPlan) -> dict[int, list[int]]:
    """Return phi of equation 6: the teacher's layers whose hidden states a method teaches, by student layer.

    They are those of its terms between single hidden states, in any stage; for a mapping at random or by attention all
    layers that it chooses from; the last layers where it has none.
    """
    terms = [term for stage in plan.own_stages for term in stage.terms if len(term.student) == 1]
    taught = [term for term in terms if len(term.teacher) == 1 or term.transform is not None]
    keys = [(term.student[0], other) for term in taught for other in term.teacher]
    pairs = {(own.layer, other.layer) for own, other in keys if own.kind == other.kind == "hidden"}
    pairs = pairs or {(plan.student.layers, plan.teacher.layers)}
    return {i: sorted(j for layer, j in pairs if layer == i) for i in sorted({i for i, _ in pairs})}


def loss_batches(proxy: Proxy) -> list[dict[str, Tensor]]:
    """Return the held-out blocks that losses are of, in at least three batches.

    Raises:
        CorpusError: if less is held out than that takes.
    """
    batches = held_out_batches(proxy.corpora[0], proxy.tokenizer, LOSS_BLOCKS)
    if len(batches) < _FEWEST:
        raise CorpusError(
            f"{counted(len(batches), 'block')} held out, but students are compared on {_FEWEST} or more; raise "
            "corpus.held_out."
        )
    return batches


def plain_copy(student: PreTrainedModel, plan: RunPlan) -> PreTrainedModel:
    """Return a student's weights in a model without taps, in evaluation mode on the same device.

    A tapped model stops at the deepest stream that its method reads, and a second tap would take the first one off.

    Args:
        student: In training; left as it is.
        plan: Of its run.
    """
    copy = build_student(plan.student_config, seed=0, head=plan.head)
    copy.load_state_dict(student.state_dict())
    return copy.to(student.device).eval()
