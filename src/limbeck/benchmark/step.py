"""A training step on random batches: taken whole or part by part, with its operations and the bytes that it moves."""

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
"""Parts of a step, in the order in which they are done."""
_PROBE_ROWS = 2
"""Rows of the batch on which it is found which parameters the loss reaches."""
# Reads and writes of as many bytes as the trained weights have; see `Step.optimizer_bytes`.
_ADAMW_PASSES = 7
_CLIPPING_PASSES = 3
_MIXED_PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class PartOperations:
    """The operations of a part of a step.

    Args:
        count: Multiplications and additions of its matrix products.
        dtype: The format that the products are computed in.
    """

    count: int
    dtype: torch.dtype


class Step:
    """Takes optimizer steps on random batches, from random weights.

    Args:
        setup: The models, the terms and the training arguments.
    """

    def __init__(self, setup: StepSetup) -> None:
        # Memory that is freed is kept for the next step, as in a run.
        keep_freed_memory()
        self.setup = setup
        self.module, self._teacher_tap = _build_module(setup)
        batches = [make_batch(setup, index) for index in range(setup.micro_batches)]
        # Parameters that the loss does not reach are frozen, as in a run; a few rows show which.
        few_rows = {name: tensor[:_PROBE_ROWS] for name, tensor in batches[0].items()}
        freeze_unreached(self.module, few_rows)

        # The trainer brings what a step takes of it: accelerator, loss and optimizer. Its loop does not run.
        with TemporaryDirectory() as folder:
            arguments = build_arguments(setup.training, output=folder, seed=0, evaluates=False)
            self.trainer = DistillationTrainer(self.module, args=arguments)
        # The loop sets this otherwise.
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
        """Share of padding, 0 to below 1."""
        all_tokens = sum(batch["input_ids"].numel() for batch in self.batches)
        return 1 - self.tokens / all_tokens

    def run(self) -> None:
        """Take one step."""
        units = self._units()
        for batch in self.batches:
            self.trainer.training_step(self.model, dict(batch), units)
        self._update()

    def run_parts(self) -> dict[str, float]:
        """Take one step part by part, the device waited for after each.

        Returns:
            The seconds of each of `PARTS`.
        """
        spent = dict.fromkeys(PARTS, 0.0)
        self.module.train()
        units = self._units()
        for batch in self.batches:
            self._run_micro_batch(batch, units, spent)
        with self._clock(spent, "optimizer"):
            self._update()
        return spent

    def operations(self) -> dict[str, PartOperations]:
        """Count the operations of each part; see `limbeck.benchmark.operations`.

        Returns:
            The operations of each of `PARTS`.
        """
        student = forward_cost(self.module.student_tap, self.setup.student_shape)
        teacher = forward_cost(self._teacher_tap, self.setup.teacher_shape)

        # Scores over the vocabulary are made by the model, or are left to the loss, whose products they are then.
        scored_tokens = 0
        loss = 0
        for batch in self.batches:
            mask = self.module.scored_tokens(read_batch(batch))
            tokens = batch["input_ids"].numel() if mask is None else int(mask.sum())
            if self.module.student_tap.leaves_unmade(tokens):
                loss += self._operations_from_hidden(batch, student.decoder, teacher.decoder)
            else:
                scored = batch["attention_mask"] if mask is None else mask
                scored_tokens += int(scored.sum())
        loss_dtype = self.student_dtype if loss else torch.float32
        for term in self.setup.terms:
            loss += loss_operations(term, self.setup.student_shape, self.setup.teacher_shape, self.lengths)

        student_forward = student.operations(self.lengths, scored_tokens)
        teacher_forward = teacher.operations(self.lengths, scored_tokens)
        return {
            "teacher forward": PartOperations(teacher_forward, self.setup.teacher_dtype),
            "student forward": PartOperations(student_forward, self.student_dtype),
            "loss": PartOperations(loss, loss_dtype),
            "student backward": PartOperations(2 * student_forward, self.student_dtype),
            "optimizer": PartOperations(0, torch.float32),
        }

    def _operations_from_hidden(self, batch: Mapping[str, Tensor], student_decoder: int, teacher_decoder: int) -> int:
        """Count the operations of terms that make scores themselves: the student's with their gradients, each term."""
        count_by_unit = dict(zip(UNITS, count_units(batch).long().tolist(), strict=True))
        operations = 0
        for term in self.setup.terms:
            if term.reads_logits:
                numbers = 3 * student_decoder
                if term.teacher:
                    numbers += teacher_decoder
                operations += 2 * count_by_unit[term.unit] * numbers
        return operations

    def optimizer_bytes(self) -> int:
        """Count the bytes that the update has to move.

        AdamW reads weight, gradient and two moments of every trained number and writes all but the gradient, 28 bytes;
        clipping reads the gradient once for its norm and once to scale it, which writes it, 12 bytes more.
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
        """Count the tokens, samples and other units of the whole step, by which the loss of each is divided."""
        return sum_units(self.batches).to(self.device)

    def _run_micro_batch(self, batch: Mapping[str, Tensor], units: Tensor, spent: dict[str, float]) -> None:
        """Take the forward and backward passes of a micro-batch; their seconds are added to `spent`.

        Args:
            batch: The micro-batch.
            units: The units of the whole step.
            spent: Part to seconds so far.
        """
        module = self.module
        sides = read_batch(batch)
        scored = module.scored_tokens(sides)
        with self._clock(spent, "teacher forward"):
            teacher = module.teaching.read(sides, scored)
        with self._clock(spent, "student forward"), self.trainer.accelerator.autocast():
            student = module.student_tap(**sides.student, scored=scored)
        student_tensors = _tensors(student)
        # The loss ends at the streams, so that its backward pass is timed apart from the student's.
        leaves = _detached(student)
        # Listed before the terms add streams that they make of these.
        leaf_tensors = _tensors(leaves)
        with self._clock(spent, "loss"):
            terms = module.compute_terms(sides, leaves, teacher)
            loss = self.trainer.compute_loss(_returning(terms), batch, num_items_in_batch=units)
            scaler = getattr(self.trainer.accelerator, "scaler", None)
            if scaler is not None:
                loss = scaler.scale(loss)
            loss.backward()

        # Streams that no term reads have no gradient.
        tensors = []
        gradients = []
        for tensor, leaf in zip(student_tensors, leaf_tensors, strict=True):
            if leaf.grad is not None:
                tensors.append(tensor)
                gradients.append(leaf.grad)
        with self._clock(spent, "student backward"):
            torch.autograd.backward(tensors, gradients)

    def _update(self) -> None:
        """Clip the gradients, and take the optimizer's step."""
        max_norm = self.trainer.args.max_grad_norm
        if max_norm:
            self.trainer.accelerator.clip_grad_norm_(self.module.parameters(), max_norm)
        self.optimizer.step()
        self.model.zero_grad()

    @contextmanager
    def _clock(self, spent: dict[str, float], part: str) -> Iterator[None]:
        """Add the seconds of the block to those of a part, the device's work included."""
        synchronise(self.device)
        start = time.perf_counter()
        yield
        synchronise(self.device)
        spent[part] += time.perf_counter() - start


