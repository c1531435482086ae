"""Development rows of a run, which nothing is trained on: the student's score by step, and both models' at the end."""

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState

from limbeck.core import hashing, paths, progress, records
from limbeck.core.devices import choose_device
from limbeck.corpus import LabelledSettings
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.errors import LimbeckError
from limbeck.evaluation.development_scores import compare_outputs
from limbeck.evaluation.evaluators import head_match, head_outputs, tokens
from limbeck.evaluation.plan.cell import data_fingerprint
from limbeck.evaluation.tasks.splits import load_task
from limbeck.kinds.kind import Outputs
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import score
from limbeck.kinds.task import TaskData
from limbeck.recipe.plan import SCORE_LATER, RunPlan
from limbeck.recipe.stage_plan import StagePlan

ROWS_BY_STEP = 1_000
"""Most rows of a score by step, drawn once for all; those of the end are all."""
LOGGED = "development_"
"""Before the metrics in the log."""
_WHOLE = 1e-6


def prepare_rows(
    data: TaskData, corpus: LabelledSettings, tokenizer: PreTrainedTokenizerBase, *, most: int | None = None
) -> tokens.PreparedTask:
    """Encode rows of a task as long as those that a stage trains on.

    Args:
        data: The rows.
        corpus: Of the stage.
        tokenizer: Of the run.
        most: Rows drawn of every split; None takes all.

    Raises:
        CorpusError: if they cannot be encoded.
    """
    stride = corpus.stride if KINDS[data.task.kind].has_windows else 0
    facts = [TokenEncoder(tokenizer).fingerprint(), tokenizer.padding_side, tokenizer.truncation_side]
    keys = tokens.TokenKeys(hashing.fingerprint(facts), data_fingerprint(data), "")
    return tokens.prepare(
        data,
        tokenizer,
        keys=keys,
        cache_dir=paths.default_cache_dir(),
        length=corpus.length,
        stride=stride,
        max_scored_rows=most,
        predicting=not data.task.scored,
    )


class DevelopmentScores(TrainerCallback):
    """Logs a student's scores on development rows while it is trained, as `development_METRIC`.

    It is scored every `eval_steps` steps, at the end of every epoch and at the last step, as it would be saved then. A
    copy of it is: no random number is drawn and no tap is met, so the weights are those of a training that is never
    scored, and a resumed training has the lines of one that was never stopped.

    Args:
        student: The student before it is tapped; copied.
        tokenizer: Of the run.
        prepared: The rows, of one scored split.
        by_steps: Whether `eval_steps` count; else only ends of epochs and the last step.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        prepared: tokens.PreparedTask,
        *,
        by_steps: bool = True,
    ) -> None:
        self._copy = copy.deepcopy(student).requires_grad_(False)
        self._student, self._tokenizer, self._prepared, self._by_steps = student, tokenizer, prepared, by_steps
        self._classes = head_match.match_head("the student", student.config, prepared.task).classes
        self.log: Callable[[dict[str, float]], None] | None = None
        """The trainer's; nothing is scored without."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Score and log, where it is time: before the step's checkpoint is written, which so has the line."""
        if self.log is None or not state.is_world_process_zero or not self._is_due(state):
            return
        was_due = control.should_log
        self.log({f"{LOGGED}{name}": value for name, value in self.scores().items()})
        control.should_log = was_due  # The loss of the step has its own line.

    def _is_due(self, state: TrainerState) -> bool:
        epoch = state.epoch or 0.0
        if abs(epoch - round(epoch)) < _WHOLE or state.global_step >= state.max_steps:
            return True
        return self._by_steps and state.global_step % max(int(state.eval_steps), 1) == 0

    def scores(self) -> dict[str, float]:
        """Return the student's scores now."""
        weights = self._student.state_dict()
        self._copy.to(self._student.device).load_state_dict(weights)
        prepared, (split,) = self._prepared, self._prepared.task.scored
        predictions = head_outputs.predict(self._copy, self._tokenizer, prepared, split, classes=self._classes)
        return score(prepared.task, split, prepared.rows[split], predictions)


