"""`DistillationTrainer`: transformers' loop, with the one place where losses are divided."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import EvalLoopOutput

from limbeck.errors import TrainingError
from limbeck.host_memory import release_freed_memory
from limbeck.objectives.registry import OBJECTIVES
from limbeck.training.finite import FiniteGuard
from limbeck.training.module import DistillationModule
from limbeck.training.sampling import EpochSetter, LengthGroupedSampler
from limbeck.training.units import UNITS, count_units, sum_units

WEIGHTS = "model.safetensors"
PROGRESS = "progress.json"


class DistillationTrainer(Trainer):
    """Trains a `DistillationModule`.

    For every optimizer step and every term the loss is `weight * sum of totals / sum of counts`, over all
    micro-batches and ranks: a batch of 8 and 8 batches of 1 give the same gradient. Counts follow from the batch
    alone, so the divisors are known before the first backward.
    """

    # transformers 5 models take **kwargs, from which the Trainer would conclude that it may scale the loss itself.
    model_accepts_loss_kwargs = False
    loss_is_scaled_for_ga = True

    def __init__(self, model: DistillationModule, **arguments: Any) -> None:
        super().__init__(model=model, **arguments)
        self.model_accepts_loss_kwargs = False
        self.module = model
        self.module.move_teacher(self.args.device, pack=not self.args.torch_compile)
        self.guard = FiniteGuard([term.name for term in model.terms])
        self.tokens_seen = torch.zeros((), dtype=torch.float64, device=self.args.device)
        self._tokens_before = 0.0
        self._sums: dict[str, Tensor] = {}
        self._steps_summed = 0

    @property
    def tokens_this_run(self) -> float:
        """Valid tokens trained on since this process started or resumed."""
        return float(self.tokens_seen) - self._tokens_before

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:
        """Sample blocks of similar length together; see `LengthGroupedSampler`."""
        dataset = self.train_dataset if train_dataset is None else train_dataset
        rows = self.args.train_batch_size * self.args.world_size
        sampler = LengthGroupedSampler(dataset["length"][:], rows, self.args.seed)
        changing = [dataset] if hasattr(dataset, "set_epoch") else []
        self.add_callback(EpochSetter(sampler, *changing))
        return sampler

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Fetch the micro-batches of one step, and count their units over all ranks."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        window = sum_units(batches).to(device)
        if self.args.world_size > 1:
            window = self.accelerator.reduce(window, reduction="sum")
        self.tokens_seen += window[0]
        self._steps_summed += 1
        return batches, window

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Weigh and divide the terms of one micro-batch by the counts of its whole step.

        Args:
            model: The module, or its distributed wrapper: gradients are only synchronised through the wrapper.
            inputs: The micro-batch.
            return_outputs: Return the terms too.
            num_items_in_batch: The units of the whole step over all ranks; without it the batch is the whole.
        """
        outputs: dict[str, tuple[Tensor, Tensor]] = model(**inputs)
        units = count_units(inputs).to(self.args.device)
        window = units if num_items_in_batch is None else num_items_in_batch
        ranks = 1 if num_items_in_batch is None else self.args.world_size
        loss = torch.zeros((), device=self.args.device)
        shares = {}
        for term in self.module.terms:
            total, count = outputs[term.name]
            objective = OBJECTIVES[term.objective]
            # count = constant x units, so mean x (units here / units of the step) is total / (count of the step).
            unit = UNITS.index(term.unit)
            share = total / count.clamp(min=1)
            if not objective.batch_coupled:
                share = share * (units[unit] / window[unit].clamp(min=1)).to(share.dtype)
            shares[term.name] = share.detach()
            # Gradients are averaged over ranks; a gathered term's backward has summed them already.
            loss = loss + term.weight * share * (1 if objective.batch_coupled else ranks)
        if self.model.training:
            self._note(shares)
        return (loss, outputs) if return_outputs else loss

    def _note(self, shares: dict[str, Tensor]) -> None:
        """Add to the running sums of the log, on the device."""
        for name, share in shares.items():
            self._sums[name] = self._sums[name] + share if name in self._sums else share
        self.guard.note(self.state.global_step + 1, shares)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the mean of every term since the last log, after making sure that all are finite."""
        if "loss" in logs and self._sums:
            self.guard.check()
            sums = torch.stack([self._sums[name] for name in sorted(self._sums)])
            if self.args.world_size > 1:
                sums = self.accelerator.reduce(sums, reduction="sum")
            for name, value in zip(sorted(self._sums), sums.tolist(), strict=True):
                coupled = next(t for t in self.module.terms if t.name == name).batch_coupled
                ranks = self.args.world_size if coupled else 1
                logs[f"loss_{name}"] = value / self._steps_summed / ranks
            logs["tokens"] = float(self.tokens_seen)
            self._sums, self._steps_summed = {}, 0
        release_freed_memory()  # Or gaps between blocks of ever other sizes would add up over a long run.
        super().log(logs, start_time)

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Measure every term on held-out blocks: totals and counts are summed, then divided once."""
        model = (
            self.model_wrapped if self.is_in_train else self.accelerator.prepare_model(self.model, evaluation_mode=True)
        )
        was_training = model.training
        model.eval()
        sums: dict[str, Tensor] = {}
        rows = 0
        # A data loader draws a seed: measuring must not change what is drawn in training.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for batch in dataloader:
                inputs = self._prepare_inputs(batch)
                rows += inputs["input_ids"].shape[0]
                for name, (total, count) in model(**inputs).items():
                    pair = torch.stack([total.double(), count.double()])
                    sums[name] = sums[name] + pair if name in sums else pair
        model.train(was_training)
        weights = {term.name: term.weight for term in self.module.terms}
        metrics = {}
        for name, pair in sums.items():
            if self.args.world_size > 1:
                pair = self.accelerator.reduce(pair, reduction="sum")
            metrics[f"{metric_key_prefix}_{name}"] = float(pair[0] / pair[1].clamp(min=1))
        metrics[f"{metric_key_prefix}_loss"] = sum(
            weights[name] * metrics[f"{metric_key_prefix}_{name}"] for name in sums
        )
        return EvalLoopOutput(predictions=(), label_ids=None, metrics=metrics, num_samples=rows)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save student and learned maps in one safetensors file; weights that share memory are stored once."""
        if not self.args.should_save:
            return
        self.guard.check()
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        if not all(bool(parameter.isfinite().all()) for parameter in self.module.parameters()):
            raise TrainingError(
                f"A weight is not finite at step {self.state.global_step}; the run stopped without saving "
                "it. Lower the stage's training.learning_rate, and start again with --overwrite or in another folder."
            )
        save_model(self.module, str(folder / WEIGHTS), metadata={"format": "pt"})
        progress = {"tokens_seen": float(self.tokens_seen)}
        (folder / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")

    def take_up(self, checkpoint: Path) -> None:
        """Take the weights and the history of a checkpoint without training on."""
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Load what `_save` wrote; every tensor must be there."""
        folder = Path(resume_from_checkpoint)
        load_model(self.module, str(folder / WEIGHTS), strict=True)
        self._tokens_before = float(json.loads((folder / PROGRESS).read_text(encoding="utf-8"))["tokens_seen"])
        self.tokens_seen.fill_(self._tokens_before)
