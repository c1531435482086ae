"""A training step on random batches: taken whole or part by part, with its operations and the bytes that it moves.

A step reads one or more *micro-batches*, whose gradients add up, and then updates the weights once. A *stream* is a
tensor that a model computes, such as the output of a layer. A *term* is one part of the loss; it is divided by the
number of its *units* in the whole step, which are tokens, samples or labels.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from limbeck.benchmark.operations import forward_cost, loss_operations
from limbeck.benchmark.step_batch import make_batch
from limbeck.benchmark.step_setup import StepSetup
from limbeck.core.devices import synchronise
from limbeck.core.memory import keep_freed_memory
from limbeck.corpus.batches.batch import read_batch
from limbeck.models.families import base_model, family_of
from limbeck.models.packed_rows import RowStreams
from limbeck.models.packing import send_batch
from limbeck.models.streams import Streams
from limbeck.models.students import build_student
from limbeck.models.taps import StreamTap
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.freezing import freeze_unreached
from limbeck.training.module import DistillationModule
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.trainer import DistillationTrainer
from limbeck.training.units import UNITS, count_units, sum_units

PARTS = ("teacher forward", "student forward", "loss", "student backward", "optimizer")
"""Parts of a step, in their order. `loss` includes its own backward pass, down to the student's streams."""
_PROBE_ROWS = 2
"""Rows of a small batch, on which a backward pass shows the parameters that the loss reaches."""
# Passes over memory of the size of the trained weights; see `Step.optimizer_bytes`.
_ADAMW_PASSES = 7
_CLIPPING_PASSES = 3
_MIXED_PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The formats of products by the names that accelerate has for them; without mixed precision it is float32."""


@dataclass(frozen=True)
class PartOperations:
    """The operations of a part of a step.

    Args:
        count: Number of multiplications and additions of its matrix products.
        dtype: The number format that the products are computed in.
    """

    count: int
    dtype: torch.dtype


class Step:
    """A teacher, a student and an optimizer that take training steps on random batches, from random weights.

    Args:
        setup: The models, the terms of the loss and the training arguments.
    """

    def __init__(self, setup: StepSetup) -> None:
        # Memory that is freed is kept for the next step, as in a run.
        keep_freed_memory()
        self.setup = setup
        self.module, self._teacher_tap = _build_module(setup)
        batches = [make_batch(setup, index) for index in range(setup.micro_batches)]
        # As in a run, parameters that the loss does not reach are frozen. A few rows are enough to find them.
        few_rows = {name: tensor[:_PROBE_ROWS] for name, tensor in batches[0].items()}
        freeze_unreached(self.module, few_rows)

        # The trainer provides accelerator, loss and optimizer. Its training loop, which writes into the folder, is
        # never run.
        with TemporaryDirectory() as folder:
            arguments = build_arguments(setup.training, output=folder, seed=0, evaluates=False)
            self.trainer = DistillationTrainer(self.module, args=arguments)
        # In a run, the loop sets this. With 1, the loss is not divided by the number of micro-batches, since the units
        # of the whole step divide it.
        self.trainer.current_gradient_accumulation_steps = 1
        self.device = torch.device(arguments.device)
        self.batches = [send_batch(batch, self.device) for batch in batches]
        accelerator = self.trainer.accelerator
        self.model, self.optimizer = accelerator.prepare(self.module, self.trainer.create_optimizer())
        self.student_dtype = _MIXED_PRECISIONS.get(accelerator.mixed_precision, torch.float32)

    @property
    def lengths(self) -> list[int]:
        """Valid tokens of every sample of the step."""
        lengths: list[int] = []
        for batch in self.batches:
            lengths += batch["attention_mask"].sum(1).tolist()
        return lengths

    @property
    def tokens(self) -> int:
        """Valid tokens of the step."""
        return sum(self.lengths)

    @property
    def padding_share(self) -> float:
        """Share of padding among the tokens of the step, padding included."""
        all_tokens = sum(batch["input_ids"].numel() for batch in self.batches)
        return 1 - self.tokens / all_tokens

    def run(self) -> None:
        """Take one step as a run does."""
        units = self._units()
        for batch in self.batches:
            self.trainer.training_step(self.model, dict(batch), units)
        self._update()

    def run_parts(self) -> dict[str, float]:
        """Take one step part by part; each part is timed until the device has finished its work.

        Returns:
            The seconds of each of `PARTS`.
        """
        seconds_by_part = dict.fromkeys(PARTS, 0.0)
        self.module.train()
        units = self._units()
        for batch in self.batches:
            self._run_micro_batch(batch, units, seconds_by_part)
        with self._clock(seconds_by_part, "optimizer"):
            self._update()
        return seconds_by_part

    def operations(self) -> dict[str, PartOperations]:
        """Count the operations of each part; see `limbeck.benchmark.operations`.

        Returns:
            The operations of each of `PARTS`.
        """
        student = forward_cost(self.module.student_tap, self.setup.student_shape)
        teacher = forward_cost(self._teacher_tap, self.setup.teacher_shape)

        # Scores over the vocabulary (logits) are products of the models' forward passes. If they would take too much
        # memory, the models leave them out, and the loss computes them in chunks from hidden vectors.
        scored_tokens = 0
        operations_from_hidden = 0
        for batch in self.batches:
            # The tokens whose scores are read; None for all, padding included.
            mask = self.module.scored_tokens(read_batch(batch))
            computed_tokens = batch["input_ids"].numel() if mask is None else int(mask.sum())
            if self.module.student_tap.leaves_unmade(computed_tokens):
                operations_from_hidden += self._operations_from_hidden(batch, student.decoder, teacher.decoder)
            else:
                # Padding is scored too where no mask leaves it out, but only valid tokens count as work.
                valid_scored = batch["attention_mask"] if mask is None else mask
                scored_tokens += int(valid_scored.sum())
        # Losses are computed in float32, but scores in the format of the student.
        loss_dtype = self.student_dtype if operations_from_hidden else torch.float32
        loss_count = operations_from_hidden
        for term in self.setup.terms:
            loss_count += loss_operations(term, self.setup.student_shape, self.setup.teacher_shape, self.lengths)

        student_forward = student.operations(self.lengths, scored_tokens)
        teacher_forward = teacher.operations(self.lengths, scored_tokens)
        return {
            "teacher forward": PartOperations(teacher_forward, self.setup.teacher_dtype),
            "student forward": PartOperations(student_forward, self.student_dtype),
            "loss": PartOperations(loss_count, loss_dtype),
            "student backward": PartOperations(2 * student_forward, self.student_dtype),
            "optimizer": PartOperations(0, torch.float32),
        }

    def _operations_from_hidden(self, batch: Mapping[str, Tensor], student_decoder: int, teacher_decoder: int) -> int:
        """Count the operations of terms that compute the scores over the vocabulary themselves, in one micro-batch.

        Args:
            batch: The micro-batch.
            student_decoder: Entries of the student's matrix that gives the scores.
            teacher_decoder: Entries of the teacher's.
        """
        # `count_units` counts in the order of `UNITS`.
        count_by_unit = dict(zip(UNITS, count_units(batch).long().tolist(), strict=True))
        operations = 0
        for term in self.setup.terms:
            if not term.reads_logits:
                continue
            # The student has three products: the scores, the gradient of the hidden vectors, and that of the matrix.
            entries = 3 * student_decoder
            if term.teacher:
                entries += teacher_decoder
            operations += 2 * count_by_unit[term.unit] * entries
        return operations

    def optimizer_bytes(self) -> int:
        """Count the bytes that the update has to move.

        For every trained weight, AdamW reads the weight, the gradient and two moments, and writes all but the gradient:
        7 passes, or 28 bytes in float32. Clipping reads the gradient for its norm, then reads and writes it to scale
        it: 3 passes, or 12 bytes more.
        """
        trained_bytes = 0
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                trained_bytes += parameter.numel() * parameter.element_size()
        passes = _ADAMW_PASSES
        if self.trainer.args.max_grad_norm:
            passes += _CLIPPING_PASSES
        return trained_bytes * passes

    def _units(self) -> Tensor:
        """Count the units of the whole step, a number for each of `UNITS`; each term is divided by that of its unit."""
        return sum_units(self.batches).to(self.device)

    def _run_micro_batch(self, batch: Mapping[str, Tensor], units: Tensor, seconds_by_part: dict[str, float]) -> None:
        """Take the forward and backward passes of a micro-batch, and add their seconds to those of the parts.

        Args:
            batch: The micro-batch.
            units: The units of the whole step.
            seconds_by_part: The seconds of each part so far; they are changed in place.
        """
        module = self.module
        sides = read_batch(batch)
        scored = module.scored_tokens(sides)
        with self._clock(seconds_by_part, "teacher forward"):
            teacher_streams = module.teaching.read(sides, scored)
        with self._clock(seconds_by_part, "student forward"), self.trainer.accelerator.autocast():
            student_streams = module.student_tap(**sides.student, scored=scored)

        # The loss is computed on copies of the streams that are cut off from the student's graph. So its backward pass
        # ends at these copies, and is timed apart from the student's.
        student_tensors = _tensors(student_streams)
        leaves = _detached(student_streams)
        # The tensors are listed here, since `compute_terms` adds streams that it derives from these.
        leaf_tensors = _tensors(leaves)
        with self._clock(seconds_by_part, "loss"):
            terms = module.compute_terms(sides, leaves, teacher_streams)
            # The trainer calls a model to get the terms, which are known here already.
            stand_in = _model_that_returns(terms)
            loss = self.trainer.compute_loss(stand_in, batch, num_items_in_batch=units)
            # In float16, the loss is scaled up so that small gradients do not become 0.
            scaler = getattr(self.trainer.accelerator, "scaler", None)
            if scaler is not None:
                loss = scaler.scale(loss)
            loss.backward()

        # The student's backward pass begins with the gradients of the copies. Streams that no term reads have none.
        tensors = []
        gradients = []
        for tensor, leaf in zip(student_tensors, leaf_tensors, strict=True):
            if leaf.grad is not None:
                tensors.append(tensor)
                gradients.append(leaf.grad)
        with self._clock(seconds_by_part, "student backward"):
            torch.autograd.backward(tensors, gradients)

    def _update(self) -> None:
        """Clip the gradients, and take the optimizer's step."""
        max_norm = self.trainer.args.max_grad_norm
        if max_norm:
            self.trainer.accelerator.clip_grad_norm_(self.module.parameters(), max_norm)
        self.optimizer.step()
        self.model.zero_grad()

    @contextmanager
    def _clock(self, seconds_by_part: dict[str, float], part: str) -> Iterator[None]:
        """Add the seconds of the `with` block to those of a part, until the device has finished its work."""
        synchronise(self.device)
        start = time.perf_counter()
        yield
        synchronise(self.device)
        seconds_by_part[part] += time.perf_counter() - start


