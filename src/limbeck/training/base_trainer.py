"""`AtomicTrainer`: transformers' loop, with checkpoints that are there whole or not at all."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import save_fsdp_optimizer
from torch import nn
from torch.utils.data import DataLoader, Sampler
from transformers import Trainer
from transformers.trainer import SCHEDULER_NAME
from transformers.trainer_utils import seed_worker

from limbeck.core.ranks import on_all_ranks, on_main_rank, raised_on_all_ranks
from limbeck.errors import TrainingError
from limbeck.training.checkpoints import (
    keep_newest,
    loading,
    prepare_staging,
    publish,
    remove_leftovers,
    saving,
    seal,
    staging_of,
    training_facts,
)
from limbeck.training.data import (
    EpochSetter,
    FillingCollator,
    LengthGroupedSampler,
    SharedBatches,
    dealt_batches,
    make_sampler,
)


class AtomicTrainer(Trainer):
    """Lets the loop write a checkpoint aside, then seals it and makes it visible by one rename.

    What the loop writes with pickle (optimizer, schedule, random streams, loss scale) it reads with `weights_only`,
    which takes tensors and plain values and runs no code.
    """

    _staging: Path | None = None

    def _get_output_dir(self, trial: Any) -> str:
        """Where checkpoints go: aside, while one is written."""
        return super()._get_output_dir(trial) if self._staging is None else str(self._staging)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint, and once it is visible remove those that are too many."""
        folder, step = Path(self.args.output_dir), self.state.global_step
        save = super()._save_checkpoint

        def prepare() -> None:
            with self._saving():
                prepare_staging(folder)

        def write() -> None:
            self.state.best_global_step = None  # Processes would meet at a barrier for it, which an error passes by.
            with self._saving():
                save(model, trial)

        def show() -> None:
            with self._saving():
                grown = staging_of(folder) / f"checkpoint-{step}"
                seal(grown, {"step": step, **training_facts(self.args)})
                publish(grown, folder)
                keep_newest(folder, step, self.args.save_total_limit)

        try:
            on_main_rank(prepare)
            self._staging = staging_of(folder)
            on_all_ranks(write)
            self.state.best_model_checkpoint = None  # It would name the place aside; none is kept for its metric.
            on_main_rank(show)
        except TrainingError:
            if self.args.should_save:
                remove_leftovers(folder)  # So that a full disk has room again for the record.
            raise
        finally:
            self._staging = None

    def _saving(self) -> AbstractContextManager[None]:
        return saving(f"The checkpoint of step {self.state.global_step}", Path(self.args.output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or "")):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or "")):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or "")):
            super()._load_rng_state(checkpoint)


# `ShardedTrainer`: data loaders whose batches do not depend on how many processes share them.


class ShardedTrainer(AtomicTrainer):
    """A trainer whose steps have the same rows with any number of processes and micro-batches.

    What makes a step is its number of rows: 8 in one process are 4 in two, or 2 micro-batches of 4. Batches come from
    here as they are on the host; `DistillationTrainer` moves them.
    """

    train_sampler: LengthGroupedSampler | None = None

    @property
    def rows_a_step(self) -> int:
        """Rows of an optimizer step, over its micro-batches and all processes."""
        return self.args.train_batch_size * self.args.world_size * self.args.gradient_accumulation_steps

    @property
    def drops_last(self) -> bool:
        """Whether an epoch ends with its last full batch."""
        return self.args.dataloader_drop_last

    def get_train_dataloader(self) -> Any:
        """Load the rows to train on, those of this process."""
        batches = SharedBatches(
            self._get_train_sampler(self.train_dataset),
            self.args.train_batch_size,
            index=self.args.process_index,
            count=self.args.world_size,
            drop_last=self.drops_last,
        )
        if len(batches) == 0:
            raise raised_on_all_ranks(
                TrainingError(
                    f"The stage would train no step: {len(self.train_dataset)} rows make no batch of "
                    f"{self.args.train_batch_size * self.args.world_size}; lower per_device_train_batch_size or leave "
                    "out dataloader_drop_last."
                )
            )
        seeded = partial(seed_worker, num_workers=self.args.dataloader_num_workers, rank=self.args.process_index)
        return self._load(self.train_dataset, batches, worker_init_fn=seeded)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Load the rows to measure on, those of this process."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        index, count = self.args.process_index, self.args.world_size
        return self._load(rows, dealt_batches(len(rows), self.args.eval_batch_size, index=index, count=count))

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        """Sample blocks of similar length together; see `LengthGroupedSampler`."""
        rows = self.train_dataset if train_dataset is None else train_dataset
        sampler = self.train_sampler = make_sampler(rows, self.rows_a_step, self.args.seed)
        changing = [rows] if hasattr(rows, "set_epoch") else []
        self.add_callback(EpochSetter(sampler, *changing))
        return sampler

    def _prepare_for_training(self, *arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            # Its successor is not among the arguments that transformers takes.
            warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
            return super()._prepare_for_training(*arguments, **options)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Leave out the second copy of sharded weights that the loop would write, with pickle."""
        if not self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        plugin = self.accelerator.state.fsdp_plugin
        save_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _load(self, rows: Any, batches: Any, **options: Any) -> DataLoader[Any]:
        return DataLoader(
            rows,
            batch_sampler=batches,
            collate_fn=FillingCollator(self.data_collator, rows),
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            multiprocessing_context=self.args.dataloader_multiprocessing_context,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            # Of its own, so that the workers' seeds are not drawn from the stream of dropout.
            generator=torch.Generator(),
            **options,
        )
