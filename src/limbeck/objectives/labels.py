"""Terms on output scores: the teacher's soft labels and rankings, and the hard labels of masked words and of tasks."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.core import IGNORED_LABEL
from limbeck.errors import KernelError
from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.kernels.soft_label_chunks import Head, label_ce_chunked, soft_label_kl_chunked
from limbeck.objectives import terms
from limbeck.objectives.registry import Benchmark, register_as_objective
from limbeck.objectives.terms import LossTerm

ClassWeights: TypeAlias = Tensor | Sequence[float]


def soft_label_kl_from_hidden(
    student_hidden: Tensor,
    student_weight: Tensor,
    teacher_hidden: Tensor,
    teacher_weight: Tensor,
    *,
    student_bias: Tensor | None = None,
    teacher_bias: Tensor | None = None,
    temperature: float = 1.0,
    valid: Tensor | None = None,
) -> LossTerm:
    """Divergence of the student's output distribution from the teacher's, from hidden vectors and output layers.

    total = T² Σ KL(softmax(z^T/T) ‖ softmax(z^S/T)) over valid rows, z = hidden · weightᵀ + bias, in nats, 0 at
    equality. It equals `soft_label_kl` of the logits and has no second derivative. Logits exist for a chunk of rows
    at a time: two chunks of 64 MiB on a CPU, for which the weight's gradient (float32 `[V, width_S]`) is made in the
    forward pass. Matmuls run in bfloat16 where a model's hidden vectors and weight both are, and in float32 (float64)
    otherwise; the softmax never in less than float32.

    Source: as `soft_label_kl`: comparative study §3, eq. 5; DistilBERT §3. Nearest alternative: `soft_label_kl`, where
    there are logits already or classes are few.

    Args:
        student_hidden: Input of the student's output layer (after the transform of the head, if it has one),
            `[..., width_S]`; carries gradient.
        student_weight: `[V, width_S]`; carries gradient, which adds up where it is tied to the embeddings.
        teacher_hidden: The same of the teacher, `[..., width_T]`; never gets a gradient.
        teacher_weight: `[V, width_T]`; never gets a gradient.
        student_bias: `[V]`; carries gradient. −inf excludes a class.
        teacher_bias: `[V]`; never gets a gradient. −inf excludes a class.
        temperature: T, above 0.
        valid: Rows that count, bool or 0/1, in the shape of the hidden vectors without their last axis; None means
            all.

    Returns:
        The summed divergence; the count is valid rows.

    Raises:
        KernelError: if shapes, devices, mask or temperature do not fit, or if a second derivative is asked for.
    """
    rows = student_hidden.dim() - 1
    if rows < 1:
        raise KernelError(f"student_hidden has shape {list(student_hidden.shape)}; it has to be [rows..., width].")
    hidden = {"student_hidden": student_hidden, "teacher_hidden": teacher_hidden}
    axes = "[rows..., width], with as many axes as student_hidden"
    terms.check_tensors(hidden, rows + 1, axes, alike=rows)
    _check_head("student", student_hidden, student_weight, student_bias)
    _check_head("teacher", teacher_hidden, teacher_weight, teacher_bias)
    classes = len(student_weight)
    if len(teacher_weight) != classes:
        raise KernelError(
            f"student_weight has {classes} rows and teacher_weight {len(teacher_weight)}, but both must have a row "
            "for each of the same classes: cut off rows that pad the vocabulary."
        )
    terms.check_temperature(temperature)
    mask = terms.as_mask(valid, student_hidden, rows)
    flat_mask = None if mask is None else mask.flatten()
    # The loss is computed of heads with a single axis of rows.
    student = Head(student_hidden.flatten(0, -2), student_weight, student_bias)
    teacher = Head(teacher_hidden.flatten(0, -2), teacher_weight, teacher_bias)
    total = soft_label_kl_chunked(student, teacher, temperature, flat_mask)
    inputs = terms.Inputs(student_hidden, rows, mask, total.dtype)
    return inputs.term(total)


def _check_head(model: str, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Check a model's output weight and bias against each other and its hidden vectors."""
    terms.check_tensors({f"{model}_weight": weight}, 2, "[V, width]", alike=0)
    if weight.shape[1] != hidden.shape[-1] or not len(weight):
        raise KernelError(
            f"{model}_weight has shape {list(weight.shape)}; it has to be [V, {hidden.shape[-1]}], V classes as wide "
            f"as {model}_hidden."
        )
    parts = {f"{model}_hidden": hidden, f"{model}_weight": weight}
    if bias is not None:
        parts[f"{model}_bias"] = bias
        terms.check_tensors({f"{model}_bias": bias}, 1, "[V]", alike=0)
        if len(bias) != len(weight):
            raise KernelError(f"{model}_bias has shape {list(bias.shape)}; it has to be [{len(weight)}].")
    # With 0 axes to compare, this checks that all are on one device.
    terms.check_alike(parts, axes=0)


