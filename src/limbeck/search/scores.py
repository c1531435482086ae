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

from limbeck.comparison.held_out import held_out_batches
from limbeck.comparison.last_layers import LastLayers
from limbeck.comparison.pair_agreement import PairAgreement
from limbeck.comparison.student_evaluation import check_tasks, evaluate_students
from limbeck.core import devices, progress
from limbeck.core.blocks import counted
from limbeck.core.paths import STUDENT
from limbeck.errors import CorpusError, TrainingError
from limbeck.evaluation import SentencePair, build_pairs
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.methods.term import Term
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
    rows = {}
    for planned in check_tasks(spec, read=True):
        task = planned.task
        if not task.scored:
            raise CorpusError(f"{task.title} has no labelled split to score, so it is not a proxy task; leave it out.")
        rows[task.name] = planned.data
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
        self._tokenizer = proxy.tokenizer
        self._console = proxy.console
        self._folder = folder
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
            # The folder is not empty where another worker fine-tunes in it.
            with suppress(OSError):
                self._folder.rmdir()

        # The first column of a task is its main figure.
        figures = outcome.summary.models[0].columns
        scores: Scores = {}
        for column in outcome.summary.columns:
            if column.key in figures:
                scores.setdefault(str(column.task), figures[column.key].mean)
        missing = [task for task in self.names if task not in scores]
        if missing:
            raise TrainingError(f"No score of {', '.join(missing)}: {' '.join(outcome.summary.notes)}")
        return {task: scores[task] for task in self.names}


PAIRS = 1500
"""Sentence pairs of the agreement."""
BLOCKS = 128
"""Held-out blocks of the relations."""
LOSS_BLOCKS = 96
"""Held-out blocks of losses and of `explained`."""
_FEWEST = 3
"""Least batches of held-out blocks."""

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
        corpus = proxy.corpora[0]
        plan = proxy.plan
        self._agreement = PairAgreement(teacher, proxy.tokenizer, corpus, held_out_pairs(proxy), plan.vectors())
        if "explained" in names:
            self._layers = LastLayers(teacher, loss_batches(proxy), [plan.student], keep_teacher=False)
        else:
            batches = held_out_batches(corpus, proxy.tokenizer, BLOCKS, 1)
            self._layers = LastLayers(teacher, batches, [plan.student], keep_teacher=True)

    def measure(self, student: PreTrainedModel, plan: RunPlan, name: str, learned: Learned | None = None) -> Scores:
        """Score a student without taps; arguments as of `TaskScores.measure`."""
        student = student.to(self._device)
        sentence = plan.student_sentence if plan.recipe.evaluation.pooling == "auto" else None
        head = None if sentence is None else finished_head(sentence, learned)
        shares = {"agreement": self._agreement.of_student(student, head)}
        relations, explained = self._layers.compare(student)
        if explained is None:
            shares["relations"] = 1 - relations / self._layers.uniform
        else:
            shares["explained"] = explained
        student.cpu()
        return {name: 100 * shares[name] for name in self.names}


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
    for term in _terms_of(plan):
        for key in term.student:
            is_of_last_layer = key.name in ("hidden", "cls") and key.layer == last
            if key.name in OF_OUTPUT or is_of_last_layer:
                return "hidden"
    return "relations"


def taught_layers(plan: RunPlan) -> dict[int, list[int]]:
    """Return phi of equation 6: the teacher's layers whose hidden states a method teaches, by student layer.

    They are those of its terms between single hidden states, in any stage; for a mapping at random or by attention all
    layers that it chooses from; the last layers where it has none.
    """
    teacher_layers: dict[int, set[int]] = {}
    for term in _terms_of(plan):
        is_single = len(term.student) == 1 and (len(term.teacher) == 1 or term.transform is not None)
        if not is_single or term.student[0].name != "hidden":
            continue
        layers = {key.layer for key in term.teacher if key.name == "hidden"}
        if layers:
            teacher_layers.setdefault(term.student[0].layer, set()).update(layers)
    if not teacher_layers:
        teacher_layers = {plan.student.layers: {plan.teacher.layers}}
    return {layer: sorted(teacher_layers[layer]) for layer in sorted(teacher_layers)}


def _terms_of(plan: RunPlan) -> list[Term]:
    """Return the terms of all stages of a run."""
    return [term for stage in plan.own_stages for term in stage.terms]


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