def _build_module(setup: StepSetup) -> tuple[DistillationModule, StreamTap]:
    """Build the module of a teacher and a student with random weights; return it with the tap on the teacher."""
    teacher = build_student(setup.teacher, seed=1, head=setup.teacher_head).to(setup.teacher_dtype)
    teaching = LiveTeaching(teacher, setup.terms, pooling=setup.teacher_sentence_head)
    student = build_student(setup.student, seed=0, head=setup.student_head)
    if setup.freeze_embeddings:
        for path in family_of(student.config).embeddings:
            base_model(student).get_submodule(path).requires_grad_(False)
    return DistillationModule(student, teaching, setup.terms, pooling=setup.student_sentence_head), teaching.tap


def _returning(terms: Any) -> Any:
    """Return a stand-in for the model, which gives terms that are made already."""
    return lambda **_: terms


def _detached(streams: Streams) -> Streams:
    """Return the same streams as leaves of a graph of their own."""
    if isinstance(streams, RowStreams):
        return streams.changed(_leaf)
    return {key: _leaf(tensor) for key, tensor in streams.items()}


def _leaf(tensor: Tensor) -> Tensor:
    """Return the same numbers as a leaf of a graph."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _tensors(streams: Streams) -> list[Tensor]:
    """Return the tensors of all streams, in order."""
    if isinstance(streams, RowStreams):
        return streams.tensors()
    return list(streams.values())
