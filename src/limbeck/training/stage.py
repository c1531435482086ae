"""Training of one stage of a run: it takes a student, the terms of a method and a corpus, and trains the student."""

import copy
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor
from transformers import PreTrainedModel, TrainerCallback, TrainingArguments
from transformers.training_args import ParallelMode

from limbeck.core.files import atomic_file, atomic_text, sync
from limbeck.core.paths import LOG
from limbeck.core.ranks import main_rank_first, on_main_rank, raised_on_all_ranks
from limbeck.core.records import BestStep, Stage, save
from limbeck.corpus import GroupedRows, Tokenizers
from limbeck.errors import Interrupted, OutputError, RecipeError
from limbeck.methods.teaching import Teaching
from limbeck.models.families import base_model, family_of
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training import checkpoints
from limbeck.training.best_step import chosen_metric, prepare_best_step, stopping_callbacks
from limbeck.training.callbacks import LiveLog, ProgressReporter
from limbeck.training.development import scores_by_step
from limbeck.training.disk_failures import saving
from limbeck.training.finished_stage import take_weights
from limbeck.training.freezing import freeze_unreached, untrained_names
from limbeck.training.learned_maps import Learned
from limbeck.training.log_file import log_lines
from limbeck.training.measured_steps import MeasuredSteps
from limbeck.training.module import DistillationModule
from limbeck.training.rows import AnyCorpus, held_out_languages
from limbeck.training.run_checkpoints import has_saved_assistants_alone
from limbeck.training.sampler import grouped_padding_share
from limbeck.training.seals import file_facts
from limbeck.training.signals import InterruptSaver, MeasurementLeftError
from limbeck.training.slower_steps import SlowerSteps
from limbeck.training.stage_rows import stage_rows
from limbeck.training.timed_checkpoints import TimedCheckpoints, saves_by_time
from limbeck.training.trainer import WEIGHTS, DistillationTrainer
from limbeck.training.training_facts import precision, training_facts, warn_of_differences
from limbeck.training.warn import warn
from limbeck.training.weights import save_weights, whole_weights

_UNSHARDED = "training.fsdp shards over several GPUs, but this run has no GPU or a single process; leave it out."
_LEAST_SECONDS = 1e-9
"""Divides in place of a time of 0, which a stage without a step may have."""
_ROWS_OF_PADDING = 20_000
"""Most rows of each length from which the share of padding is estimated."""


def prepare_student(student: PreTrainedModel, plan: StagePlan) -> None:
    """Let all of a student be trained, but for its embeddings where the stage freezes them."""
    student.requires_grad_(True)
    if "embeddings" in plan.spec.freeze:
        for path in family_of(student.config).embeddings:
            base_model(student).get_submodule(path).requires_grad_(False)


