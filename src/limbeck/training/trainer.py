"""`DistillationTrainer`: transformers' loop, whose losses are divided over whole steps.

A *step* of the optimizer is made of *micro-batches*, on each process (*rank*) its own. Every *term* of the loss gives a
total and a count for a micro-batch. The count is proportional to a *unit* of the batch, such as its tokens or samples,
and units are known before the forward pass. The *sums* are the terms of the steps since the last log.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import save_fsdp_optimizer
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerState
from transformers.trainer import SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_utils import EvalLoopOutput

from limbeck.core.memory import release_freed_memory
from limbeck.core.progress import ShowActivity, Tick, no_activity
from limbeck.core.ranks import on_main_rank
from limbeck.corpus import RowMix
from limbeck.corpus.batches.batch import FILLER, without_marks
from limbeck.errors import OutputError, TrainingError
from limbeck.methods.transforms import Course
from limbeck.models.packing import send_batch
from limbeck.objectives.registry import OBJECTIVES
from limbeck.recipe.optimizers import SCHEDULES_BY_LOSS
from limbeck.recipe.stages import GuardSpec
from limbeck.training import checkpoints
from limbeck.training.best_step import restore_counts, store_counts
from limbeck.training.disk_failures import loading
from limbeck.training.division import divide_loss
from limbeck.training.epochs import last_epoch, next_epoch
from limbeck.training.gathering import sum_over_ranks
from limbeck.training.loader import Loader
from limbeck.training.loss_guard import LossGuard
from limbeck.training.module import DistillationModule
from limbeck.training.out_of_memory import BatchSplitter
from limbeck.training.rows import RowsByLength
from limbeck.training.seals import find_damage
from limbeck.training.signals import InterruptSaver, MeasurementLeftError
from limbeck.training.step_clock import StepClock
from limbeck.training.step_start import StepStart, skip_update, takes_flag
from limbeck.training.units import UNITS, count_units, sum_units
from limbeck.training.warn import Warn
from limbeck.training.weights import load_weights, save_weights, whole_weights

WEIGHTS = "model.safetensors"
"""File with the weights of student and learned maps, in a checkpoint and in the folder of a stage."""
PROGRESS = "progress.json"
"""File of a checkpoint with the counts that a resumed run goes on with."""
_MOST_START_ROWS = 2048
"""Most rows on which kept maps are started by least squares."""
_LEAST_START_ROWS = 128
"""As many are read of a short training too: a map of fewer would fit their noise."""
_START_SHARE = 0.1
"""These rows as a share of those that are trained on."""
_START_BATCH = 64
"""Rows of a batch of these rows."""
_logger = logging.getLogger("limbeck")


class DistillationTrainer(Trainer):
    """Trains a `DistillationModule`.

    For every optimizer step and every term the loss is `weight * sum of totals / sum of counts`, over all
    micro-batches and ranks: a batch of 8 and 8 batches of 1 give the same gradient. Counts follow from the batch
    alone, so the divisors are known before the first backward.

    The loop is that of transformers. `Checkpoints` writes its checkpoints, `Loader` loads its batches, and `LossGuard`
    judges its steps.

    Args:
        model: The module to train.
        policy: Options for bad losses and for batches that do not fit into memory; None for a recipe's defaults.
        interrupt: Turns signals into a stop; it has to be among the callbacks too.
        mix: Draws the rows of an epoch from several sources; None for every row once.
        warn: Receives warnings.
        activity: Shows work other than steps, such as measuring the held-out loss.
        **arguments: Arguments of `transformers.Trainer`.

    Attributes:
        tokens_seen: Valid tokens of the whole stage, over all processes, as a scalar on the device.
        tokens_by_length: The same for each length of a schedule of lengths; one number without a schedule.
        score_task: Scores the student on development rows by metrics of its task, one of which may choose the best
            step; None without such rows.
        log_task: Logs the scores on development rows; None without such rows.
        measurements_left: What a signal has left out at the last step: `"development"`, the scores on development rows,
            and `"held_out"`, the measurement on held-out rows.
    """

    # transformers 5 models take **kwargs, from which the Trainer would conclude that it may scale the loss itself.
    model_accepts_loss_kwargs = False
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: DistillationModule,
        *,
        policy: GuardSpec | None = None,
        interrupt: InterruptSaver | None = None,
        mix: RowMix | None = None,
        warn: Warn = _logger.warning,
        activity: ShowActivity = no_activity,
        **arguments: Any,
    ) -> None:
        super().__init__(model=model, **arguments)
        self._show_activity = activity
        self._warn = warn
        self._has_said_when_it_stops = False
        self.remove_callback(PrinterCallback)  # Progress is reported by limbeck.
        self.interrupt = InterruptSaver() if interrupt is None else interrupt
        # Each process draws dropout of its own for its own rows. Weights and the order of rows are the same in all.
        if self.args.process_index > 0:
            torch.manual_seed(self.args.seed + self.args.process_index)
        self.model_accepts_loss_kwargs = False  # `Trainer` has set it by the model's signature.
        self.module = model
        self.module.teaching.move(self.args.device, pack=not self.args.torch_compile)
        self.module.read_rows.move(self.args.device)
        self.checkpoints = checkpoints.Checkpoints(self.args)

        # Terms that relate the rows of several processes need as many rows in each.
        drop_last = self.args.dataloader_drop_last
        if self.args.world_size > 1 and any(term.batch_coupled for term in model.terms):
            drop_last = True
        self.loader = Loader(self.args, self.data_collator, drop_last=drop_last, mix=mix)
        self.add_callback(self.loader)
        self.policy = GuardSpec() if policy is None else policy
        self.guard = LossGuard(model.terms, self.policy, self.args.device, Path(self.args.output_dir), warn)
        self.splitter = BatchSplitter(warn)
        self.score_task: Callable[[], dict[str, float]] | None = None
        self.log_task: Callable[[], None] | None = None
        self.measurements_left: list[str] = []
        # Keys of a measurement that `DevelopmentScores` logs.
        self._logged_elsewhere: set[str] = set()

        # On the device: no step waits for the host to count.
        self.tokens_seen = torch.zeros((), dtype=torch.float64, device=self.args.device)
        lengths = 1
        if isinstance(self.train_dataset, RowsByLength):
            lengths = len(self.train_dataset.parts)
        self.tokens_by_length = self.tokens_seen.new_zeros(lengths)

        # The time of the steps, and the tokens up to a checkpoint without seconds that the run was resumed from.
        self._clock = StepClock(self.args.device)
        self._tokens_without_seconds = 0.0

        # The step that is being trained: its micro-batches, and the state that a skipped or repeated step goes back to.
        self._batches_of_step: list[Any] = []
        self._step_start: StepStart | None = None
        self._sums_before_step: dict[str, Tensor] = {}

        # Sums of each term over the steps since the last log, and the number of these steps without skipped ones. It is
        # a tensor, since only the device knows at once which steps are skipped.
        self._sums: dict[str, Tensor] = {}
        self._steps_summed = torch.zeros((), dtype=torch.float64, device=self.args.device)
        # The same of the steps of the last log, over all ranks.
        self._logged_sums: dict[str, float] = {}
        self._logged_steps = 0.0

    @property
    def timed_tokens(self) -> float:
        """Valid tokens that were trained on in `seconds`."""
        return float(self.tokens_seen) - self._tokens_without_seconds

    @property
    def seconds(self) -> float:
        """Seconds of the stage's steps, to the millisecond; a resumed stage goes on from its checkpoint.

        Measurements and checkpoints between the steps do not count. Steps that a stopped run did after its last
        checkpoint are done again; their time counts once.
        """
        return self._clock.seconds

    @contextmanager
    def activity(self, what: str, /) -> Iterator[Tick]:
        """Show work other than steps, whose time is none of theirs.

        Args:
            what: The work in words.

        Yields:
            A function that shows how much is done.

        Raises:
            MeasurementLeftError: from that function, once a signal has come and more than this part is to be done.
        """
        with self._clock.paused(), self._show_activity(what) as tick:

            def tick_or_leave(done: int, total: int, unit: str, /) -> None:
                tick(done, total, unit)
                if done < total and self.interrupt.interrupted:
                    if self._can_leave_measurements():
                        raise MeasurementLeftError
                    self._say_when_it_stops(what)

            yield tick_or_leave

    def _can_leave_measurements(self) -> bool:
        """Return whether a measurement may end before its end, and be made by the process that resumes the stage."""
        # Several processes measure together, and only one of them may know of the signal.
        if self.args.world_size > 1 or self.is_fsdp_enabled:
            return False
        # The next step may need the measurement.
        if self.args.lr_scheduler_type in SCHEDULES_BY_LOSS:
            return False
        # A schedule of lengths without `max_steps` counts its steps when its rows are loaded, which is done once.
        return not isinstance(self.train_dataset, RowsByLength)

    def _say_when_it_stops(self, what: str) -> None:
        """Tell the user once that a stop waits for a measurement."""
        if not self._has_said_when_it_stops:
            self._has_said_when_it_stops = True
            self._warn(f"stopping after this measurement: {what}")

    def note_left(self, measurement: str) -> None:
        """Note that a signal has ended a measurement between the steps; save a checkpoint, and end the training.

        Args:
            measurement: See `measurements_left`.
        """
        self.measurements_left.append(measurement)
        self.control.should_save = True
        self.control.should_training_stop = True

    def make_up_measurements(self, checkpoint: Path) -> None:
        """Make the measurements that a signal left out at a checkpoint, and write them into it.

        The checkpoint is then as it would have been without the signal. No step is taken.

        Args:
            checkpoint: A whole checkpoint.
        """
        with loading(checkpoint):
            progress = json.loads((checkpoint / PROGRESS).read_text(encoding="utf-8"))
            # Checkpoints of earlier versions were saved after their measurements.
            measurements = list(progress.get("measurements_left", []))
        if not measurements:
            return
        self.restore(checkpoint)
        self._load_callback_state()
        if "development" in measurements and self.log_task is not None:
            on_main_rank(self.log_task)
            self._put_before_loss(self.state.log_history)
        if "held_out" in measurements and self.eval_dataset is not None:
            metrics = self.evaluate()
            self._determine_best_metric(metrics, trial=None)
        self.state.best_global_step = None  # As in `_save_checkpoint`.
        store_counts(self.callback_handler.callbacks, self.state)
        progress |= {"measurements_left": [], "best_step": self.checkpoints.best_step}

        def write(folder: Path) -> None:
            self.state.save_to_json(str(folder / TRAINER_STATE_NAME))
            (folder / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")

        on_main_rank(partial(checkpoints.rewrite, checkpoint, write))

    def _put_before_loss(self, log: list[dict[str, float]]) -> None:
        """Move the last entry of a log, the scores of a step, before the loss of the step, where it is without a stop.

        Args:
            log: Changed in place.
        """
        if not self.is_world_process_zero():
            return  # Only the main process logs the scores.
        scores = log.pop()
        place = len(log)
        for index, entry in enumerate(log):
            if "loss" in entry and entry["step"] == scores["step"]:
                place = index
        log.insert(place, scores)

    def start_maps(self) -> None:
        """Start the maps that students keep by least squares, on rows spread over the text to train on.

        Reading them takes no more than a small share of the training: of a short training, fewer rows are read.
        """
        rows = self.train_dataset
        share_of_rows = int(_START_SHARE * self._rows_to_train_on())
        most_rows = min(max(share_of_rows, _LEAST_START_ROWS), _MOST_START_ROWS)
        # Rows at equal distances. A distance is a whole number, so that some rows at the end may be left out.
        spacing = max(1, len(rows) // most_rows)
        end = min(len(rows), spacing * most_rows)
        chosen = range(0, end, spacing)

        def batches() -> Iterator[dict[str, Tensor]]:
            self.module.to(self.args.device)  # Where the student is sharded, the loop itself places it only later.
            # Only a student with such maps asks for batches, so that no other shows this work.
            with self.activity("fitting the map from the student's to the teacher's sentence vectors") as tick:
                for start in range(0, len(chosen), _START_BATCH):
                    indices = chosen[start : start + _START_BATCH]
                    batch = self.data_collator([rows[index] for index in indices])
                    yield send_batch(batch, self.args.device)
                    tick(start + len(indices), len(chosen), "rows")

        self.module.start_maps(batches)

    def _rows_to_train_on(self) -> float:
        """Return how many rows the whole training reads, over all processes."""
        if self.args.max_steps > 0:
            return self.args.max_steps * self.loader.rows_a_step
        return self.args.num_train_epochs * len(self.train_dataset)

    def get_train_dataloader(self) -> Any:
        """Load this process' part of the rows to train on."""
        return self.loader.training(self.train_dataset)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Load this process' part of the held-out rows."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        return self.loader.held_out(rows)

    def _prepare_for_training(self, *arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            # transformers itself sets this option of accelerate, and has no argument for its successor.
            warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
            return super()._prepare_for_training(*arguments, **options)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Fetch the micro-batches of one step, and count their units over all ranks.

        Returns:
            The micro-batches on the device, and their units in the order of `UNITS`; None for units where there is no
            batch left.
        """
        self._clock.start()
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        batches = [send_batch(batch, device) for batch in batches]
        for batch in batches:
            self.module.read_rows.note(batch)

        units = self._sum_units_and_signals(batches)
        # Count the tokens of the step in all and for its length.
        tokens = units[UNITS.index("token")]
        self.tokens_seen += tokens
        self.tokens_by_length[self.loader.index_of_length(self.state.global_step)] += tokens
        self._begin_step(batches)
        return batches, units

    def _sum_units_and_signals(self, batches: list[Any]) -> Tensor:
        """Return the units of a step over all ranks; where another process has received a signal, this one notes it.

        Args:
            batches: The micro-batches of this process.
        """
        # One communication has both: the number behind the units is 1 in a process that has received a signal.
        units = sum_units(batches)
        has_signal = units.new_full((1,), float(self.interrupt.interrupted))
        sums = sum_over_ranks(torch.cat([units, has_signal]))
        processes_with_signal = sums[-1]
        if self.args.world_size > 1:
            self.interrupt.note(processes_with_signal)
        return sums[:-1]

    def _begin_step(self, batches: list[Any]) -> None:
        """Note what a skipped or repeated step goes back to, and set what changes from step to step.

        Args:
            batches: The micro-batches of the step on this process.
        """
        self._steps_summed += 1
        self._batches_of_step = batches
        self._sums_before_step = dict(self._sums)
        self._step_start = None
        self.module.set_course(self._course_of_next_step())
        self.splitter.begin_step()

    def _course_of_next_step(self) -> Course:
        """Return the progress of the training at the start of the next step."""
        return self._course(self.state.global_step, next_epoch(self.state.epoch or 0.0))

    def _course_of_last_step(self) -> Course:
        """Return the progress of the training at the start of the last finished step."""
        return self._course(self.state.global_step - 1, last_epoch(self.state.epoch or 0.0))

    def _course(self, step: int, epoch: int) -> Course:
        """Return the progress of the training at a step.

        Args:
            step: The step; before the first one it counts as 0.
            epoch: The epoch as the loop counts it; a schedule of lengths counts its epochs itself.
        """
        step = max(step, 0)
        epoch_of_schedule = self.loader.epoch_of(step)
        if epoch_of_schedule is not None:
            epoch = epoch_of_schedule
        return Course(epoch=max(epoch, 0), share=step / max(self.state.max_steps, 1))

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Run forward and backward on a micro-batch, in pieces if it does not fit and the policy says so."""

        def run(batch: Any) -> Tensor:
            return super(DistillationTrainer, self).training_step(model, batch, num_items_in_batch)

        splits = self.policy.on_out_of_memory == "split"
        skips = self.policy.on_bad_loss == "skip"
        # The start of the step is noted at its first micro-batch. When the batches are fetched, a resumed run has not
        # yet restored its random streams.
        if self._step_start is None and (splits or skips):
            self._step_start = StepStart(self.module.buffers(), self.args.device)
        loss = self.splitter.run(inputs, run, self._start_again) if splits else run(inputs)
        # The loop adds the losses up over the whole run: a skipped one must not spoil the sum.
        if skips:
            loss = torch.nan_to_num(loss, nan=0.0, posinf=0.0, neginf=0.0)
        return loss

    def _start_again(self) -> None:
        """Undo the part of the step that is done, so that the step can be run once more."""
        assert self._step_start is not None
        self.module.zero_grad(set_to_none=True)
        self._step_start.restore_buffers()
        self._step_start.random.restore()
        self._sums = dict(self._sums_before_step)
        self.guard.forget_step()

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """Judge the step, and skip it if the policy says so.

        The loop calls this between the backward pass and the optimizer's step: the gradient is complete, and no weight
        has changed yet.
        """
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        # In float16 a loss scale finds its size by letting the gradient overflow now and then, and skips such steps
        # itself. Then only the losses of the step are judged, and not the norm.
        judged: Tensor | None = None
        if self.accelerator.scaler is None:
            judged = torch.as_tensor(norm)
        # The norm of sharded parameters is spread over the processes.
        if isinstance(judged, DTensor):
            judged = judged.full_tensor()
        is_bad = self.guard.settle(self.state.global_step + 1, judged, self._batches_of_step)
        if self.policy.on_bad_loss == "skip":
            self._skip_if(is_bad)
        return norm

    def _skip_if(self, is_bad: Tensor) -> None:
        """Make a bad step change no weights, buffers or sums; a good one stays as it is.

        The step still counts: the learning rate and the place in the data go on.

        Args:
            is_bad: Bool scalar on the device, true for a bad step.
        """
        assert self._step_start is not None
        # A fused optimizer can be told on the device to skip its step, by a flag. A loss scale uses that flag itself,
        # and optimizers of sharded parameters do not take it.
        is_flag_free = self.accelerator.scaler is None and not self.is_fsdp_enabled
        on_device = is_flag_free and takes_flag(self.optimizer)
        skip_update(self.optimizer, self.module, is_bad, on_device=on_device)
        self._step_start.restore_buffers(where=is_bad)

        # The step does not count in the means of the log: the sums over steps go back to what they were before it.
        self._steps_summed = self._steps_summed - is_bad.double()
        for name, total in list(self._sums.items()):
            before = self._sums_before_step.get(name, torch.zeros_like(total))
            self._sums[name] = torch.where(is_bad, before, total)

    def compute_loss(
        self, model: nn.Module, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Weigh and divide the terms of one micro-batch by the counts of its whole step.

        Args:
            model: The module, or its distributed wrapper: gradients are only synchronised through the wrapper.
            inputs: The micro-batch.
            return_outputs: Return the terms too.
            num_items_in_batch: The units of the whole step over all ranks; without it the batch is the whole.
        """
        outputs: dict[str, tuple[Tensor, Tensor]] = model(**without_marks(inputs))
        units = count_units(inputs).to(self.args.device)
        # An evaluation has no step, so that the batch is the whole.
        rank_count = 1
        if num_items_in_batch is not None:
            rank_count = self.args.world_size
        loss, shares = divide_loss(
            self.module.terms, outputs, units, units_of_step=num_items_in_batch, rank_count=rank_count
        )
        if self.model.training:
            for name, share in shares.items():
                self._sums[name] = share.double() + self._sums.get(name, 0.0)
            self.guard.note(shares)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add to a log the mean of every term over the steps since the last log, without skipped ones, and their loss.

        The loop's own mean of the loss is replaced. In a resumed run it would lack the steps between the last log and
        the checkpoint.
        """
        if "loss" in logs and self._sums:
            self.guard.check()
            del logs["loss"]
            logs |= self._mean_terms()
            self._sums = {}
            self._steps_summed = torch.zeros_like(self._steps_summed)
        logs = {name: value for name, value in logs.items() if name not in self._logged_elsewhere}
        logs |= {"tokens": float(self.tokens_seen), "seconds": self.seconds}
        # The loop's own mean over a training, which covers only the steps since the process was started.
        logs.pop("train_loss", None)
        release_freed_memory()  # Batches of changing length fragment the heap over a long run.
        super().log(logs, start_time)

    def _mean_terms(self) -> dict[str, float]:
        """Return the mean of every term over the steps since the last log, as `loss_TERM`, and their weighted sum.

        The last log of a stage may be of few steps, whose mean depends much on their batches. The steps of the log
        before are then averaged with them.

        Returns:
            The means, with the key `loss` for the sum; empty if all of these steps were skipped.
        """
        sums = self._sums_over_ranks()
        steps = float(self._steps_summed)
        if not steps:
            return {}
        summed = dict(sums)
        summed_steps = steps
        is_last_step = self.state.global_step >= self.state.max_steps
        if is_last_step and steps < self._logged_steps:
            summed_steps += self._logged_steps
            for name, total in self._logged_sums.items():
                summed[name] = summed.get(name, 0.0) + total
        self._logged_sums = sums
        self._logged_steps = steps

        logs: dict[str, float] = {}
        loss = 0.0
        terms = {term.name: term for term in self.module.terms}
        for name, total in sorted(summed.items()):
            term = terms[name]
            # Every rank has the whole of a gathered term, so the sum over ranks has it once for each rank.
            copies = 1
            if OBJECTIVES[term.objective].gathers_rows:
                copies = self.args.world_size
            mean = total / summed_steps / copies
            logs[f"loss_{name}"] = mean
            loss += term.weight * mean
        return {**logs, "loss": loss}

    def _sums_over_ranks(self) -> dict[str, float]:
        """Return the sums of all terms over all ranks, by name in sorted order; all ranks must call this together."""
        names = sorted(self._sums)
        if not names:
            return {}
        sums = sum_over_ranks(torch.stack([self._sums[name] for name in names])).tolist()
        return dict(zip(names, sums, strict=True))

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Measure on held-out rows; the time of this is none of the steps."""
        with self._clock.paused():
            return super().evaluate(*arguments, **options)

    def evaluation_loop(
        self, dataloader: DataLoader[Any], *arguments: Any, metric_key_prefix: str = "eval", **options: Any
    ) -> EvalLoopOutput:
        """Measure every term on held-out rows: totals and counts are summed, then divided once.

        If scores on development rows choose the best step, they are among the results too.
        """
        totals_and_counts, rows = self._sum_held_out(dataloader)
        values: dict[str, float] = {}
        for name, total_and_count in totals_and_counts.items():
            total, count = sum_over_ranks(total_and_count)
            values[name] = float(total / count.clamp(min=1))
        # Where no batch was read, no term has a value.
        values["loss"] = sum(term.weight * values[term.name] for term in self.module.terms if term.name in values)
        if self.score_task is not None and self.args.load_best_model_at_end:
            scores = on_main_rank(self.score_task)
            values |= scores
            # `DevelopmentScores` logs the scores itself, so `log` leaves them out.
            self._logged_elsewhere = {f"{metric_key_prefix}_{name}" for name in scores}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in values.items()}
        return EvalLoopOutput(predictions=(), label_ids=None, metrics=metrics, num_samples=rows)

    def _sum_held_out(self, dataloader: DataLoader[Any]) -> tuple[dict[str, Tensor], int]:
        """Run the module on the held-out rows of this process.

        Returns:
            For each term the sum of its totals and that of its counts, `[2]`; and the number of the rows.
        """
        # Before or after the training the loop has not wrapped the model for several processes.
        model = self.model_wrapped
        if not self.is_in_train:
            model = self.accelerator.prepare_model(self.model, evaluation_mode=True)
        was_training = model.training
        model.eval()
        self.module.set_course(self._course_of_last_step())
        rows = 0
        sums: dict[str, Tensor] = {}
        # A data loader draws a seed for its workers. Measuring must not move the random streams of the training.
        with self.activity("held-out loss") as tick, torch.no_grad(), torch.random.fork_rng(devices=[]):
            for number, batch in enumerate(dataloader, start=1):
                inputs = self._prepare_inputs(send_batch(batch, self.args.device))
                # Processes run the model together, so that one without rows gets a filler batch, which counts nothing.
                factor = 0 if FILLER in inputs else 1
                rows += factor * inputs["input_ids"].shape[0]
                for name, (total, count) in model(**without_marks(inputs)).items():
                    total_and_count = torch.stack([total.double(), count.double()]) * factor
                    if name in sums:
                        total_and_count = sums[name] + total_and_count
                    sums[name] = total_and_count
                tick(number, len(dataloader), "batches")
        model.train(was_training)
        return sums, rows

    def _maybe_log_save_evaluate(self, *arguments: Any, **options: Any) -> None:
        """Log, measure and save what is due after a step or an epoch; a measurement that a signal ends is noted."""
        try:
            super()._maybe_log_save_evaluate(*arguments, **options)
        except MeasurementLeftError:
            # The log is written already. The checkpoint is still to be saved.
            self.note_left("held_out")
            self.control.should_evaluate = False
            super()._maybe_log_save_evaluate(*arguments, **options)

    def save_last(self) -> None:
        """Save a checkpoint of the last step, unless there is one, or the student has the weights of a better step."""
        step = self.state.global_step
        steps_saved = [saved for saved, _ in checkpoints.all_checkpoints(self.checkpoints.folder)]
        has_weights_of_last_step = self.checkpoints.best_step in (None, step)
        if step not in steps_saved and has_weights_of_last_step:
            self._save_checkpoint(self.model, trial=None)

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Judge a measurement; the checkpoint of a new best step is always written."""
        is_best: bool = super()._determine_best_metric(metrics, trial)
        if is_best and self.args.load_best_model_at_end:
            self.checkpoints.best_step = self.state.global_step
            self.control.should_save = True
        return is_best

    def load_best(self) -> None:
        """Take the weights of the step with the best measurement, which may be the last one.

        Raises:
            OutputError: if its checkpoint is damaged.
        """
        best_step = self.checkpoints.best_step
        if best_step is None or best_step == self.state.global_step:
            return
        folder = self.checkpoints.folder / f"checkpoint-{best_step}"
        damage = on_main_rank(partial(find_damage, folder))
        if damage is not None:
            raise OutputError(
                f"The checkpoint '{folder}' of the best step is damaged: {damage}. Start the run again with "
                "--overwrite."
            )
        with loading(folder):
            load_weights(self.module, folder / WEIGHTS)

    def _load_callback_state(self) -> None:
        """Let early stopping count on; other callbacks begin anew."""
        restore_counts(self.callback_handler.callbacks, self.state)

    def _get_output_dir(self, trial: Any) -> str:
        """Return the folder for the files of a checkpoint: the staging folder while one is written."""
        return str(self.checkpoints.staging or super()._get_output_dir(trial))

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint aside, and make it visible when it is whole."""
        # `Checkpoints` knows the best step. If the loop knew it, it would wait for all processes at a barrier, for ever
        # if one of them failed. The path of a best checkpoint would be wrong, since it would name the staging folder.
        self.state.best_global_step = None
        write = partial(super()._save_checkpoint, model, trial)
        with self._clock.paused():
            self.checkpoints.write(self.state.global_step, write)
        self.state.best_model_checkpoint = None

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save optimizer and schedule; for a sharded module the loop would write a second copy of its weights too."""
        if not self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        plugin = self.accelerator.state.fsdp_plugin
        save_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or "")):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or "")):
            super()._load_scaler(checkpoint)

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the random streams, and beside them the position of a stream of text."""
        super()._save_rng_state(output_dir)
        self.loader.save_position(Path(output_dir))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load the random streams, and the position of a stream of text."""
        with loading(Path(checkpoint or "")):
            super()._load_rng_state(checkpoint)
        if checkpoint is not None:
            self.loader.load_position(Path(checkpoint))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save student and learned maps in one safetensors file; weights that share memory are stored once."""
        self.guard.check()
        # All processes take part in gathering what the main process writes.
        whole = whole_weights(self.module)
        sums_of_terms = self._sums_over_ranks()
        self.module.read_rows.merge()
        folder = Path(output_dir or self.args.output_dir)
        # If the main process cannot write, all fail here together. Otherwise the others would wait for it at the next
        # file of the checkpoint.
        on_main_rank(lambda: self._write(folder, whole, sums_of_terms))

    def _write(self, folder: Path, whole: dict[str, Tensor] | None, sums_of_terms: dict[str, float]) -> None:
        """Write weights and progress.

        Args:
            folder: The folder of the checkpoint.
            whole: The module's weights, if it is sharded.
            sums_of_terms: Sums of all terms since the last log, over all ranks.

        Raises:
            TrainingError: for a weight that is not finite.
        """
        folder.mkdir(parents=True, exist_ok=True)
        weights = self.module.parameters() if whole is None else whole.values()
        if not all(bool(tensor.isfinite().all()) for tensor in weights):
            raise TrainingError(
                f"A weight is not finite at step {self.state.global_step}; the run stopped without saving "
                "it. Lower the stage's training.learning_rate, and start again with --overwrite or in another folder."
            )
        save_weights(self.module, folder / WEIGHTS, whole)
        progress = {
            "tokens_seen": float(self.tokens_seen),
            "tokens_by_length": self.tokens_by_length.tolist(),
            "seconds": self.seconds,
            "sums": sums_of_terms,
            "steps_summed": float(self._steps_summed),
            "logged_sums": self._logged_sums,
            "logged_steps": self._logged_steps,
            "unread": self.module.read_rows.unread(),
            "guard": self.guard.state(),
            "rows_of_a_piece": self.splitter.rows,
            "best_step": self.checkpoints.best_step,
            "measurements_left": self.measurements_left,
        }
        (folder / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")

    def restore(self, checkpoint: Path) -> None:
        """Take the weights and the history of a checkpoint without training on."""
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        # A resumed run may have fewer steps than it began with.
        if self.args.max_steps > 0:
            self.state.max_steps = self.args.max_steps
        # No batch is read, but the record of the stage describes the rows that this loader drew.
        self.get_train_dataloader()
        self.loader.load_position(checkpoint)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Load the weights and the counts of a checkpoint; every tensor must be there."""
        folder = Path(resume_from_checkpoint)
        with loading(folder):
            load_weights(self.module, folder / WEIGHTS)
            progress = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
            tokens = float(progress["tokens_seen"])
            self.tokens_seen.fill_(tokens)
            # Checkpoints of earlier versions have no tokens by length, no seconds, and no sums of the last log.
            by_length = progress.get("tokens_by_length", [tokens])
            self.tokens_by_length.copy_(self.tokens_seen.new_tensor(by_length))
            self._clock.go_on_from(float(progress.get("seconds", 0.0)))
            self._tokens_without_seconds = 0.0 if "seconds" in progress else tokens
            self._steps_summed.fill_(progress["steps_summed"])
            # The saved sums are over all processes and will be summed again, so only the main process takes them.
            share = 1.0 if self.args.process_index == 0 else 0.0
            self._sums = {name: self.tokens_seen.new_tensor(share * total) for name, total in progress["sums"].items()}
            self._logged_sums = progress.get("logged_sums", {})
            self._logged_steps = float(progress.get("logged_steps", 0.0))
            self.module.read_rows.load(progress.get("unread"))
            self.guard.load(progress["guard"])
            self.splitter.rows = progress["rows_of_a_piece"]
            self.checkpoints.best_step = progress.get("best_step")