def _draw_heads(
    case: Any, normal: Callable[..., Tensor]
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], dict[str, Any]]:
    """Draw hidden vectors and an output weight of each model, for a benchmark.

    Returns:
        Those of the student and those of the teacher, each a pair, and no options.
    """

    def draw(width: int) -> tuple[Tensor, Tensor]:
        """Draw hidden vectors and the output weight of one model."""
        hidden = normal(case.batch, case.length, width)
        # With this deviation logits are of size 1, as differences between logits of a trained model are.
        weight = normal(case.classes, width, deviation=width**-0.5)
        return hidden, weight

    student = draw(case.student_width)
    teacher = draw(case.teacher_width)
    return student, teacher, {}


def _soft_labels_materialised(
    student_hidden: Tensor, student_weight: Tensor, teacher_hidden: Tensor, teacher_weight: Tensor, **options: Any
) -> LossTerm:
    """Compute `soft_label_kl_from_hidden` with all logits held at once."""
    student_logits = F.linear(student_hidden, student_weight)
    teacher_logits = F.linear(teacher_hidden, teacher_weight)
    return soft_label_kl(student_logits, teacher_logits, **options)


@register_as_objective(
    unit="row",
    from_hidden=soft_label_kl_from_hidden,
    benchmark=Benchmark(
        backends={"materialised": _soft_labels_materialised, "from_hidden": soft_label_kl_from_hidden},
        inputs=_draw_heads,
        numbers_at_once=lambda case: 8 * case.batch * case.length * case.classes,
        sizes=("classes",),
    ),
)
def soft_label_kl(
    student_logits: Tensor, teacher_logits: Tensor, *, temperature: float = 1.0, valid: Tensor | None = None
) -> LossTerm:
    """Divergence of the student's output distribution from the teacher's.

    total = T² Σ KL(softmax(z^T/T) ‖ softmax(z^S/T)) over valid rows, in nats, 0 at equality. T² keeps the size of the
    gradient when T changes.

    Source: comparative study §3, eq. 5 (there as a cross entropy, which differs by the teacher's entropy and has the
    same gradient); MLKD-BERT eq. 18 (printed without T²); DistilBERT §3. Nearest alternative: `masked_lm_ce`, with
    hard labels.

    Args:
        student_logits: `[..., V]`: `[B, L, V]` over a vocabulary, `[B, classes]`, or `[B, L]` over answer positions.
        teacher_logits: The same shape; never gets a gradient. −inf excludes a class.
        temperature: T, above 0.
        valid: Rows that count, bool or 0/1, in the shape of the logits without their last axis; None means all.

    Returns:
        The summed divergence; the count is valid rows.

    Raises:
        KernelError: if shapes, mask or temperature do not fit.

    Example:
        >>> student = torch.zeros(1, 3)  # scores of 1 text for 3 classes
        >>> teacher = torch.tensor([[2.0, 0.0, 0.0]])
        >>> round(soft_label_kl(student, teacher, temperature=2.0).mean.item(), 4)
        0.4931
    """
    rows = student_logits.dim() - 1
    if rows < 1:
        raise KernelError(f"student_logits has shape {list(student_logits.shape)}; it has to be [rows..., classes].")
    logits = {"student_logits": student_logits, "teacher_logits": teacher_logits}
    terms.check_tensors(logits, rows + 1, "as student_logits is", alike=rows + 1)
    terms.check_temperature(temperature)
    mask = terms.as_mask(valid, student_logits, rows)
    inputs = terms.Inputs(student_logits, rows, mask, compute_dtype(student_logits, teacher_logits))
    with autocast_off(student_logits.device):
        student_log = (inputs.masked(student_logits) / temperature).log_softmax(-1)
        teacher_log = (inputs.masked(teacher_logits.detach()) / temperature).log_softmax(-1)
        share = teacher_log.exp()
        # An excluded class has a share of 0 and a logarithm of −inf, whose product would be NaN; it adds nothing.
        divergence = torch.where(share > 0, share * (teacher_log - student_log), 0.0)
        return inputs.term(divergence.sum() * temperature**2)