def _build_module(setup: StepSetup) -> tuple[DistillationModule, StreamTap]:
    """Build the module of a teacher and a student with random weights; return it with the tap on the teacher."""
    teacher = build_student(setup.teacher, seed=1, head=setup.teacher_head).to(setup.teacher_dtype)
    teaching = LiveTeaching(teacher, setup.terms, pooling=setup.teacher_sentence_head)
    student = build_student(setup.student, seed=0, head=setup.student_head)
    if setup.freeze_embeddings:
        for path in family_of(student.config).embeddings:
            base_model(student).get_submodule(path).requires_grad_(False)
    return DistillationModule(student, teaching, setup.terms, pooling=setup.student_sentence_head), teaching.tap


def _model_that_returns(terms: dict[str, tuple[Tensor, Tensor]]) -> Any:
    """Return a stand-in for the model in `compute_loss`, which calls it on the batch and takes its output for terms."""

    def forward(**_batch: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        return terms

    return forward


def _detached(streams: Streams) -> Streams:
    """Return the same streams as leaves of the graph: a backward pass ends at them, and leaves its gradients there."""
    # Streams of packed rows, which have no padding, know how to change all of their tensors.
    if isinstance(streams, RowStreams):
        return streams.changed(_leaf)
    return {key: _leaf(tensor) for key, tensor in streams.items()}


def _leaf(tensor: Tensor) -> Tensor:
    """Return the same numbers as a leaf of the graph."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _tensors(streams: Streams) -> list[Tensor]:
    """Return the tensors of all streams, in an order that is the same for `_detached` streams."""
    if isinstance(streams, RowStreams):
        return streams.tensors()
    return list(streams.values())
