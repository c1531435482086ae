"""A real optimizer step, whole or part by part, as the trainer takes it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from limbeck.benchmark.memory import Peak, watch_peak
from limbeck.benchmark.operations import forward_cost, loss_operations
from limbeck.benchmark.step_setup import StepRequest, StepSetup, make_batch, set_up_step
from limbeck.core.machine import choose_device, keep_freed_memory, synchronise
from limbeck.models.blueprint import build_student
from limbeck.models.families import base_model, family_of
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.module import DistillationModule, freeze_unreached, sum_units
from limbeck.training.trainer import DistillationTrainer

PARTS = ("teacher forward", "student forward", "loss", "student backward", "optimizer")
_PROBE_ROWS = 2


class Step:
    """Takes optimizer steps on random batches, from random weights.

    Args:
        setup: What is trained, and how.
    """

    def __init__(self, setup: StepSetup) -> None:
        keep_freed_memory()  # As a run does.
        self.setup = setup
        teacher = build_student(setup.teacher, seed=setup.seed + 1, head=setup.teacher_head).to(setup.teacher_dtype)
        student = build_student(setup.student, seed=setup.seed, head=setup.student_head)
        if setup.freeze_embeddings:
            for path in family_of(student.config).embeddings:
                base_model(student).get_submodule(path).requires_grad_(False)
        self.module = DistillationModule(student, teacher, setup.terms, pooling=setup.pooling)
        batches = [make_batch(setup, index) for index in range(setup.micro_batches)]
        freeze_unreached(self.module, {name: x[:_PROBE_ROWS] for name, x in batches[0].items()})
        with TemporaryDirectory() as folder:
            arguments = build_arguments(setup.training, output=folder, seed=setup.seed, evaluates=False)
            self.trainer = DistillationTrainer(self.module, args=arguments)
        self.device = torch.device(arguments.device)
        self.batches = [{name: x.to(self.device) for name, x in batch.items()} for batch in batches]
        accelerator = self.trainer.accelerator
        self.model, self.optimizer = accelerator.prepare(self.module, self.trainer.create_optimizer())
        self.student_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(
            accelerator.mixed_precision, torch.float32
        )

    @property
    def lengths(self) -> list[int]:
        """Valid tokens of every sample of the step."""
        return [int(n) for batch in self.batches for n in batch["attention_mask"].sum(1).tolist()]

    @property
    def tokens(self) -> int:
        """Valid tokens of the step."""
        return sum(self.lengths)

    @property
    def padding_share(self) -> float:
        """Share of padding, 0 to below 1."""
        return 1 - self.tokens / sum(batch["input_ids"].numel() for batch in self.batches)

    def run(self) -> None:
        """Take one step."""
        window = sum_units(self.batches).to(self.device)
        for batch in self.batches:
            self.trainer.training_step(self.model, dict(batch), window)
        self._update()

    def run_parts(self) -> dict[str, float]:
        """Take one step part by part, the device waited for after each.

        Returns:
            The seconds of each of `PARTS`.
        """
        spent = dict.fromkeys(PARTS, 0.0)
        self.module.train()
        window = sum_units(self.batches).to(self.device)
        for batch in self.batches:
            self._run_micro_batch(batch, window, spent)
        with self._clock(spent, "optimizer"):
            self._update()
        return spent

    def operations(self) -> dict[str, tuple[int, torch.dtype]]:
        """Count the operations of each part; see `operations.py`.

        Returns:
            For each of `PARTS` the operations of the step, and the format that its products are computed in.
        """
        (student, teacher), lengths = self.setup.shapes, self.lengths
        masks = [self.module.scored_tokens(batch.get("labels")) for batch in self.batches]
        scored = sum(
            int((batch["attention_mask"] if mask is None else mask).sum())
            for batch, mask in zip(self.batches, masks, strict=True)
        )
        forward, read = (
            forward_cost(tap, shape).operations(lengths, scored)
            for tap, shape in zip(self.module.taps, (student, teacher), strict=True)
        )
        loss = sum(loss_operations(term, student, teacher, lengths) for term in self.setup.terms)
        return {
            "teacher forward": (read, self.setup.teacher_dtype),
            "student forward": (forward, self.student_dtype),
            "loss": (loss, torch.float32),
            "student backward": (2 * forward, self.student_dtype),
            "optimizer": (0, torch.float32),
        }

    def optimizer_bytes(self) -> int:
        """Count the bytes that the update has to move.

        AdamW reads weight, gradient and two moments of every trained number and writes all but the gradient, 28 bytes;
        clipping reads the gradient once for its norm and once to scale it, which writes it, 12 bytes more.
        """
        trained = sum(p.numel() * p.element_size() for p in self.module.parameters() if p.requires_grad)
        return trained * (7 + (3 if self.trainer.args.max_grad_norm else 0))

    def _run_micro_batch(self, batch: Mapping[str, Tensor], window: Tensor, spent: dict[str, float]) -> None:
        labels, module = batch.get("labels"), self.module
        inputs = {name: x for name, x in batch.items() if name != "labels"}
        with self._clock(spent, "teacher forward"):
            teacher = module.read_teacher(**inputs, scored=module.scored_tokens(labels))
        with self._clock(spent, "student forward"), self.trainer.accelerator.autocast():
            student = module.read_student(**inputs, scored=module.scored_tokens(labels))
        # The loss ends at the streams, so that its gradient is told from the student's.
        cut = {key: x.detach().requires_grad_(x.requires_grad) for key, x in student.items()}
        with self._clock(spent, "loss"):
            terms = module.compute_terms(cut, teacher, batch["attention_mask"], labels)
            given: Any = lambda **_: terms  # noqa: E731 - stands in for the model
            loss = self.trainer.compute_loss(given, batch, num_items_in_batch=window)
            scaler = getattr(self.trainer.accelerator, "scaler", None)
            (loss if scaler is None else scaler.scale(loss)).backward()
        reached = [(x, cut[key].grad) for key, x in student.items() if cut[key].grad is not None]
        with self._clock(spent, "student backward"):
            torch.autograd.backward([x for x, _ in reached], [grad for _, grad in reached])

    def _update(self) -> None:
        most = self.trainer.args.max_grad_norm
        if most:
            self.trainer.accelerator.clip_grad_norm_(self.module.parameters(), most)
        self.optimizer.step()
        self.model.zero_grad()

    @contextmanager
    def _clock(self, spent: dict[str, float], part: str) -> Iterator[None]:
        synchronise(self.device)
        start = time.perf_counter()
        yield
        synchronise(self.device)
        spent[part] += time.perf_counter() - start


def peak_of(spec: Mapping[str, Any]) -> Peak:
    """Measure the peak memory of two steps: the second has the optimizer's state.

    Weights, optimizer state and activations count, and on a CPU what is loaded on the way.

    Args:
        spec: The fields of `StepRequest`.
    """
    request = StepRequest(**spec)
    setup = set_up_step(request)

    def run() -> None:
        step = Step(setup)
        step.run()
        step.run()

    return watch_peak(run, choose_device(request.device))
