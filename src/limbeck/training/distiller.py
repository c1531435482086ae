"""`Distiller`: the loss of a method as a module, for a training loop of your own.

A *step* of the optimizer may be made of several *micro-batches* on several processes. The terms of a method are means
over the tokens, samples or pairs of the whole step, so that each micro-batch is divided by the counts of all.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.corpus.batches.batch import GROUPS, LABELS, read_batch, without_marks
from limbeck.errors import LimbeckError, ModelError, TrainingError
from limbeck.methods.pairing import TEXT, Pairing, Task
from limbeck.methods.term import Term
from limbeck.methods.transforms import AnnealedScores, Course, DrawnLayer
from limbeck.models.named_modules import NamedModules
from limbeck.models.outside_runs import OutsideRuns, check_has_no_tap
from limbeck.objectives import OBJECTIVES
from limbeck.recipe.stage_terms import compares_tokens, needed_head
from limbeck.training.division import DividedLoss, divide_loss
from limbeck.training.freezing import freeze_unreached
from limbeck.training.gathering import sum_over_ranks
from limbeck.training.loop_method import compose_for_loop, read_stage, sentence_heads
from limbeck.training.loop_models import check_streams_are_used, entry, find_model, find_teacher, reading_difference
from limbeck.training.module import DistillationModule
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.units import UNITS, count_units, sum_units

_INPUTS = ("input_ids", "attention_mask")
"""Columns that every batch needs."""


class Distiller(nn.Module):
    """The loss of a method between a student and a teacher, for a training loop of your own.

    Its parameters are the student's and those of the learned maps. The teacher is in eval mode, takes no gradient and
    is in neither `parameters()` nor `state_dict()`; it follows the batches to their device. You may call the student
    itself between two steps, for example to evaluate it.

    Args:
        student: A folder, `package:NAME` or Hub name; a model of transformers; a `SentenceTransformer`; or any module
            whose blocks `streams` names. An object is trained in place.
        teacher: The same, or a `Teaching`.
        method: Name of the method.
        task: `"text"`, or the kind of task whose labels the batches have, such as `"classification"`.
        streams: For modules that are no transformers models, the paths of their parts: `hidden` is the pattern of the
            blocks, such as `encoder.layers.{i}`; `last_hidden` a norm behind them; `logits` the head.
        teacher_streams: The same for a teacher that is laid out in another way; by default `streams`.
        **options: Options of the method, by name.

    Raises:
        LimbeckError: one line, for options, models and methods that do not suit each other.

    Example:
        >>> distiller = limbeck.Distiller(student, teacher, method="minilmv2")
        >>> optimizer = torch.optim.AdamW(distiller.parameters(), lr=5e-4)
        >>> for batches in steps:  # The micro-batches of a step.
        ...     divisor = distiller.count(batches)
        ...     for batch in batches:
        ...         distiller(batch, divisor).backward()
        ...     optimizer.step()
        ...     optimizer.zero_grad()

    Attributes:
        distillation: The student, the learned maps, the teaching and the terms.
        term_losses: For each term its unweighted part in the loss of the last batch, without gradient.
    """

    def __init__(
        self,
        student: Any,
        teacher: Any,
        method: str = "minilmv2",
        *,
        task: Task = TEXT,
        streams: Mapping[str, str] | None = None,
        teacher_streams: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        # The terms of the method follow from what is known of both models before they are loaded.
        stage = read_stage(method, options, task)
        if teacher_streams is None:
            teacher_streams = streams
        student_model = find_model(student, "student", streams)
        teacher_model = find_teacher(teacher, teacher_streams)
        check_streams_are_used(streams, [student_model, teacher_model])
        pairing = Pairing(student_model.shape, teacher_model.facts, task, sentence=teacher_model.sentence)
        terms = compose_for_loop(stage, pairing, student_model, teacher_model)
        student_head, teacher_head = sentence_heads(terms, pairing, student_model, stage.method.get("pooling"))

        # Then the models are loaded, each with the head that the terms need.
        loaded_student = student_model.load(needed_head(terms, pairing, "student"))
        check_has_no_tap(entry(loaded_student), student_model.title)
        teaching = teacher_model.teaching
        if teaching is None:
            loaded_teacher = teacher_model.load(needed_head(terms, pairing, "teacher"))
            _check_apart(loaded_student, loaded_teacher)
            check_has_no_tap(entry(loaded_teacher), teacher_model.title)
            # A teacher that is an object of the user's keeps all of its blocks.
            is_loaded_here = teacher_model.module is None
            teaching = LiveTeaching(
                loaded_teacher, terms, pooling=teacher_head, title=teacher_model.title, drop_above=is_loaded_here
            )
        try:
            self.distillation = DistillationModule(loaded_student, teaching, terms, pooling=student_head)
        except LimbeckError:
            teaching.close()
            raise
        self.term_losses: dict[str, Tensor] = {}
        self._loop_models = (student_model, teacher_model)
        # The first difference of the tokens of these two models, empty where they read the same. None until it is
        # looked for, as a batch with the same ids for both does.
        self._reading_difference: str | None = None
        # A teacher that is loaded here may have its weights laid out for a CPU. Those of a user's own model stay as
        # they are, so that it can be used and saved at any time.
        self._may_pack = isinstance(teacher, str | Path)
        # Where the teaching was moved to; None before the first batch.
        self._teaching_device: torch.device | None = None
        # Terms that change with the progress of the training have to be told it first, see `set_course`.
        self._knows_course = not any(_follows_course(term) for term in terms)

        # Between two steps the user's own code may run the models that the user has given. The taps let such a run
        # through all blocks of the model.
        self._outside_runs = [OutsideRuns(self.distillation.student_tap, entry(loaded_student))]
        if isinstance(teaching, LiveTeaching) and teacher_model.module is not None:
            self._outside_runs.append(OutsideRuns(teaching.tap, entry(teaching.teacher)))
        self.train()

    @property
    def student(self) -> nn.Module:
        """The student: the model of transformers, or the module whose blocks were named."""
        student = self.distillation.student
        if isinstance(student, NamedModules):
            return student.module
        return student

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the loss."""
        return self.distillation.terms

    def forward(self, batch: Mapping[str, Any] | list[Mapping[str, Any]], divisor: Any = None) -> Tensor:
        """Compute the loss of a batch, with its gradient.

        Args:
            batch: The columns of a batch: `input_ids` and `attention_mask`, `[B, L]`, further inputs of both models,
                and `labels` where terms read them. Columns called `teacher_input_ids`, `teacher_attention_mask` and so
                on are the teacher's own. The trainer of sentence-transformers gives several, one for each column of
                texts.
            divisor: The counts of the whole step, from `count`; None where the batch is the whole step. With several
                processes the gradients are then expected to be averaged over them. The trainer of
                sentence-transformers gives labels in its place.

        Raises:
            TrainingError: one line, for a batch that the models or terms cannot read.
        """
        # The trainer of sentence-transformers calls its loss by (sentence_features, labels).
        if isinstance(batch, list):
            return self._loss_of_columns(batch, labels=divisor)
        return self._loss(batch, divisor)

    def _loss(self, batch: Mapping[str, Any], divisor: Any) -> Tensor:
        """Return the loss of one batch.

        Args:
            batch: Its columns.
            divisor: The counts of the whole step; None where the batch is the whole.
        """
        self._check_batch(batch)
        rank_count = 1
        if divisor is not None:
            _check_divisor(divisor)
            rank_count = _rank_count()
        loss, shares = self._divided_loss(batch, divisor, rank_count=rank_count)
        self.term_losses = shares
        return loss

    def _loss_of_columns(self, columns: list[Mapping[str, Any]], labels: Any) -> Tensor:
        """Return the loss of the texts of all columns of a batch of sentence-transformers.

        Args:
            columns: The features of each column of texts.
            labels: The labels of the rows; None without labels.
        """
        if _rank_count() > 1:
            raise TrainingError(
                "A Distiller as the loss of SentenceTransformerTrainer works in one process only, because it runs "
                "the student itself and gradients of several processes would not be joined; use one process, or a "
                "training loop of your own."
            )
        batches = []
        for features in columns:
            _check_is_mapping(features)
            batch = {name: value for name, value in features.items() if isinstance(value, Tensor)}
            if labels is not None and self._reads_labels:
                batch[LABELS] = labels
            self._check_batch(batch)
            batches.append(batch)
        units_of_step = sum_units(batches)
        losses = []
        self.term_losses = {}
        for batch in batches:
            loss, shares = self._divided_loss(batch, units_of_step, rank_count=1)
            losses.append(loss)
            for name, share in shares.items():
                self.term_losses[name] = share + self.term_losses.get(name, 0.0)
        return torch.stack(losses).sum()

    def _divided_loss(self, batch: Mapping[str, Any], units_of_step: Tensor | None, *, rank_count: int) -> DividedLoss:
        """Run the models on a batch that was checked, and divide its terms.

        Args:
            batch: The columns of the batch.
            units_of_step: Units of the whole step, see `divide_loss`; None where the batch is the whole.
            rank_count: Processes whose gradients are averaged.

        Raises:
            TrainingError: in training, if the progress is not known that the method needs.
        """
        if self.training and not self._knows_course:
            raise TrainingError(
                "The method changes as training goes on, so it has to know the progress; call "
                "distiller.set_course(epoch=…, share=…) before each step."
            )
        device = batch["attention_mask"].device
        # `torch.compile` cannot trace weights that are laid out for a CPU.
        pack = self._may_pack and not torch.compiler.is_compiling()
        self._move_teaching(device, pack=pack)
        # A trainer that knows the student alone switches between training and evaluation on the student.
        self.distillation.training = self.distillation.student.training
        outputs = self.distillation(**without_marks(batch))
        if units_of_step is not None:
            units_of_step = units_of_step.to(device)
        units = count_units(batch)
        return divide_loss(self.terms, outputs, units, units_of_step=units_of_step, rank_count=rank_count)

    # The teacher is moved once, which is nothing to compile.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _move_teaching(self, device: torch.device, *, pack: bool) -> None:
        """Place the teaching on the device of the batches, if it is not there yet.

        Args:
            device: The device.
            pack: On a CPU, lay the teacher's weights out for their products once.
        """
        if device != self._teaching_device:
            self.distillation.teaching.move(device, pack=pack)
            self._teaching_device = device

    def count(self, batches: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Tensor:
        """Count the tokens, samples, labels, pairs and groups of a step, by which its losses are divided.

        All processes must call it together: the counts are summed over them.

        Args:
            batches: The micro-batches of the step on this process, or its only batch.

        Returns:
            The `divisor` of each of them, float64 `[5]`.

        Raises:
            TrainingError: for no batch, one without a mask, and several where a term needs all rows in one.
        """
        of_step = [batches] if isinstance(batches, Mapping) else list(batches)
        if not of_step:
            raise TrainingError(
                "A step without batches has nothing to count; pass the micro-batches of the step to distiller.count."
            )
        coupled = [term.name for term in self.terms if term.batch_coupled]
        if coupled and len(of_step) > 1:
            raise TrainingError(
                f"The term '{coupled[0]}' compares the rows of a batch with each other, so the batches of a step "
                "cannot be computed one after the other; give one larger batch."
            )
        for batch in of_step:
            self._check_batch(batch)
        # Processes exchange tensors on the device that they train on.
        device = next(self.distillation.student.parameters()).device
        return sum_over_ranks(sum_units(of_step).to(device))

    def set_course(self, *, epoch: int = 0, share: float = 0.0) -> None:
        """Tell methods that change with the progress of the training how far it is.

        Args:
            epoch: Whole epochs that are done.
            share: Share of the steps that is done, from 0 to 1.

        Raises:
            TrainingError: for numbers out of these ranges.
        """
        if epoch < 0 or not 0 <= share <= 1:
            raise TrainingError(f"epoch is {epoch} and share {share}; give an epoch from 0 and a share from 0 to 1.")
        self.distillation.set_course(Course(epoch=epoch, share=share))
        self._knows_course = True

    def freeze_unreached(self, batch: Mapping[str, Any]) -> list[str]:
        """Freeze the parameters of the student that no term reaches, and return their names.

        Optimizers leave them as they are in any case. `DistributedDataParallel` needs this before it wraps the
        distiller, since it waits for the gradient of every parameter that is not frozen.

        Args:
            batch: A few rows.
        """
        self._check_batch(batch)
        self._move_teaching(batch["attention_mask"].device, pack=self._may_pack)
        return freeze_unreached(self.distillation, without_marks(batch))

    def start_maps(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Start the map that a student keeps behind its pooling (`aligned_embedding`) by least squares.

        Args:
            batches: Texts, some 2,000 of them; both models read them once.
        """
        for batch in batches:
            self._check_batch(batch)
            self._move_teaching(batch["attention_mask"].device, pack=self._may_pack)
        self.distillation.start_maps(lambda: batches)

    def close(self) -> None:
        """Take the taps off both models, which are ordinary models again."""
        for runs in self._outside_runs:
            runs.close()
        self._outside_runs = []
        self.distillation.close()

    # Tokenizers are compared once, which is nothing to compile.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _check_same_ids_mean_the_same(self) -> None:
        """Refuse a batch whose ids both models read, where they are ids of other tokens in each."""
        if self._reading_difference is None:
            self._reading_difference = reading_difference(*self._loop_models)
        if self._reading_difference:
            raise TrainingError(
                f"{self._reading_difference}, but in this batch both read the same ids; give the teacher's tokens of "
                "the same texts as teacher_input_ids and teacher_attention_mask, or a student with the teacher's "
                "tokenizer."
            )

    @property
    def _reads_labels(self) -> bool:
        """Whether a term reads labels, or counts the tokens that have one."""
        return any(term.unit == "label" or OBJECTIVES[term.objective].takes_labels for term in self.terms)

    @property
    def _reads_groups(self) -> bool:
        """Whether a term compares the rows of a query, which are a group."""
        return any(term.unit == "group" for term in self.terms)

    def _check_batch(self, batch: Mapping[str, Any]) -> None:
        """Refuse a batch that the models or the terms cannot read.

        Raises:
            TrainingError: naming the column.
        """
        _check_is_mapping(batch)
        for name in _INPUTS:
            if not isinstance(batch.get(name), Tensor):
                raise TrainingError(
                    f"The batch has no tensor '{name}' (its columns: {', '.join(map(str, batch))}); tokenize with "
                    'padding=True and return_tensors="pt".'
                )
        for column, is_read in ((LABELS, self._reads_labels), (GROUPS, self._reads_groups)):
            if is_read and batch.get(column) is None:
                raise TrainingError(
                    f"The method reads the column '{column}', but the batch has no such column; add it to every batch."
                )
        inputs = read_batch(batch)
        # In a batch without columns for the teacher both models read the same ids.
        if inputs.teacher is inputs.student:
            self._check_same_ids_mean_the_same()
        shape = inputs.student["input_ids"].shape
        teacher_shape = inputs.teacher["input_ids"].shape
        if shape != teacher_shape and any(compares_tokens(term) for term in self.terms if term.teacher):
            raise TrainingError(
                f"The student reads {list(shape)} tokens and the teacher {list(teacher_shape)}, but the method "
                "compares them token by token; give both the same tokens, or use a method on sentence vectors alone."
            )


def _check_is_mapping(batch: object) -> None:
    """Refuse a batch that has no columns."""
    if not isinstance(batch, Mapping):
        raise TrainingError(f"A batch must be a mapping from column names to tensors, not {type(batch).__name__}.")


def _check_apart(student: nn.Module, teacher: nn.Module) -> None:
    """Refuse models that share weights, since the teacher's are frozen."""
    of_teacher = {id(parameter) for parameter in teacher.parameters()}
    for name, parameter in student.named_parameters():
        if id(parameter) in of_teacher:
            raise ModelError(
                f"Student and teacher share the weights '{name}', so that the teacher would change; give the student "
                "weights of its own, by copy.deepcopy."
            )


def _follows_course(term: Term) -> bool:
    """Whether the teacher's streams of a term change with the progress of the training."""
    if isinstance(term.transform, DrawnLayer):
        return term.transform.each_epoch
    return isinstance(term.transform, AnnealedScores)


def _check_divisor(divisor: Any) -> None:
    """Refuse a divisor that does not come from `Distiller.count`."""
    if not isinstance(divisor, Tensor) or divisor.shape != (len(UNITS),):
        raise TrainingError("The divisor must be a tensor of the counts of a step; give the result of distiller.count.")


def _rank_count() -> int:
    """Return the number of processes that share each step."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size()
