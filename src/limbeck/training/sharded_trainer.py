"""`ShardedTrainer`: data loaders whose batches do not depend on how many processes share them."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import save_fsdp_optimizer
from torch.utils.data import DataLoader, Sampler
from transformers.trainer import SCHEDULER_NAME
from transformers.trainer_utils import seed_worker

from limbeck.core.ranks import same_everywhere
from limbeck.errors import TrainingError
from limbeck.training.atomic_trainer import AtomicTrainer
from limbeck.training.sampling import EpochSetter, LengthGroupedSampler, make_sampler
from limbeck.training.sharding import FillingCollator, SharedBatches, dealt_batches


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
            raise same_everywhere(
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