def label_ce(logits: Tensor, labels: Tensor, class_weights: ClassWeights | None = None) -> LossTerm:
    """Cross entropy of scores with labels: what `masked_lm_ce` and `hard_label_ce` compute.

    total = −Σ w[label_r] log softmax(z_r)[label_r] over rows whose label is not −100, in nats.

    Args:
        logits: `[rows..., V]`; carries gradient. −inf excludes a class, unless it is the label.
        labels: Whole numbers in 0 … V − 1, or −100 for a row that does not count, `[rows...]`.
        class_weights: w, `[V]`; None is 1 for every class.

    Returns:
        The summed cross entropy; the count is the rows with a label.

    Raises:
        KernelError: if the shapes do not fit, or (where it can be read without a stall) a label is out of range.
    """
    if logits.dim() < 2:
        raise KernelError(f"logits has shape {list(logits.shape)}; it has to be [rows..., classes].")
    terms.check_tensors({"logits": logits}, logits.dim(), "[rows..., classes]", alike=0)
    labelled = _labelled(labels, logits.shape[:-1], logits.shape[-1])
    dtype = compute_dtype(logits)
    weight = _weights(class_weights, logits, dtype)
    with autocast_off(logits.device):
        scores = terms.zero_masked(logits, labelled, dtype).flatten(0, -2)
        wanted = labels.flatten().long()
        total = F.cross_entropy(scores, wanted, weight, ignore_index=IGNORED_LABEL, reduction="sum")
        return LossTerm(total, labelled.sum().to(dtype))


