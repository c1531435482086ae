"""`limbeck benchmark step`: tokens per second, memory and parts of a training step, and how near its floor it is."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from limbeck.benchmark import measuring
from limbeck.benchmark.measuring import Peak, forward_cost, loss_operations
from limbeck.benchmark.model import read_config
from limbeck.benchmark.rows import Row, tidy
from limbeck.core import IGNORED_LABEL, progress
from limbeck.core.devices import bf16_is_fast, choose_device, synchronise
from limbeck.core.kinds import LabelKind, kind_of
from limbeck.core.memory import keep_freed_memory
from limbeck.core.timing import stopwatch, summarise, take_turns, tell_rounds
from limbeck.corpus.batch import read_batch
from limbeck.corpus.collating import LABELS_OF_TASK
from limbeck.errors import RecipeError
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import METHODS, read_method
from limbeck.methods.term import Term
from limbeck.models.blueprint import names_shape, parse_blueprint
from limbeck.models.families import Shape, base_model, family_of, shape_of
from limbeck.models.heads import Head, model_class
from limbeck.models.loading import as_dtype
from limbeck.models.packed_rows import RowStreams
from limbeck.models.packing import send_batch
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.streams import Streams
from limbeck.models.students import build_student, student_config
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.recipe.load import load_recipe
from limbeck.recipe.method_recipe import stages_of
from limbeck.recipe.plan import plan_run
from limbeck.recipe.stage_checks import MASKED_SHARE
from limbeck.recipe.stage_terms import needed_head
from limbeck.recipe.training_arguments import build_arguments
from limbeck.recipe.training_fields import DEFAULTS
from limbeck.training.freezing import freeze_unreached
from limbeck.training.module import DistillationModule
from limbeck.training.stage_rows import label_kind
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.trainer import DistillationTrainer
from limbeck.training.units import UNITS, count_units, sum_units


@dataclass(frozen=True)
class StepRequest:
    """A request to measure a step; every field is fit for JSON.

    Attributes:
        recipe: Path of a recipe; without one `teacher`, `student` and `method` count.
        overrides: `path=value` each, for the recipe.
        stage: Which stage of the recipe or the method, from 1.
        teacher: A shape such as `"12x768"` (of a BERT), or a saved model, of which the configuration alone is read.
        student: A shape.
        method: A method, with its own defaults.
        vocabulary: Words of both models; None is the teacher's.
        batch: Samples of a micro-batch; None is the recipe's, or 8.
        length: Tokens of the longest sample; None is the recipe's, or 128.
        ragged: Draw lengths from [L/2, L] instead of L for all.
        dtype: `"auto"` (as training chooses), `"float32"` or `"bfloat16"`.
        device: As in `choose_device`.
    """

    recipe: str | None = None
    overrides: Sequence[str] = ()
    stage: int = 1
    teacher: str = "12x768"
    student: str = "6x384"
    method: str = "minilmv2"
    vocabulary: int | None = None
    batch: int | None = None
    length: int | None = None
    ragged: bool = False
    dtype: str = "auto"
    device: str = "auto"


@dataclass(frozen=True)
class StepSetup:
    """A request, checked against configurations: everything that decides what a step does.

    Attributes:
        teacher: Configuration of the teacher.
        student: Configuration of the student, dropout included.
        terms: The terms of the stage.
        method: Name of the method.
        teacher_head: The head whose scores the teacher gives, or None.
        student_head: The same of the student.
        sentence_heads: What makes sentence vectors of the student and of the teacher.
        labels: What labels a batch has, as `PadCollator` names it.
        masked: Share of tokens with a label, where labels are tokens.
        freeze_embeddings: Keep the student's embeddings as they are.
        training: The training arguments, as a recipe gives them.
        teacher_dtype: Of the teacher's weights.
        length: Tokens of the longest sample.
        ragged: Draw lengths from [L/2, L].
    """

    teacher: PreTrainedConfig
    student: PreTrainedConfig
    terms: Sequence[Term]
    method: str
    teacher_head: Head | None
    student_head: Head | None
    sentence_heads: tuple[SentenceHead, SentenceHead]
    labels: LabelKind
    masked: float
    freeze_embeddings: bool
    training: dict[str, Any] = field(hash=False)
    teacher_dtype: torch.dtype
    length: int
    ragged: bool

    @property
    def shapes(self) -> tuple[Shape, Shape]:
        """Shapes of student and teacher."""
        return shape_of(self.student), shape_of(self.teacher)

    @property
    def batch(self) -> int:
        """Samples of a micro-batch."""
        return int(self.training.get("per_device_train_batch_size", DEFAULTS["per_device_train_batch_size"]))

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an optimizer step."""
        return int(self.training.get("gradient_accumulation_steps", 1))


