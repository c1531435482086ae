"""Scores of a student on development rows while it is trained.

Development rows are labelled rows of a run's task that nothing is trained on. At the end of a run
`limbeck.training.task_scores` scores both models. A *tapped* student keeps what its layers compute, for the loss, see
`limbeck.models.taps`.
"""

import copy
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState

from limbeck.core import hashing, paths, records
from limbeck.core.progress import Count, ShowActivity, no_activity
from limbeck.corpus import LabelledSettings
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.evaluation.evaluators import head_match, head_outputs, prepared_task
from limbeck.evaluation.plan.identity import data_fingerprint
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import score
from limbeck.kinds.task import TaskData
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.epochs import ends_epoch
from limbeck.training.signals import MeasurementLeftError

MOST_ROWS_BY_STEP = 1_000
"""Most rows that a student is scored on in training, the same ones each time; at the end of a run all are scored."""
LOG_PREFIX = "development_"
"""Prefix of the metrics in the log."""


def prepare_rows(
    data: TaskData,
    corpus: LabelledSettings,
    tokenizer: PreTrainedTokenizerBase,
    *,
    length: int,
    most: int | None = None,
) -> prepared_task.PreparedTask:
    """Encode rows of a task, cut to the length that a model reads in a stage.

    Args:
        data: The rows.
        corpus: The settings of the stage's rows.
        tokenizer: The tokenizer of the model.
        length: Most tokens of a row.
        most: Rows drawn of every split; None takes all.

    Raises:
        CorpusError: if they cannot be encoded.
    """
    stride = corpus.stride if KINDS[data.task.kind].has_windows else 0
    # The hashes that name the encoded rows in limbeck's cache. The rows are only scored, so there is no training set.
    tokenizer_facts = [TokenEncoder(tokenizer).fingerprint(), tokenizer.padding_side, tokenizer.truncation_side]
    keys = prepared_task.TokenKeys(
        tokenizer=hashing.fingerprint(tokenizer_facts), rows=data_fingerprint(data), training_set=""
    )
    return prepared_task.prepare(
        data,
        tokenizer,
        keys=keys,
        cache_dir=paths.default_cache_dir(),
        length=length,
        stride=stride,
        max_scored_rows=most,
        # Rows without labels are read only where the task has no labelled rows to score on.
        predicting=not data.task.scored,
    )