def _weights(class_weights: ClassWeights | None, logits: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Check the weights of classes, and return them as a tensor of the computation."""
    if class_weights is None:
        return None
    weights = torch.as_tensor(class_weights, dtype=dtype, device=logits.device)
    if weights.shape != logits.shape[-1:]:
        raise KernelError(
            f"class_weights has shape {list(weights.shape)}; it has to be [{logits.shape[-1]}], one per class."
        )
    return weights


def _labelled(labels: Tensor, shape: torch.Size, classes: int) -> Tensor:
    """Check labels, and return which rows have one."""
    terms.check_labels(labels, shape)
    labelled = labels != IGNORED_LABEL
    if labels.device.type == "cpu" and labels.numel():
        # On another device the host would have to wait to read the labels, so they are checked on a CPU only.
        extremes = labels.masked_fill(~labelled, 0).aminmax()
        smallest = int(extremes.min)
        largest = int(extremes.max)
        if smallest < 0 or largest >= classes:
            wrong_label = smallest if smallest < 0 else largest
            raise KernelError(
                f"label {wrong_label} is neither from 0 to {classes - 1} nor {IGNORED_LABEL} (ignored); check the "
                "labels of the corpus and, for masked words, the tokenizer."
            )
    return labelled


def masked_lm_ce_from_hidden(
    student_hidden: Tensor, student_weight: Tensor, labels: Tensor, *, student_bias: Tensor | None = None
) -> LossTerm:
    """Cross entropy of the student's scores at the masked positions, from the input of its output layer.

    total = −Σ log softmax(hidden_t · weightᵀ + bias)[label_t] over positions whose label is not −100, in nats. It
    equals `masked_lm_ce` of the logits, scores the labelled positions alone and a chunk of them at a time, as
    `soft_label_kl_from_hidden` does, and has no second derivative.

    Source: as `masked_lm_ce`, which is the nearest alternative, where there are logits already.

    Args:
        student_hidden: Input of the student's output layer, `[..., width]`; carries gradient.
        student_weight: `[V, width]`; carries gradient, which adds up where it is tied to the embeddings.
        labels: As `masked_lm_ce` takes them, in the shape of the hidden vectors without their last axis.
        student_bias: `[V]`; carries gradient.

    Returns:
        The summed cross entropy; the count is the labelled positions.

    Raises:
        KernelError: as `soft_label_kl_from_hidden` and `label_ce`.
    """
    rows = student_hidden.dim() - 1
    if rows < 1:
        raise KernelError(f"student_hidden has shape {list(student_hidden.shape)}; it has to be [rows..., width].")
    terms.check_tensors({"student_hidden": student_hidden}, rows + 1, "[rows..., width]", alike=0)
    _check_head("student", student_hidden, student_weight, student_bias)
    labelled = _labelled(labels, student_hidden.shape[:-1], len(student_weight))
    head = Head(student_hidden.flatten(0, -2), student_weight, student_bias)
    total = label_ce_chunked(head, labels.flatten(), labelled.flatten())
    return LossTerm(total, labelled.sum().to(total.dtype))


@register_as_objective(unit="label", from_hidden=masked_lm_ce_from_hidden)
def masked_lm_ce(logits: Tensor, labels: Tensor) -> LossTerm:
    """Cross entropy of the student's scores at the masked positions.

    total = −Σ log softmax(z_t)[label_t] over positions whose label is not −100, in nats.

    Source: DistilBERT §3 (its masked language modelling loss); the `mlm` baseline. Nearest alternative:
    `soft_label_kl`, with the teacher's distribution as label.

    Args:
        logits: `[B, L, V]`, or `[rows, V]` of the masked positions alone; carries gradient.
        labels: Whole numbers in 0 … V − 1, or −100 where nothing was masked, `[B, L]` or `[rows]`.

    Returns:
        The summed cross entropy; the count is the labelled positions.

    Raises:
        KernelError: as `label_ce`.

    Example:
        >>> scores = torch.zeros(1, 3, 8)  # 1 sample, 3 tokens, 8 words
        >>> labels = torch.tensor([[-100, 5, -100]])  # the second token is masked
        >>> round(masked_lm_ce(scores, labels).mean.item(), 4)
        2.0794
    """
    return label_ce(logits, labels)


@register_as_objective(unit="label")
def hard_label_ce(logits: Tensor, labels: Tensor, *, class_weights: ClassWeights | None = None) -> LossTerm:
    """Cross entropy of the student's scores with the labels of its task.

    total = −Σ w[label_r] log softmax(z_r)[label_r] over rows whose label is not −100, in nats.

    Source: BERT-PKD (Sun et al. 2019) §3.1; the usual fine-tuning loss. With weights it is the sum of
    `torch.nn.CrossEntropyLoss(weight)`, whose mean divides by the weights of the rows: here the count stays that of
    the rows, so that parts of a batch add up. Nearest alternatives: `masked_lm_ce`, the same on a vocabulary;
    `hard_label_binary_ce`, where a text has several labels; `soft_label_kl`, with the teacher's distribution as label.

    Args:
        logits: `[B, classes]`, or `[B, 2, L]` for the start and end of an answer; carries gradient. −inf excludes a
            class, unless it is the label.
        labels: Whole numbers in 0 … classes − 1, or −100 for a row that does not count: `[B]`, or `[B, 2]`.
        class_weights: w, `[classes]`; None is 1 for every class.

    Returns:
        The summed cross entropy; the count is the rows with a label.

    Raises:
        KernelError: as `label_ce`.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 0.0]])  # of 2 texts for 2 classes
        >>> round(hard_label_ce(scores, torch.tensor([0, 1])).mean.item(), 4)
        0.41
    """
    return label_ce(logits, labels, class_weights)


@register_as_objective(unit="sample")
def hard_label_binary_ce(logits: Tensor, labels: Tensor, *, class_weights: ClassWeights | None = None) -> LossTerm:
    """Cross entropy of the student's scores with the labels of its task, of which a text has any number.

    total = −Σ_bc [w_c y_bc log σ(z_bc) + (1 − y_bc) log(1 − σ(z_bc))], in nats, each class a decision by itself.

    Source: the usual fine-tuning loss of several labels a text (binary cross entropy). Weights are those of rows that
    have the class (`pos_weight` of `torch.nn.BCEWithLogitsLoss`): those without it count once. Nearest alternatives:
    `hard_label_ce`, for one class a text; `soft_label_binary_kl`, with the teacher's probabilities as labels.

    Args:
        logits: `[B, classes]`; carries gradient.
        labels: 1 where the row has the class, else 0, `[B, classes]`, floating point.
        class_weights: w, `[classes]`; None is 1 for every class.

    Returns:
        The summed cross entropy; the count is B x classes.

    Raises:
        KernelError: if the shapes do not fit, or (where it can be read without a stall) a label is not within 0 and 1.

    Example:
        >>> scores = torch.zeros(1, 3)  # of 1 text for 3 classes
        >>> labels = torch.tensor([[1.0, 0.0, 1.0]])
        >>> round(hard_label_binary_ce(scores, labels).mean.item(), 4)
        0.6931
    """
    inputs = terms.check_inputs("[B, classes]", {"logits": logits, "labels": labels}, units=1, alike=2)
    if labels.device.type == "cpu" and not ((labels >= 0) & (labels <= 1)).all():
        raise KernelError("A label is outside 0 to 1; give 1 where a row has the class, and 0 elsewhere.")
    weight = _weights(class_weights, logits, inputs.dtype)
    with autocast_off(logits.device):
        scores = inputs.masked(logits)
        wanted = inputs.masked(labels)
        total = F.binary_cross_entropy_with_logits(scores, wanted, pos_weight=weight, reduction="sum")
        return inputs.term(total, per_unit=logits.shape[1])


@register_as_objective(unit="sample")
def soft_label_binary_kl(student_logits: Tensor, teacher_logits: Tensor, *, temperature: float = 1.0) -> LossTerm:
    """Divergence of the student's probability of each class from the teacher's, where a text has any number of them.

    total = T² Σ_bc [p log(p / q) + (1 − p) log((1 − p) / (1 − q))] with p = σ(z^T_bc/T), q = σ(z^S_bc/T), in nats, 0 at
    equality. T² keeps the size of the gradient, T (q − p), when T changes.

    Source: `soft_label_kl` of two classes for each class, with the scores z and 0; the binary cross entropy of the two
    probabilities differs by the teacher's entropy and has the same gradient. Nearest alternatives: `soft_label_kl`,
    where classes exclude each other; `hard_label_binary_ce`, with hard labels.

    Args:
        student_logits: `[B, classes]`; carries gradient.
        teacher_logits: The same shape; never gets a gradient.
        temperature: T, above 0.

    Returns:
        The summed divergence; the count is B x classes.

    Raises:
        KernelError: if shapes or temperature do not fit.

    Example:
        >>> student = torch.zeros(1, 2)  # scores of 1 text for 2 classes
        >>> teacher = torch.tensor([[2.0, 0.0]])
        >>> round(soft_label_binary_kl(student, teacher).mean.item(), 4)
        0.1639
    """
    pair = {"student_logits": student_logits, "teacher_logits": teacher_logits}
    # A text is a unit of the mean (the first axis), and both axes agree in size.
    inputs = terms.check_inputs("[B, classes]", pair, units=1, alike=2)
    terms.check_temperature(temperature)
    with autocast_off(student_logits.device):
        # Every text counts, so there is no mask: `masked` only converts to the dtype of the computation.
        student = inputs.masked(student_logits) / temperature
        teacher = inputs.masked(teacher_logits.detach()) / temperature
        # The class is present with p = σ(z), and absent with 1 − p = σ(−z). Each has its part of the divergence.
        present = teacher.sigmoid() * (F.logsigmoid(teacher) - F.logsigmoid(student))
        absent = (-teacher).sigmoid() * (F.logsigmoid(-teacher) - F.logsigmoid(-student))
        return inputs.term((present + absent).sum() * temperature**2, per_unit=student_logits.shape[1])


@register_as_objective(unit="sample")
def hard_label_mse(values: Tensor, labels: Tensor) -> LossTerm:
    """Squared error of the student's value with the label of its task.

    total = sum_b (z_b - y_b)^2.

    Source: the usual fine-tuning loss of regression tasks such as STS-B. Nearest alternative: `soft_label_mse`, with
    the teacher's value as label.

    Args:
        values: `[B, 1]`; carries gradient.
        labels: `[B]`, floating point.

    Returns:
        The summed squared error; the count is B.

    Raises:
        KernelError: if the shapes do not fit or a label is no floating-point number.

    Example:
        >>> values = torch.tensor([[1.0], [3.0]])  # of 2 texts
        >>> hard_label_mse(values, torch.tensor([1.0, 2.0])).mean
        tensor(0.5000)
    """
    inputs = terms.check_inputs("[B, 1]", {"values": values}, units=1)
    terms.check_tensors({"labels": labels}, 1, "[B]", alike=0)
    if values.shape != (len(labels), 1):
        raise KernelError(
            f"values has shape {list(values.shape)} and labels {list(labels.shape)}; they have to be [B, 1] and [B]."
        )
    with autocast_off(values.device):
        return inputs.term((inputs.masked(values[:, 0]) - inputs.masked(labels)).square().sum())


@register_as_objective(unit="sample")
def soft_label_mse(student_values: Tensor, teacher_values: Tensor) -> LossTerm:
    """Squared error of the student's value with the teacher's, for tasks without classes.

    total = sum (z^S - z^T)^2 over samples and values.

    Source: comparing scores themselves is Ba and Caruana's form of distillation (2014); a softmax over the one output
    of a regression would be 1 whatever it is. Nearest alternative: `soft_label_kl`, for classes.

    Args:
        student_values: `[B, values]`, normally one; carries gradient.
        teacher_values: The same shape; never gets a gradient.

    Returns:
        The summed squared error; the count is B x values.

    Raises:
        KernelError: if the shapes do not fit.

    Example:
        >>> student = torch.tensor([[1.0], [3.0]])  # values of 2 texts
        >>> soft_label_mse(student, torch.tensor([[1.0], [2.0]])).mean
        tensor(0.5000)
    """
    pair = {"student_values": student_values, "teacher_values": teacher_values}
    inputs = terms.check_inputs("[B, values]", pair, units=1, alike=2)
    with autocast_off(student_values.device):
        total = (inputs.masked(student_values) - inputs.masked(teacher_values.detach())).square().sum()
        return inputs.term(total, per_unit=student_values.shape[1])


@register_as_objective(unit="group")
def margin_mse(student_values: Tensor, teacher_values: Tensor, *, groups: Tensor) -> LossTerm:
    """Squared error of the differences between the scores of a query's documents.

    total = sum over queries of the mean over pairs i < j of its documents of ((z^S_i - z^S_j) - (z^T_i - z^T_j))^2.

    The student is free to score a query's documents higher or lower as a whole. All pairs are compared, so that no
    document has to be known as the relevant one; the mean is 2 / (n - 1) Σ_i (d_i - d̄)^2 with d = z^S - z^T. A query
    with one document counts nothing.

    Source: Margin-MSE (Hofstätter et al., arXiv 2010.02666, section 3), for one relevant and one other document, with
    which this agrees for queries of two. Nearest alternatives: `soft_label_mse`, the scores themselves; `listwise_kl`,
    their distribution.

    Args:
        student_values: Scores of pairs of a query and a document, `[B, 1]`; carries gradient.
        teacher_values: The same shape; never gets a gradient.
        groups: The number of each pair's query, whole numbers `[B]`.

    Returns:
        The summed means; the count is queries with two documents or more.

    Raises:
        KernelError: if shapes or groups do not fit.

    Example:
        >>> student = torch.tensor([[1.0], [3.0], [0.0]])  # scores of 3 documents
        >>> teacher = torch.tensor([[1.0], [4.0], [0.0]])
        >>> groups = torch.tensor([0, 0, 1])  # the first two answer one query
        >>> margin_mse(student, teacher, groups=groups).mean
        tensor(1.)
    """
    student, teacher, same_query = _check_scores(student_values, teacher_values, groups)
    with autocast_off(student.device):
        # [B] each: d of every document, then n and d̄ of the documents of its query.
        difference = _margins(student, same_query) - _margins(teacher, same_query)
        size = same_query.sum(1)
        mean = (same_query.to(difference.dtype) @ difference) / size
        # A query of one document has n − 1 = 0 and a difference of 0 from its mean.
        total = (2 * (difference - mean).square() / (size - 1).clamp(min=1)).sum()
        return LossTerm(total, terms.count_groups(same_query).to(total.dtype))


def _margins(scores: Tensor, same_query: Tensor) -> Tensor:
    """Return the score of each document less that of the first document of its query, `[B]`.

    `margin_mse` compares differences of a query's scores, which stay the same. Scores that are higher as a whole, as a
    student's may become, would otherwise be rounded at their size, and differences of them would be too.

    Args:
        scores: `[B]`.
        same_query: Which documents are of one query, bool `[B, B]`.
    """
    # The index of the first document of each document's query: `argmax` gives the first of several ones.
    first = same_query.to(torch.uint8).argmax(1)
    # The loss does not change with the score that is subtracted, so neither does its gradient.
    return scores - scores.detach()[first]


@register_as_objective(unit="group")
def listwise_kl(
    student_values: Tensor, teacher_values: Tensor, *, groups: Tensor, temperature: float = 1.0
) -> LossTerm:
    """Divergence of the student's distribution over a query's documents from the teacher's.

    total = T² Σ KL(softmax(z^T/T) ‖ softmax(z^S/T)) over queries, the softmax over the documents of each, in nats, 0 at
    equality. A query with one document counts nothing.

    Source: the listwise distillation of RocketQAv2 (arXiv 2110.07367, section 3), which has no temperature; with labels
    in the teacher's place it is RankT5's softmax loss (arXiv 2210.10634). Nearest alternative: `margin_mse`, which
    weighs documents at the end of the list as those at its head.

    Args:
        student_values: Scores of pairs of a query and a document, `[B, 1]`; carries gradient.
        teacher_values: The same shape; never gets a gradient.
        groups: The number of each pair's query, whole numbers `[B]`.
        temperature: T, above 0.

    Returns:
        The summed divergence; the count is queries with two documents or more.

    Raises:
        KernelError: if shapes, groups or temperature do not fit.

    Example:
        >>> student = torch.tensor([[0.0], [0.0]])  # scores of 2 documents
        >>> teacher = torch.tensor([[2.0], [0.0]])
        >>> groups = torch.tensor([0, 0])  # both answer one query
        >>> round(listwise_kl(student, teacher, groups=groups).mean.item(), 4)
        0.3278
    """
    terms.check_temperature(temperature)
    student, teacher, same_query = _check_scores(student_values, teacher_values, groups)
    with autocast_off(student.device):
        student_log = _log_shares(student / temperature, same_query)
        teacher_log = _log_shares(teacher / temperature, same_query)
        total = (teacher_log.exp() * (teacher_log - student_log)).sum() * temperature**2
        return LossTerm(total, terms.count_groups(same_query).to(total.dtype))


def _log_shares(scores: Tensor, same_query: Tensor) -> Tensor:
    """Return the log softmax of scores over the documents of each query.

    Each row takes its greatest score off before anything is rounded: z − log Σ exp z would be rounded at the size of
    the scores, which a student of this loss may have shifted as a whole.

    Args:
        scores: `[B]`.
        same_query: Which documents are of one query, bool `[B, B]`.

    Returns:
        `[B]`.
    """
    # [B, B]: for each document the scores of those of its query, its own on the diagonal.
    scores_of_query = scores.expand(len(scores), -1).masked_fill(~same_query, -torch.inf)
    return scores_of_query.log_softmax(1).diagonal()


class _DocumentScores(NamedTuple):
    """Scores of documents.

    Attributes:
        student: The student's, `[B]`.
        teacher: The teacher's, `[B]`, without gradient.
        same_query: Which documents are of one query, bool `[B, B]`.
    """

    student: Tensor
    teacher: Tensor
    same_query: Tensor


def _check_scores(student_values: Tensor, teacher_values: Tensor, groups: Tensor) -> _DocumentScores:
    """Check scores of documents, `[B, 1]` each, and the numbers of their queries, `[B]`."""
    pair = {"student_values": student_values, "teacher_values": teacher_values}
    inputs = terms.check_inputs("[B, 1]", pair, units=1, alike=2)
    if student_values.shape[1] != 1:
        raise KernelError(f"student_values has shape {list(student_values.shape)}; it has to be [B, 1].")
    return _DocumentScores(
        student=inputs.masked(student_values)[:, 0],
        teacher=inputs.masked(teacher_values.detach())[:, 0],
        same_query=terms.same_group(groups, student_values),
    )