def set_up_step(request: StepRequest) -> StepSetup:
    """Check a request; no weight and no text is read.

    Raises:
        LimbeckError: for everything that a recipe's check refuses; an unknown stage, dtype or device; a length beyond
            the models' positions; a batch that cannot fit into memory.
    """
    if choose_device(request.device).index:
        raise RecipeError(
            f"Steps run on the first visible device, not on '{request.device}'; choose it with CUDA_VISIBLE_DEVICES."
        )
    setup = _from_recipe(request) if request.recipe is not None else _from_shapes(request)
    for owner, shape in zip(("student", "teacher"), setup.shapes, strict=True):
        if shape.positions is not None and setup.length > shape.positions:
            raise RecipeError(
                f"--length {setup.length} is longer than the {owner}'s {shape.positions} positions; use "
                f"{shape.positions} or less."
            )
    tokens = setup.batch * setup.length // (2 if setup.ragged else 1)
    needed = measuring.least_training_bytes(setup.shapes[0], tokens, torch.bfloat16.itemsize)
    measuring.check_memory(f"--batch {setup.batch} and --length {setup.length}", needed, choose_device(request.device))
    return setup


def _from_recipe(request: StepRequest) -> StepSetup:
    assert request.recipe is not None
    plan = plan_run(load_recipe(request.recipe, request.overrides))
    choice = plan.stages[_index(request.stage, len(plan.stages), "The recipe")]
    student = choice.student or plan.student_plan
    config = type(student.config)(**student.config.to_dict())
    if student.spec.dropout is not None:
        for name in family_of(config).fields.dropouts:
            setattr(config, name, student.spec.dropout)
    return StepSetup(
        teacher=choice.teacher.config,
        student=config,
        terms=choice.terms,
        method=str(choice.spec.method["name"]),
        teacher_head=choice.teacher_head,
        student_head=choice.student_head,
        sentence_heads=choice.sentence_heads(),
        labels=label_kind(choice),
        masked=choice.mask_tokens,
        freeze_embeddings="embeddings" in choice.spec.freeze,
        length=request.length or choice.corpus.length,
        **_arguments(request, choice.spec.training, choice.teacher.spec.dtype),
    )


def _from_shapes(request: StepRequest) -> StepSetup:
    method = METHODS[request.method]
    stages = stages_of(method)
    stage = stages[_index(request.stage, len(stages), f"The method {request.method}")]
    part, options = read_method(stage)
    length = request.length or 128
    if names_shape(request.teacher):
        measuring.check_length("--length", [length])
    teacher = read_config(request.teacher, length)
    if request.vocabulary is not None:
        teacher.vocab_size = request.vocabulary
    student = student_config(parse_blueprint(request.student, shape_of(teacher)), teacher)
    task = part.tasks[0]
    if kind_of(task).has_value:
        teacher.num_labels = student.num_labels = 1
    terms = part.compose(options, Pairing(shape_of(student), facts_of_shape(shape_of(teacher)), task))
    heads = needed_head(terms, task, "student"), needed_head(terms, task, "teacher")
    for config, head in zip((student, teacher), heads, strict=True):
        model_class(config, head)
    pooling = SentenceHead(getattr(options, "pooling", None) or "mean")
    masked = MASKED_SHARE if task == "text" and any(term.unit == "label" for term in terms) else 0.0
    return StepSetup(
        teacher=teacher,
        student=student,
        terms=terms,
        method=request.method,
        teacher_head=heads[1],
        student_head=heads[0],
        sentence_heads=(pooling, pooling),
        labels=LABELS_OF_TASK.get(task, "token" if masked else "none"),
        masked=masked,
        freeze_embeddings=False,
        length=length,
        **_arguments(request, {"per_device_train_batch_size": 8}, "auto"),
    )