class DevelopmentScores(TrainerCallback):
    """Logs a student's scores on development rows while it is trained, as `development_METRIC`.

    The student is scored every `eval_steps` steps, at the end of every epoch and at the last step, as it would be saved
    then. A copy of it is scored, which draws no random number and has no taps. The weights are therefore those of a
    training that is never scored, and a resumed training logs the same lines as one that was never stopped.

    Args:
        student: The student before it is tapped; copied.
        tokenizer: The student's tokenizer.
        prepared: The rows, of one scored split.
        by_steps: Score every `eval_steps` steps too; else only at ends of epochs and at the last step.
        drawn: How many of the development rows these are; None where they are all.

    Attributes:
        log: The `log` of the trainer, set once there is one; nothing is scored before.
        note_left: Is called where a signal ended the scoring before its end; set with `log`.
        activity: Shows that the student is scored.
        drawn: The argument.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        prepared: prepared_task.PreparedTask,
        *,
        by_steps: bool = True,
        drawn: records.ScoredByStep | None = None,
    ) -> None:
        self.log: Callable[[dict[str, float]], None] | None = None
        self.note_left: Callable[[], None] | None = None
        self.activity: ShowActivity = no_activity
        self.drawn = drawn
        self._student = student
        # The copy is scored in place of the student. The student is tapped only later, so the copy has no taps.
        self._copy = copy.deepcopy(student).requires_grad_(False)
        self._tokenizer = tokenizer
        self._prepared = prepared
        self._by_steps = by_steps
        self._classes = head_match.match_head("the student", student.config, prepared.task).classes

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the student is scored by."""
        return self._prepared.task.metrics

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Score the student where it is due, and log the scores before the step's checkpoint keeps the log."""
        if self.log is None or not state.is_world_process_zero or not self._is_due(state):
            return
        # `log` resets `should_log`, as if the step had been logged, but the line with the step's loss is still to come.
        loss_is_due = control.should_log
        try:
            self.log_scores()
        except MeasurementLeftError:
            assert self.note_left is not None
            self.note_left()
        control.should_log = loss_is_due

    def _is_due(self, state: TrainerState) -> bool:
        """Return whether the student is scored after this step."""
        if state.global_step >= state.max_steps or ends_epoch(state.epoch or 0.0):
            return True
        return self._by_steps and state.global_step % max(int(state.eval_steps), 1) == 0

    def log_scores(self) -> None:
        """Score the student with its present weights, and log the scores.

        Raises:
            MeasurementLeftError: if a signal has ended the scoring; nothing is logged then.
        """
        assert self.log is not None
        self.log({f"{LOG_PREFIX}{metric}": value for metric, value in self.scores().items()})

    def scores(self) -> dict[str, float]:
        """Return the student's scores with its present weights, by metric."""
        # The copy has no taps, and is brought up to date each time.
        self._copy.to(self._student.device)
        self._copy.load_state_dict(self._student.state_dict())
        prepared = self._prepared
        (split,) = prepared.task.scored  # Development rows have exactly one split.
        with self.activity("scores on development rows") as tick:
            amount, unit = prepared.amount(split)

            def show_rows(share: float, what: str, count: Count | None = None, /) -> None:
                assert count is not None
                tick(int(count.done), amount, unit)

            predictions = head_outputs.predict(
                self._copy, self._tokenizer, prepared, split, classes=self._classes, report=show_rows
            )
            return score(prepared.task, split, prepared.rows[split], predictions)


def scores_by_step(
    stage: StagePlan, student: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> DevelopmentScores | None:
    """Make the callback that scores a stage's student by step.

    Args:
        stage: The stage.
        student: Its student, not tapped yet.
        tokenizer: The student's tokenizer.

    Returns:
        The callback. None for a stage without development rows, whose terms do not teach the student's head, whose
        student is sharded, or with `training.eval_strategy: no`.
    """
    rows = stage.development
    if rows is None or not teaches_head(stage):
        return None
    training = stage.spec.training
    strategy = str(training.get("eval_strategy", "steps"))
    # The weights of a sharded student are spread over the processes, so that none of them could copy and score it.
    is_sharded = bool(training.get("fsdp"))
    if is_sharded or strategy == "no":
        return None
    assert isinstance(stage.corpus, LabelledSettings)
    # A student may read shorter rows than its teacher.
    length = stage.corpus.student_length or stage.corpus.length
    data = rows.load()
    prepared = prepare_rows(data, stage.corpus, tokenizer, length=length, most=MOST_ROWS_BY_STEP)
    return DevelopmentScores(
        student, tokenizer, prepared, by_steps=strategy == "steps", drawn=_drawn_rows(data, prepared)
    )


def _drawn_rows(data: TaskData, prepared: prepared_task.PreparedTask) -> records.ScoredByStep | None:
    """Return the numbers of drawn rows and of all; None where all are scored.

    Args:
        data: All rows.
        prepared: The rows that are scored.
    """
    (split,) = prepared.task.scored  # Development rows have exactly one split.
    all_rows, _ = KINDS[data.task.kind].count(data.splits[split])
    rows, name = prepared.amount(split)
    if rows == all_rows:
        return None
    return records.ScoredByStep(rows=rows, all_rows=all_rows, name=name)


def teaches_head(stage: StagePlan) -> bool:
    """Return whether a stage teaches its student's head for a task, other than the masked tokens of plain text."""
    return stage.student_head is not None and stage.pairing.has_labels
