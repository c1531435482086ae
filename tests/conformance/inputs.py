"""Inputs for every registered objective. A new objective needs a maker here, or the conformance suite fails."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from limbeck.objectives import OBJECTIVES, LossTerm

HEADS, STUDENT, TEACHER, CLASSES = 2, 6, 10, 5


@dataclass(frozen=True)
class Case:
    """Arguments of one call: streams of both models, labels where there are any, and keywords.

    `valid` covers the leading two axes of the streams for objectives that take it.
    """

    student: list[Tensor]
    teacher: list[Tensor]
    labels: Tensor | None = None
    valid: Tensor | None = None
    options: dict = field(default_factory=dict)
    groups: Tensor | None = None

    def call(self, name: str) -> LossTerm:
        objective = OBJECTIVES[name]
        options = {**self.options, **objective.arguments({"valid": self.valid, "groups": self.groups})}
        return objective.call(self.student, self.teacher, self.labels, **options)

    def gradients(self, name: str, upstream: float = 1.0) -> tuple[LossTerm, list[Tensor]]:
        student = [x.detach().clone().requires_grad_() for x in self.student]
        term = replace(self, student=student).call(name)
        found = torch.autograd.grad(term.total * upstream, student)
        return LossTerm(term.total.detach(), term.count), list(found)

    def map(self, function) -> "Case":
        """Apply `function` to every tensor with a batch axis."""
        return replace(
            self,
            student=[function(x) for x in self.student],
            teacher=[function(x) for x in self.teacher],
            labels=None if self.labels is None else function(self.labels),
            valid=None if self.valid is None else function(self.valid),
            groups=None if self.groups is None else function(self.groups),
        )

    def to(self, dtype: torch.dtype) -> "Case":
        """Change the dtype of streams and learned maps."""

        def convert(x):
            return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x

        changed = self.map(convert)
        return replace(changed, options={key: convert(x) for key, x in self.options.items()})

    def units(self, name: str) -> float:
        """What the count of `name` has to be proportional to."""
        batch, length = self.student[0].shape[:2]
        valid = torch.ones(batch, length) if self.valid is None else self.valid
        return {
            "token": lambda: valid.sum().item(),
            "row": lambda: valid.sum().item(),
            "pair": lambda: valid.sum(1).square().sum().item(),
            "sample": lambda: batch,
            "label": lambda: (self.labels != -100).sum().item(),
            "group": lambda: (self.groups.bincount() > 1).sum().item(),
        }[OBJECTIVES[name].unit]()


class Maker:
    """Draws float64 tensors one after another from one seed."""

    def __init__(self, seed: int, batch: int, length: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.batch, self.length = batch, length

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator)

    def tokens(self, width: int) -> Tensor:
        return self.normal(self.batch, self.length, width)

    def samples(self, width: int) -> Tensor:
        return self.normal(self.batch, width)

    def whole(self, high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=self.generator)

    def valid(self) -> Tensor:
        """Gaps in every sample, at least one token each."""
        mask = torch.rand(self.batch, self.length, generator=self.generator) < 0.7
        mask[:, self.length // 2] = True
        return mask

    def token_pair(self, count: int, student: int, teacher: int, **options) -> Case:
        streams = [[self.tokens(width) for _ in range(count)] for width in (student, teacher)]
        return Case(*streams, valid=self.valid(), options=options)


def _masked_lm(maker: Maker) -> Case:
    labels = maker.whole(CLASSES, maker.batch, maker.length).masked_fill(~maker.valid(), -100)
    return Case([maker.tokens(CLASSES)], [], labels)


def _documents(maker: Maker) -> Case:
    """One document of a query, three of the next and two of a third, as far as the batch goes."""
    groups = torch.tensor([5, 1, 1, 1, 2, 2][: maker.batch] if maker.batch > 2 else [1, 1])
    return Case([maker.samples(1)], [maker.samples(1)], groups=groups)


def _contrastive(maker: Maker) -> Case:
    rows = [torch.nn.functional.normalize(maker.samples(TEACHER), dim=-1) for _ in range(2)]
    return Case(rows[:1], rows[1:], maker.whole(2, maker.batch))


MAKERS = {
    "relation_kl": lambda m: m.token_pair(2, STUDENT, TEACHER, heads=HEADS),
    "attention_score_mse": lambda m: m.token_pair(2, STUDENT, TEACHER, heads=HEADS),
    "hidden_mse": lambda m: m.token_pair(1, STUDENT, TEACHER, projection=m.normal(STUDENT, TEACHER)),
    "hidden_cosine": lambda m: m.token_pair(1, TEACHER, TEACHER),
    "direct_mse": lambda m: m.token_pair(
        1, STUDENT, TEACHER, heads=HEADS, projections=m.normal(HEADS, STUDENT // HEADS, TEACHER // HEADS)
    ),
    "soft_label_kl": lambda m: m.token_pair(1, CLASSES, CLASSES, temperature=2.0),
    "masked_lm_ce": _masked_lm,
    "hard_label_ce": _masked_lm,
    "hard_label_binary_ce": lambda m: Case([m.samples(CLASSES)], [], m.whole(2, m.batch, CLASSES).double()),
    "soft_label_binary_kl": lambda m: Case([m.samples(CLASSES)], [m.samples(CLASSES)], options={"temperature": 2.0}),
    "hard_label_mse": lambda m: Case([m.samples(1)], [], m.samples(1)[:, 0]),
    "soft_label_mse": lambda m: Case([m.samples(1)], [m.samples(1)]),
    "margin_mse": _documents,
    "listwise_kl": lambda m: replace(_documents(m), options={"temperature": 2.0}),
    "sample_relation_kl": lambda m: Case([m.samples(STUDENT)], [m.samples(TEACHER)]),
    "sample_contrastive": _contrastive,
    # As many layers as the teacher has, so that they can be equal.
    "layer_emd": lambda m: m.token_pair(3, STUDENT, TEACHER, projection=m.normal(STUDENT, TEACHER)),
    "attention_layer_emd": lambda m: m.token_pair(6, STUDENT, TEACHER, heads=HEADS),
    "patient_mse": lambda m: Case([m.samples(TEACHER)], [m.samples(TEACHER)]),
    **dict.fromkeys(
        ("pooled_cosine", "pooled_distance"),
        lambda m: Case([m.samples(STUDENT)], [m.samples(TEACHER)], options={"projection": m.normal(STUDENT, TEACHER)}),
    ),
}


NAMES = list(OBJECTIVES)
MASKED = [name for name in NAMES if OBJECTIVES[name].takes_valid or OBJECTIVES[name].unit == "label"]


def make_case(name: str, seed: int = 0, batch: int = 4, length: int = 6) -> Case:
    """Float64 inputs of one objective."""
    return MAKERS[name](Maker(seed, batch, length))


def make_equal(case: Case) -> Case:
    """The student's streams are the teacher's, and nothing maps them."""
    options = {key: x for key, x in case.options.items() if not key.startswith("projection")}
    return replace(case, student=[x.clone() for x in case.teacher], options=options)


def with_padding(case: Case, before: int, after: int) -> Case:
    """More tokens that do not count, holding NaN."""

    def pad(x: Tensor) -> Tensor:
        fill = float("nan") if x.is_floating_point() else False if x.dtype == torch.bool else -100
        left, right = (x.new_full((x.shape[0], n, *x.shape[2:]), fill) for n in (before, after))
        return torch.cat([left, x, right], 1)

    return case.map(pad)


def all_masked(case: Case) -> Case:
    """No token counts."""
    labels = None if case.labels is None else torch.full_like(case.labels, -100)
    return replace(case, valid=None if case.valid is None else torch.zeros_like(case.valid), labels=labels)