class StageTraining:
    """A stage, ready to be trained.

    Args:
        plan: The plan of the stage.
        student: Trained in place; its taps are off again after the training.
        teaching: Gives the teacher's streams.
        tokenizers: Those of student and teacher.
        corpus: Blocks to train on and held-out ones.
        folder: The stage's folder, for its checkpoints and results.
        seed: Seed of its data order and dropout.
        console: Where warnings go.
        progress: Shows the progress.
        callbacks: Callbacks of the user, behind limbeck's own.
        earlier: Learned maps and layer weights of earlier stages of the same student and teacher.
        ends_early: Train no further than the newest checkpoint, whose step is the stage's last.

    Raises:
        RecipeError: if the launcher shards the student otherwise than the recipe says, or for a guard that works in one
            process alone.
    """

    def __init__(
        self,
        plan: StagePlan,
        student: PreTrainedModel,
        teaching: Teaching,
        tokenizers: Tokenizers,
        corpus: AnyCorpus,
        *,
        folder: Path,
        seed: int,
        console: Console,
        progress: ProgressReporter,
        callbacks: Sequence[TrainerCallback | type[TrainerCallback]] = (),
        earlier: Sequence[Learned] = (),
        ends_early: bool = False,
    ) -> None:
        self.plan = plan
        self.ends_early = ends_early
        self.student = student
        self.corpus = corpus
        self.folder = folder
        self.progress = progress
        self.warn = partial(warn, console)
        self.interrupt = InterruptSaver()
        self.held_out_by_language: dict[str, dict[str, float | None]] = {}
        # Time of the steps up to the last, by all processes that trained the stage.
        self.seconds_of_steps = 0.0

        rows = stage_rows(plan, corpus, tokenizers, seed)
        arguments = build_arguments(plan.spec.training, output=str(folder), seed=seed, evaluates=len(rows.held_out) > 0)
        _check_arguments(plan, arguments)
        prepare_student(student, plan)
        self.frozen = untrained_names(student)
        # Scores by step copy the student, so it must not have taps yet.
        scores = main_rank_first(partial(scores_by_step, plan, student, tokenizers.student))

        self.scores_by_step = scores
        metrics = scores.metrics if scores is not None else ()
        prepare_best_step(plan, arguments, metrics, evaluates=len(rows.held_out) > 0)

        # Sharding changes a model for good, so a copy is sharded. At the end the student gets the copy's weights.
        learner = copy.deepcopy(student) if arguments.fsdp else student
        student_head, _ = plan.sentence_heads()
        self.module = DistillationModule(learner, teaching, plan.terms, pooling=student_head)
        for learned in earlier:
            self.module.take_learned(learned)
        self.untrained = freeze_unreached(self.module, rows.probe())

        # Callbacks run in this order. The one that handles signals comes before the heartbeat that announces the
        # training: a launcher that waits for it may send a signal at once.
        own_callbacks: list[TrainerCallback] = [self.interrupt, progress, LiveLog(folder)]
        if scores is not None:
            own_callbacks.append(scores)
        if saves_by_time(plan.spec.training):
            own_callbacks.append(TimedCheckpoints())
        self.trainer = DistillationTrainer(
            self.module,
            policy=plan.spec.guard,
            warn=self.warn,
            activity=progress.activity,
            args=arguments,
            **rows.arguments(),
            interrupt=self.interrupt,
            callbacks=[*own_callbacks, *stopping_callbacks(plan, callbacks)],
        )
        _check_engine(self.trainer)
        # Two callbacks call functions of the trainer, which is made after them.
        progress.work_until = self.trainer.loader.work_until
        measured = MeasuredSteps.read(folder)
        if measured is not None:
            slower_steps = SlowerSteps(
                measured, lambda: self.trainer.seconds, self.trainer.loader.relative_length, self.warn
            )
            self.trainer.add_callback(slower_steps)
        if scores is not None:
            scores.log = self.trainer.log
            scores.note_left = partial(self.trainer.note_left, "development")
            self.trainer.score_task = scores.scores
            self.trainer.log_task = scores.log_scores
            # The trainer's own, which leaves the time of the scores out of that of the steps.
            scores.activity = self.trainer.activity

        if arguments.world_size > 1:
            line = f"  {arguments.world_size} processes, {self.trainer.loader.rows_a_step} rows a step"
            console.print(line, style="dim", highlight=False)

    def run(self) -> Stage:
        """Train the stage, from the newest checkpoint in its folder if there is one.

        Returns:
            The stage's part of the run record. It is also written to the stage's folder, last of all.

        Raises:
            Interrupted: after Ctrl-C or SIGTERM, with the state saved.
            TrainingError: if the policies stop it, or a checkpoint cannot be written.
            OutputError: if its checkpoint cannot be restored, or there is none where the stage ends early.
        """
        checkpoint = on_main_rank(self.newest_checkpoint)
        if self.ends_early and checkpoint is None:
            raise OutputError(
                f"No checkpoint of stage '{self.plan.spec.title}' is complete, so no student can be made from one; "
                f"continue the training: limbeck distill --resume --output {self._run_folder}"
            )
        metrics = self.train(checkpoint)
        record = self.describe(metrics)
        whole = whole_weights(self.module)
        on_main_rank(lambda: self.write(whole, record))
        # A copy was sharded and trained in the student's place, so the student gets the weights of the copy.
        if whole is not None:
            take_weights(self.student, whole)
        if self.interrupt.agree():
            raise raised_on_all_ranks(self.stopped(f"after stage '{self.plan.spec.title}', which is finished."))
        return record

    def newest_checkpoint(self) -> Path | None:
        """Return the checkpoint to go on from, if any; files of a write that was killed are removed first."""
        checkpoints.remove_leftovers(self.folder)
        return checkpoints.newest_checkpoint(self.folder, self.warn)

    def train(self, checkpoint: Path | None) -> dict[str, float]:
        """Train the stage to its end, and measure it on held-out rows.

        Args:
            checkpoint: The checkpoint to go on from; None to begin.

        Returns:
            The metrics on held-out rows, by the trainer's names; empty without such rows.

        Raises:
            Interrupted: after Ctrl-C or SIGTERM, with the state saved.
        """
        trainer = self.trainer
        try:
            self._take_steps(checkpoint)
            self.seconds_of_steps = trainer.seconds
            is_complete = trainer.state.global_step >= trainer.state.max_steps and not trainer.measurements_left
            is_stopped = self.interrupt.agree() and not is_complete
            # A stage that is ended early keeps the student of its newest checkpoint.
            if not self.ends_early:
                if is_stopped:
                    raise raised_on_all_ranks(self.stopped_at_step("the state is saved"))
                trainer.load_best()
            metrics = self._measure_held_out()
            self.held_out_by_language = self._measure_languages()
            return metrics
        except MeasurementLeftError:
            # A signal came while the trained stage was measured. The run that goes on makes the measurement.
            trainer.save_last()
            raise self.stopped_at_last_checkpoint() from None
        except RuntimeError as error:
            # Ctrl-C reaches the workers of the data loader too. They end at once, and the step fails without its batch.
            # PyTorch's error has no class of its own, but begins with these words.
            is_by_signal = self.interrupt.interrupted and "DataLoader worker" in str(error)
            if not is_by_signal:
                raise
            raise self.stopped_at_last_checkpoint() from None
        finally:
            self.progress.close()
            self.interrupt.close()
            self.module.close()

    def _take_steps(self, checkpoint: Path | None) -> None:
        """Take the steps of the stage that are left behind a checkpoint; all of them where it is None."""
        trainer = self.trainer
        if checkpoint is None:
            trainer.start_maps()
            trainer.train()
            return
        if not self.ends_early:
            trainer.make_up_measurements(checkpoint)
        if self.ends_early or checkpoints.is_last(checkpoint, trainer.args.max_steps):
            # No step is left. The loop would take one more all the same, so it is not started.
            trainer.restore(checkpoint)
        else:
            warn_of_differences(checkpoint, training_facts(trainer.args), self.warn)
            trainer.train(resume_from_checkpoint=str(checkpoint))

    def _measure_held_out(self) -> dict[str, float]:
        """Measure the trained stage on held-out rows, unless this was done with the same weights after the last step.

        Returns:
            The metrics by the trainer's names; empty without such rows.
        """
        trainer = self.trainer
        if trainer.eval_dataset is None:
            return {}
        # The last log of a measurement serves if the student has the weights of that step, not those of a better one.
        last_step = trainer.state.global_step
        best_step = trainer.checkpoints.best_step
        has_weights_of_last_step = self.ends_early or best_step is None or best_step == last_step
        if has_weights_of_last_step:
            for entry in trainer.state.log_history:
                if entry["step"] == last_step and "eval_loss" in entry:
                    return entry
        return trainer.evaluate()

    def _measure_languages(self) -> dict[str, dict[str, float | None]]:
        """Measure the trained stage on the held-out rows of each language; empty where languages are not known.

        Returns:
            Language to the loss and the terms.
        """
        trainer = self.trainer
        measured: dict[str, dict[str, float | None]] = {}
        for language, rows in held_out_languages(self.corpus, trainer.eval_dataset).items():
            result = trainer.evaluation_loop(trainer.get_eval_dataloader(rows), description=language)
            values = {name.removeprefix("eval_"): value for name, value in (result.metrics or {}).items()}
            measured[language] = {name: values.get(name) for name in self._names_of_losses() if name in values}
        return measured

    def _names_of_losses(self) -> list[str]:
        """Return `loss`, the weighted sum, and the names of its terms."""
        return ["loss", *(term.name for term in self.plan.terms)]

    def describe(self, metrics: Mapping[str, float]) -> Stage:
        """Describe the trained stage for the run's record.

        Args:
            metrics: The metrics of `train`.
        """
        trainer = self.trainer
        steps = trainer.state.global_step
        # The last log of training steps: `loss`, and `loss_TERM` for each term.
        last_log: dict[str, Any] = {}
        for entry in trainer.state.log_history:
            if "loss" in entry:
                last_log = entry
        final_terms: dict[str, float | None] = {}
        for key, value in last_log.items():
            if key.startswith("loss_"):
                final_terms[key.removeprefix("loss_")] = value

        held_out: dict[str, float | None] = {}
        for name in self._names_of_losses():
            if f"eval_{name}" in metrics:
                held_out[name] = metrics[f"eval_{name}"]

        # Rows that another process has read were trained too.
        self.module.read_rows.merge()
        record = Stage(
            name=self.plan.spec.title,
            method=self.plan.spec.method["name"],
            steps=steps,
            rows_a_step=trainer.loader.rows_a_step,
            tokens=int(trainer.tokens_seen),
            seconds=round(self.seconds_of_steps, 1),
            tokens_per_second=round(trainer.timed_tokens / max(self.seconds_of_steps, _LEAST_SECONDS), 1),
            drawn=trainer.loader.describe_drawn(self.corpus, steps),
            lengths=self._describe_lengths(steps),
            padding_share=round(self._padding_share(), 4),
            precision=precision(trainer.args),
            device=str(trainer.args.device),
            skipped_steps=trainer.guard.skipped,
            rows_of_a_piece=trainer.splitter.rows,
            final_loss=last_log.get("loss"),
            final_terms=final_terms,
            held_out=held_out,
            untrained=self.untrained,
            frozen=self.frozen,
            unread=self.module.unread_rows(),
        )
        if self.scores_by_step is not None and self.scores_by_step.drawn is not None:
            record.scored_by_step = self.scores_by_step.drawn
        if self.held_out_by_language:
            record.held_out_by_language = self.held_out_by_language
        # A stage that chose a step, or was ended early, has fewer steps than it was planned to have.
        best = self._describe_best()
        if best is not None:
            record.best = best
        elif steps < trainer.state.max_steps:
            record.planned_steps = trainer.state.max_steps
            if self.ends_early:
                record.ended_early = True
        return record

    def _describe_best(self) -> BestStep | None:
        """Describe the step that measurements chose; None where the student is that of the last step."""
        trainer = self.trainer
        best_step = trainer.checkpoints.best_step
        if best_step is None or self.ends_early:
            return None
        best = BestStep(
            step=best_step,
            metric=chosen_metric(trainer.args),
            value=trainer.state.best_metric,
            on_development=self.plan.development is not None,
            stopped_at=trainer.state.global_step,
            planned_steps=trainer.state.max_steps,
        )
        if self.plan.development is not None:
            best.task = self.plan.development.task.name
            best.split = self.plan.development.title
        # Losses are of all rows, and scores may be of fewer.
        scores = self.scores_by_step
        if scores is not None and scores.drawn is not None and best.metric in scores.metrics:
            best.scored_by_step = scores.drawn
        return best

    def _describe_lengths(self, steps: int) -> list[dict[str, float]]:
        """Describe how long the stage was trained at each length of its schedule; empty without a schedule."""
        lengths: list[dict[str, float]] = []
        tokens_by_length = self.trainer.tokens_by_length.tolist()
        for index, (length, steps_of_length) in enumerate(self.trainer.loader.lengths_until(steps)):
            lengths.append({"length": length, "steps": steps_of_length, "tokens": int(tokens_by_length[index])})
        return lengths

    def _padding_share(self) -> float:
        """Estimate the share of all positions of the batches that was padding.

        For each length the share is estimated by its first rows, and weighted by the tokens trained at that length.
        """
        rows = self.trainer.train_dataset
        batch_size = self.trainer.args.train_batch_size
        tokens = 0.0
        positions = 0.0
        for view, tokens_of_length in zip(self.corpus.views, self.trainer.tokens_by_length.tolist(), strict=True):
            if isinstance(rows, GroupedRows):
                # A batch reads several rows together, and only the data set knows which.
                padding_share = grouped_padding_share(rows, batch_size)
            else:
                padding_share = grouped_padding_share(view.train["length"][:_ROWS_OF_PADDING], batch_size)
            # tokens = positions · (1 − padding share)
            tokens += tokens_of_length
            positions += tokens_of_length / (1 - padding_share)
        # A stage without a step has read no tokens.
        if positions == 0:
            return 0.0
        return 1 - tokens / positions

    def write(self, whole: Mapping[str, Tensor] | None, record: Stage) -> None:
        """Write the results of the stage, and remove its checkpoints unless the recipe keeps all.

        `stage.json` is written after all other results, since its presence means that the stage is finished.

        Args:
            whole: The module's weights, if it is sharded.
            record: The stage's part of the run record.
        """
        # The text is the subject of a message: "What stage 'a' leaves could not be written to …".
        with saving(f"What stage '{record.name}' leaves", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_text(self.folder / LOG, log_lines(self.trainer.state.log_history))
            with atomic_file(self.folder / WEIGHTS) as weights:
                save_weights(self.module, weights, whole)
            record.weights = file_facts(self.folder / WEIGHTS)
            save(record, self.folder)
            sync(self.folder)
            checkpoints.remove_unneeded(self.folder, self.trainer.args.save_total_limit)

    @property
    def _run_folder(self) -> str:
        """The folder of the run as an argument of a command; the stage's folder in it is `stages/NUMBER-TITLE`."""
        return shlex.quote(str(self.folder.parents[1]))

    def stopped(self, where: str) -> Interrupted:
        """Return the error of a stopped run, with the command that continues it and the one that ends it."""
        message = f"Stopped {where} Continue with: limbeck distill --resume --output {self._run_folder}"
        if not has_saved_assistants_alone(self.folder.parents[1]):
            message += f"; or keep the student as it is, with: limbeck finish {self._run_folder}"
        return self.interrupt.error(message)

    def stopped_at_last_checkpoint(self) -> Interrupted:
        """Return the error of a stage that was stopped in the middle of a step."""
        step = self.trainer.state.global_step
        steps_saved = [saved for saved, _ in checkpoints.all_checkpoints(self.folder)]
        if step in steps_saved:
            return self.stopped_at_step("the state is saved")
        if steps_saved:
            return self.stopped_at_step("the state of its last checkpoint is kept")
        return self.interrupt.error(
            f"Stopped at step {step} of stage '{self.plan.spec.title}', before its first checkpoint. Begin the stage "
            f"again with: limbeck distill --resume --output {self._run_folder}"
        )

    def stopped_at_step(self, state: str) -> Interrupted:
        """Return the error of a stage that was stopped."""
        return self.stopped(f"at step {self.trainer.state.global_step} of stage '{self.plan.spec.title}'; {state}.")


def _check_arguments(plan: StagePlan, arguments: TrainingArguments) -> None:
    """Refuse a guard and a sharding that are not possible with the processes of this run."""
    if plan.spec.guard.on_out_of_memory == "split" and arguments.world_size > 1:
        raise RecipeError(
            "'guard.on_out_of_memory: split' works only in a single process, but there are several; leave "
            "guard.on_out_of_memory out."
        )
    if arguments.fsdp and arguments.parallel_mode is not ParallelMode.DISTRIBUTED:
        raise RecipeError(_UNSHARDED)


def _check_engine(trainer: DistillationTrainer) -> None:
    """Refuse a launcher that is configured to shard the student otherwise than the recipe says."""
    # `is_fsdp_enabled` tells what accelerate does, as its launcher configured it; `args.fsdp` is what the recipe asks.
    if trainer.args.fsdp and not trainer.is_fsdp_enabled:
        raise raised_on_all_ranks(RecipeError(_UNSHARDED))
    shards_unasked = trainer.is_fsdp_enabled and not trainer.args.fsdp
    if shards_unasked or trainer.is_deepspeed_enabled:
        raise raised_on_all_ranks(
            RecipeError(
                "The launcher is configured for FSDP or DeepSpeed; launch plain processes, and set training.fsdp: true "
                "in the stage to shard the student."
            )
        )
