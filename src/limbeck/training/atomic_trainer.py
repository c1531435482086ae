"""`AtomicTrainer`: transformers' loop, with checkpoints that are there whole or not at all."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from torch import nn
from transformers import Trainer

from limbeck.core.ranks import everywhere, from_main
from limbeck.errors import TrainingError
from limbeck.training.checkpoint_facts import training_facts
from limbeck.training.checkpoint_files import prepare_staging, publish, seal, staging_of
from limbeck.training.checkpoints import keep_newest, remove_leftovers
from limbeck.training.saving import loading, saving


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
            from_main(prepare)
            self._staging = staging_of(folder)
            everywhere(write)
            self.state.best_model_checkpoint = None  # It would name the place aside; none is kept for its metric.
            from_main(show)
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