def make_batch(setup: StepSetup, index: int = 0) -> dict[str, Tensor]:
    """Draw a batch of random tokens as a collator would give it, padded on the right; on the CPU.

    Args:
        setup: What for.
        index: Which of the step's micro-batches.
    """
    generator = torch.Generator().manual_seed(index)
    rows, length = setup.batch, setup.length
    lengths = torch.full((rows, 1), length)
    if setup.ragged:
        lengths = torch.randint(max(1, length // 2), length + 1, (rows, 1), generator=generator)
        length = int(lengths.max())
    valid = torch.arange(length) < lengths
    vocabulary = min(shape.vocabulary for shape in setup.shapes)
    ids = torch.randint(0, vocabulary, (rows, length), generator=generator)
    batch = {
        "input_ids": ids.masked_fill(~valid, int(getattr(setup.student, "pad_token_id", None) or 0)),
        "attention_mask": valid.long(),
    }
    if setup.labels == "token" and not setup.masked:  # Tagged words, of a token each.
        tags = torch.randint(0, int(setup.teacher.num_labels), (rows, length), generator=generator)
        batch["labels"] = tags.masked_fill(~valid, IGNORED_LABEL)
    elif setup.labels == "token":
        chosen = valid & (torch.rand(rows, length, generator=generator) < setup.masked)
        chosen[0, 0] = True
        batch["labels"] = ids.masked_fill(~chosen, IGNORED_LABEL)
    elif setup.labels == "class":
        batch["labels"] = torch.randint(0, int(setup.teacher.num_labels), (rows,), generator=generator)
    elif setup.labels == "classes":
        batch["labels"] = torch.randint(0, 2, (rows, int(setup.teacher.num_labels)), generator=generator).float()
    elif setup.labels == "value":
        batch["labels"] = torch.rand(rows, generator=generator)
    elif setup.labels == "relevance":
        batch["groups"] = torch.arange(rows) // 2
    elif setup.labels == "span":
        batch["labels"] = (torch.rand(rows, 2, generator=generator) * lengths).long().sort(-1).values
    return batch


def _arguments(request: StepRequest, training: dict[str, Any], teacher_dtype: str) -> dict[str, Any]:
    """Lay the request over the training arguments of a recipe, and choose the teacher's format as a run does."""
    changed = {**training, "report_to": "none"}
    if request.batch is not None:
        changed["per_device_train_batch_size"] = request.batch
    if choose_device(request.device).type == "cpu" and torch.accelerator.is_available():
        changed["use_cpu"] = True
        changed.setdefault("bf16", False)  # What is fast on the accelerator may not be here.
    if request.dtype != "auto":
        if as_dtype(request.dtype) not in (torch.float32, torch.bfloat16):
            raise RecipeError(
                f"Steps in {request.dtype} cannot be measured; give float32 or bfloat16, or leave --dtype out."
            )
        changed |= {"bf16": as_dtype(request.dtype) == torch.bfloat16, "fp16": False}
    low = changed.get("bf16", bf16_is_fast() and not changed.get("fp16"))
    asked = "auto" if request.dtype != "auto" else teacher_dtype
    dtype = as_dtype(asked) if asked != "auto" else torch.bfloat16 if low else torch.float32
    return {"training": changed, "teacher_dtype": dtype, "ragged": request.ragged}


def _index(stage: int, stages: int, owner: str) -> int:
    if not 1 <= stage <= stages:
        raise RecipeError(f"{owner} has {stages} stage{'s'[: stages != 1]}, but --stage is {stage}; count from 1.")
    return stage - 1


PARTS = ("teacher forward", "student forward", "loss", "student backward", "optimizer")
_PROBE_ROWS = 2


class Step:
    """Takes optimizer steps on random batches, from random weights.

    Args:
        setup: The models, the terms and the training arguments.
    """

    def __init__(self, setup: StepSetup) -> None:
        keep_freed_memory()  # As a run does.
        self.setup = setup
        teacher = build_student(setup.teacher, seed=1, head=setup.teacher_head).to(setup.teacher_dtype)
        student = build_student(setup.student, seed=0, head=setup.student_head)
        if setup.freeze_embeddings:
            for path in family_of(student.config).embeddings:
                base_model(student).get_submodule(path).requires_grad_(False)
        own, theirs = setup.sentence_heads
        teaching = LiveTeaching(teacher, setup.terms, pooling=theirs)
        self._teacher_tap = teaching.tap
        self.module = DistillationModule(student, teaching, setup.terms, pooling=own)
        batches = [make_batch(setup, index) for index in range(setup.micro_batches)]
        freeze_unreached(self.module, {name: x[:_PROBE_ROWS] for name, x in batches[0].items()})
        with TemporaryDirectory() as folder:
            arguments = build_arguments(setup.training, output=folder, seed=0, evaluates=False)
            self.trainer = DistillationTrainer(self.module, args=arguments)
        self.trainer.current_gradient_accumulation_steps = 1  # Set by the loop, which does not run here.
        self.device = torch.device(arguments.device)
        self.batches = [send_batch(batch, self.device) for batch in batches]
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
        """Count the operations of each part; see `measuring.py`.

        Returns:
            For each of `PARTS` the operations of the step, and the format that its products are computed in.
        """
        (student, teacher), lengths = self.setup.shapes, self.lengths
        taps = self.module.student_tap, self._teacher_tap
        own, other = (forward_cost(tap, shape) for tap, shape in zip(taps, (student, teacher), strict=True))
        scored, unmade = 0, 0
        for batch in self.batches:
            mask = self.module.scored_tokens(read_batch(batch))
            if taps[0].leaves_unmade(batch["input_ids"].numel() if mask is None else int(mask.sum())):
                unmade += self._operations_from_hidden(batch, own.decoder, other.decoder)
            else:
                scored += int((batch["attention_mask"] if mask is None else mask).sum())
        forward, read = own.operations(lengths, scored), other.operations(lengths, scored)
        loss = unmade + sum(loss_operations(term, student, teacher, lengths) for term in self.setup.terms)
        return {
            "teacher forward": (read, self.setup.teacher_dtype),
            "student forward": (forward, self.student_dtype),
            "loss": (loss, self.student_dtype if unmade else torch.float32),
            "student backward": (2 * forward, self.student_dtype),
            "optimizer": (0, torch.float32),
        }

    def _operations_from_hidden(self, batch: Mapping[str, Tensor], own: int, other: int) -> int:
        """Count the operations of terms that make scores themselves: the student's with their gradients, each term."""
        units = dict(zip(UNITS, count_units(batch).long().tolist(), strict=True))
        terms = (term for term in self.setup.terms if term.reads_logits)
        return sum(2 * units[term.unit] * (3 * own + (other if term.teacher else 0)) for term in terms)

    def optimizer_bytes(self) -> int:
        """Count the bytes that the update has to move.

        AdamW reads weight, gradient and two moments of every trained number and writes all but the gradient, 28 bytes;
        clipping reads the gradient once for its norm and once to scale it, which writes it, 12 bytes more.
        """
        trained = sum(p.numel() * p.element_size() for p in self.module.parameters() if p.requires_grad)
        passes = 7
        if self.trainer.args.max_grad_norm:
            passes += 3
        return trained * passes

    def _run_micro_batch(self, batch: Mapping[str, Tensor], window: Tensor, spent: dict[str, float]) -> None:
        module = self.module
        sides = read_batch(batch)
        scored = module.scored_tokens(sides)
        with self._clock(spent, "teacher forward"):
            teacher = module.teaching.read(sides, scored)
        with self._clock(spent, "student forward"), self.trainer.accelerator.autocast():
            student = module.student_tap(**sides.student, scored=scored)
        # The loss ends at the streams, so that its backward pass is timed apart from the student's.
        cut = student.changed(_cut) if isinstance(student, RowStreams) else {key: _cut(x) for key, x in student.items()}
        pairs = list(zip(_tensors(student), _tensors(cut), strict=True))
        with self._clock(spent, "loss"):
            terms = module.compute_terms(sides, cut, teacher)
            given: Any = lambda **_: terms  # noqa: E731 - stands in for the model
            loss = self.trainer.compute_loss(given, batch, num_items_in_batch=window)
            scaler = getattr(self.trainer.accelerator, "scaler", None)
            (loss if scaler is None else scaler.scale(loss)).backward()
        reached = [(x, leaf.grad) for x, leaf in pairs if leaf.grad is not None]
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


def measure_peak(request: StepRequest) -> Peak:
    """Measure the peak memory of two steps: the second has the optimizer's state.

    Weights, optimizer state and activations count, and on a CPU libraries that are loaded meanwhile.
    """
    setup = set_up_step(request)

    def run() -> None:
        step = Step(setup)
        step.run()
        step.run()

    return measuring.watch_peak(run, choose_device(request.device))


WHOLE = "step"
# Shares of the progress: the peak memory is done, the ceilings are done; the rest is the timing.
_MEMORY_DONE, _CEILING_DONE = 0.2, 0.25


def measure_step(
    request: StepRequest,
    *,
    seconds: float = 30.0,
    memory: bool = True,
    ceiling_size: int | None = None,
    report: progress.Report = progress.no_progress,
) -> list[Row]:
    """Measure a whole optimizer step and its parts.

    Whole steps and steps part by part take turns. A part's `floor_percent` is floor / time · 100, with floor =
    operations / rate of a large matrix product in the part's format, or for the optimizer bytes / rate of a large copy,
    both measured: 100 % is as fast as products, or memory, alone could be. The floor of the whole step is the sum of
    its parts'. Weights are random: times do not depend on them.

    Args:
        request: What to measure.
        seconds: For the timing; at least five rounds are made.
        memory: Measure peak memory too, on a CPU in another process.
        ceiling_size: As in `measure_ceiling`; its square is how many numbers are copied.
        report: Receives the progress.

    Returns:
        A row for the whole step, then one for each of `PARTS`.

    Raises:
        LimbeckError: see `set_up_step`.
    """
    setup, device = set_up_step(request), choose_device(request.device)
    report(0.0, "peak memory")
    peak = measuring.peak_of(partial(measure_peak, request), device) if memory else Peak()
    report(_MEMORY_DONE, "building the models")
    step = Step(setup)
    operations = step.operations()
    dtypes = {dtype for count, dtype in operations.values() if count}

    def measure_rates() -> dict[torch.dtype | str, float]:
        """Operations a second by format, and bytes a second of a copy."""
        share, numbers = seconds / 10, measuring.COPIED if ceiling_size is None else ceiling_size**2
        rates: dict[torch.dtype | str, float] = {
            dtype: measuring.measure_ceiling(step.device, dtype, size=ceiling_size, seconds=min(1.0, share))
            for dtype in dtypes
        }
        return rates | {"copy": measuring.measure_bandwidth(step.device, numbers=numbers, seconds=min(0.5, share))}

    report(_MEMORY_DONE, "a large matrix product")
    before = measure_rates()
    timing = progress.part_of(report, _CEILING_DONE, 1.0)
    watch = stopwatch(step.run, step.device)
    variants: dict[str, Callable[[], dict[str, float]]] = {"whole": lambda: {WHOLE: watch()}, "parts": step.run_parts}
    found = take_turns(variants, seconds=seconds, tell=tell_rounds(timing, f"steps of {step.tokens:,} tokens"))
    # Before and after, so that a busy moment does not lower the ceiling.
    rates = {key: max(rate, before[key]) for key, rate in measure_rates().items()}
    times = {WHOLE: [run[WHOLE] for run in found["whole"]]}
    times |= {part: [run[part] for run in found["parts"]] for part in PARTS}
    medians = {part: summarise(times[part])["median_ms"] for part in PARTS}
    floors = {part: count / rates[dtype] * 1000 if count else None for part, (count, dtype) in operations.items()}
    floors["optimizer"] = step.optimizer_bytes() / rates["copy"] * 1000
    floors[WHOLE] = sum(floor for floor in floors.values() if floor is not None)
    operations[WHOLE] = sum(count for count, _ in operations.values()), step.student_dtype
    student, teacher = setup.shapes
    described = {
        "method": setup.method,
        "teacher": str(teacher),
        "student": str(student),
        "batch": setup.batch,
        "micro_batches": setup.micro_batches,
        "length": setup.length,
        "mask": "ragged" if setup.ragged else "full",
        "tokens": step.tokens,
        "padding_share": step.padding_share,
        "teacher_dtype": _name(setup.teacher_dtype),
        "device_type": step.device.type,
    }
    rows: list[dict[str, Any]] = []
    for part, seen in times.items():
        spread, floor, whole = summarise(seen), floors[part], part == WHOLE
        count, dtype = operations[part]
        rows.append(
            {
                "part": part,
                **described,
                "dtype": _name(dtype),
                "rounds": len(seen),
                **spread,
                "share": 1.0 if whole else medians[part] / sum(medians.values()),
                "gflop": count / 1e9,
                "gbyte": step.optimizer_bytes() / 1e9 if part == "optimizer" else None,
                "ceiling_gbytes": rates["copy"] / 1e9 if part == "optimizer" else None,
                "ceiling_gflops": None if whole or not count else rates[dtype] / 1e9,
                "floor_ms": floor,
                "floor_percent": None if floor is None else floor / spread["median_ms"] * 100,
                "tokens_per_second": step.tokens / spread["median_ms"] * 1000 if whole else None,
                "peak_mb": peak.total_mb if whole else None,
                "peak_extra_mb": peak.extra_mb if whole else None,
                "note": peak.note if whole else None,
            }
        )
    return [tidy(row) for row in rows]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _cut(x: Tensor) -> Tensor:
    return x.detach().requires_grad_(x.requires_grad)


def _tensors(streams: Streams) -> list[Tensor]:
    return streams.tensors() if isinstance(streams, RowStreams) else list(streams.values())