def scores_by_step(
    choice: StagePlan, student: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> DevelopmentScores | None:
    """Return the callback that scores a stage's student by step; None where the stage has nothing to be scored on.

    That is a stage without development rows, whose student's head nothing teaches, whose student is sharded, or that
    says `training.eval_strategy: no`.

    Args:
        choice: The stage.
        student: Its student, not tapped yet.
        tokenizer: Of the run.
    """
    strategy = str(choice.spec.training.get("eval_strategy", "steps"))
    if choice.development is None or not _teaches_head(choice) or strategy == "no" or choice.spec.training.get("fsdp"):
        return None
    assert isinstance(choice.corpus, LabelledSettings)
    prepared = prepare_rows(choice.development.load(), choice.corpus, tokenizer, most=ROWS_BY_STEP)
    return DevelopmentScores(student, tokenizer, prepared, by_steps=strategy == "steps")


def _teaches_head(choice: StagePlan) -> bool:
    return choice.student_head is not None and choice.pairing.task != "text"


# Both models at the end of a run.


def measure_tasks(
    plan: RunPlan,
    tokenizer: PreTrainedTokenizerBase,
    student: Path,
    load_teacher: Callable[..., PreTrainedModel],
    report: progress.Report = progress.no_progress,
) -> list[records.DevelopmentFigures]:
    """Score a run's student and its teacher as they are: on `evaluation.tasks`, else on the last stage's rows.

    Args:
        plan: The run's.
        tokenizer: Of both.
        student: Folder of the saved student.
        load_teacher: Loads the teacher of a stage, see `TeacherModels.load`.
        report: Receives the progress.

    Returns:
        An entry a task and split; with a reason in place of scores where there are none.
    """
    choice, wanted = _wanted(plan)
    if choice is None:
        return []
    all_figures: list[records.DevelopmentFigures] = []
    for number, (name, load) in enumerate(wanted):
        report_part = progress.part_of(report, number / len(wanted), (number + 1) / len(wanted))
        try:
            all_figures += _measure(load(), choice, tokenizer, student, load_teacher, report_part)
        except LimbeckError as error:
            all_figures.append(records.DevelopmentFigures(task=name, unavailable=str(error)))
    named = plan.recipe.evaluation.tasks is not None
    for figures in all_figures:
        if not named:
            figures.stage = choice.spec.title
            figures.split = choice.development.title if choice.development is not None else ""
        if figures.teacher:
            figures.teacher_name = choice.teacher.title
    return all_figures


def measures_tasks(plan: RunPlan) -> bool:
    """Whether a run's models are scored on a task at its end."""
    return bool(_wanted(plan)[1])


def _wanted(plan: RunPlan) -> tuple[StagePlan | None, list[tuple[str, Callable[[], TaskData]]]]:
    """Return the last stage that teaches the student's head, and the tasks by name, with what loads their rows."""
    taught = [choice for choice in plan.stages if choice.student is None and _teaches_head(choice)]
    if not taught:
        return None, []
    choice, asked = taught[-1], plan.recipe.evaluation
    if asked.tasks is not None:
        load = partial(load_task, data=plan.tasks_folder, training=False)
        return choice, [(name, partial(load, name)) for name in asked.tasks]
    rows = choice.development
    return choice, [] if rows is None else [(rows.task.name, rows.load)]


def _measure(
    data: TaskData,
    choice: StagePlan,
    tokenizer: PreTrainedTokenizerBase,
    student: Path,
    load_teacher: Callable[..., PreTrainedModel],
    report: progress.Report,
) -> Iterator[records.DevelopmentFigures]:
    """Score both models on every scored split of a task."""
    assert isinstance(choice.corpus, LabelledSettings)
    prepared, outputs = prepare_rows(data, choice.corpus, tokenizer), list[dict[str, Outputs]]()
    models = [lambda: head_outputs.load_head(str(student), data.task, tokenizer, choice.corpus.length)]
    if choice.teacher_head is not None:
        models.append(lambda: load_teacher(choice.teacher, head=choice.teacher_head).to(choose_device("auto")))
    named: list[tuple[str, Mapping[str, str]]] = [
        ("the student", {}), (choice.teacher.title, choice.teacher.spec.classes or {})
    ]  # fmt: skip
    parts, done = len(models) * len(data.task.scored), 0
    for (name, renamed), load in zip(named, models, strict=False):
        model = load()
        classes = head_match.match_head(name, model.config, data.task, renamed, way_out=SCORE_LATER).classes
        outputs.append({})
        for split in data.task.scored:
            report_part = progress.part_of(report, done / parts, (done + 1) / parts)
            outputs[-1][split] = head_outputs.read_outputs(
                model, tokenizer, prepared, split, classes=classes, report=report_part
            )
            done += 1
    for split in data.task.scored:
        yield compare_outputs(prepared, split, *(of_model[split] for of_model in outputs))
