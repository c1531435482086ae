"""The sides of `training_step.py`: the same models and batch, and each side's way from them to a loss.

- `limbeck`: the module that its trainer trains, with the terms of the method minilmv2 and without the parameters that
  they do not reach. In bfloat16 as a run has it: the teacher's weights in bfloat16, the student under autocast.
- `bertdistiller`: the package itself (0.1.2 on PyPI), its own `MiniLMTrainer.compute_loss`, with the teacher as its
  instructions load it: with gradients on, and read without.
- `relation_loop`: in the style of bloomberg/minilmv2.bb, which is on no index and pins torch 1.9; written from a
  description of what it does, not from its code. Both models run to the end with hidden states and the attention
  probabilities of all layers, which takes eager attention; the teacher is frozen, but not under `no_grad`. Queries,
  keys and values are projected a second time from the last but one hidden states. Relations of the whole padded batch
  are materialised for all heads; then for one example after the other rows and columns of padding are cut off and
  `torch.nn.KLDivLoss(reduction="sum")` compares what is left.

In bfloat16 the two peers compute all of their loss under autocast, teacher and relations included, with their weights
in float32. That is more than their own trainers do with `bf16=True`, where only the student's forward is under it.

Both peers take the mean over rows within each example and then over the examples; limbeck takes it over all rows of
the batch. On ragged batches the two differ, so every side's loss is compared by both definitions.
"""

from __future__ import annotations

import copy
import math
import sys
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, BertConfig, PreTrainedModel

Batch = dict[str, Tensor]
PEERS = ("bertdistiller", "relation_loop")
# BERT's own, except for what a shape changes.
INITIALISER_RANGE = 0.02
FIRST_WORD = 1000


@dataclass(frozen=True)
class Setting:
    """What all sides have in common.

    Args:
        teacher: Layers and width of the teacher.
        student: Layers and width of the student.
        heads: Attention heads of both, or of the student where the teacher has its own.
        relation_heads: Relation heads; divides both widths.
        vocabulary: Words of both.
        dropout: All dropout rates of the student; the teacher never drops anything.
        batch: Examples of a batch.
        length: L; lengths are uniform in [L/2, L], and the batch is padded on the right to its longest.
        seed: Decides weights and batch.
        teacher_heads: Attention heads of the teacher; None for `heads`.
        device: Where the peers' models are.
    """

    teacher: tuple[int, int]
    student: tuple[int, int]
    heads: int
    relation_heads: int
    vocabulary: int
    dropout: float
    batch: int
    length: int
    seed: int
    teacher_heads: int | None = None
    device: str = "cpu"

    def tiny(self) -> Setting:
        """A setting that loads what is loaded once, and holds next to nothing."""
        width = math.lcm(self.heads, self.relation_heads, self.teacher_heads or 1)
        changed = {"teacher": (1, width), "student": (1, width), "vocabulary": 2 * FIRST_WORD, "batch": 2, "length": 8}
        return Setting(**{**self.__dict__, **changed})


@dataclass(frozen=True)
class Side:
    """One side.

    Args:
        student: What is trained; only parameters that want a gradient are.
        loss: From a batch to the loss, without autocast.
        autocast: Whether the loss is to be computed under bfloat16 autocast.
        version: Version of the package.
    """

    student: nn.Module
    loss: Callable[[Batch], Tensor]
    autocast: bool
    version: str | None = None

    def compute(self, batch: Batch) -> Tensor:
        """The loss in the side's number format."""
        with torch.autocast(batch["input_ids"].device.type, torch.bfloat16, enabled=self.autocast):
            return self.loss(batch)


def make_batch(setting: Setting) -> Batch:
    """Random words, right padding."""
    generator = torch.Generator().manual_seed(setting.seed)
    lengths = torch.randint(setting.length // 2, setting.length + 1, (setting.batch, 1), generator=generator)
    mask = torch.arange(int(lengths.max())) < lengths
    words = torch.randint(FIRST_WORD, setting.vocabulary, mask.shape, generator=generator)
    return {"input_ids": words * mask, "attention_mask": mask.long()}


def make_model(role: str, setting: Setting, *, dtype: torch.dtype = torch.float32, **options: Any) -> PreTrainedModel:
    """The teacher or the student, with weights that depend on the seed and their names alone.

    On a CPU they are never there twice, nor in another dtype as a whole: the highest resident size would remember it.
    For other devices they are drawn once.
    """
    if setting.device == "cpu":
        return _draw_model(role, setting, dtype, **options)
    drawn = _model_of(role, replace(setting, batch=0, length=0), dtype, tuple(options.items()))
    return copy.deepcopy(drawn).to(setting.device)


@lru_cache
def _model_of(role: str, setting: Setting, dtype: torch.dtype, options: tuple[tuple[str, Any], ...]) -> PreTrainedModel:
    return _draw_model(role, setting, dtype, **dict(options))


def _draw_model(role: str, setting: Setting, dtype: torch.dtype, **options: Any) -> PreTrainedModel:
    layers, width = setting.teacher if role == "teacher" else setting.student
    dropout = setting.dropout if role == "student" else 0.0
    config = BertConfig(
        vocab_size=setting.vocabulary,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=(role == "teacher" and setting.teacher_heads) or setting.heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        architectures=["BertForMaskedLM"],
    )
    model = AutoModel.from_config(config, dtype=dtype, **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(f"{setting.seed} {role} {name}".encode()))
            if not name.endswith("LayerNorm.weight"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * INITIALISER_RANGE)
    return model


def make_side(name: str, dtype: str, setting: Setting, bertdistiller: str | None) -> Side:
    """Build one side; each imports its own package only.

    Args:
        name: `"limbeck"` or one of `PEERS`.
        dtype: `"float32"` or `"bfloat16"`.
        setting: What all sides have in common.
        bertdistiller: Folder that the package was installed into, if it is not installed here.
    """
    if name == "limbeck":
        return _limbeck(setting, dtype)
    if name == "bertdistiller":
        return _bertdistiller(setting, dtype, bertdistiller)
    return _relation_loop(setting, dtype)


def _limbeck(setting: Setting, dtype: str) -> Side:
    from limbeck.core.memory import keep_freed_memory
    from limbeck.methods.pairing import Pairing
    from limbeck.methods.registry import METHODS
    from limbeck.models.families import shape_of
    from limbeck.models.teaching_facts import facts_of_shape
    from limbeck.training.freezing import freeze_unreached
    from limbeck.training.module import DistillationModule
    from limbeck.training.teaching.live import LiveTeaching
    from limbeck.version import __version__

    teacher = make_model("teacher", setting, dtype=getattr(torch, dtype), add_pooling_layer=False)
    student = make_model("student", setting, add_pooling_layer=False)
    method = METHODS["minilmv2"]
    pairing = Pairing(student=shape_of(student.config), teacher=facts_of_shape(shape_of(teacher.config)))
    terms = method.compose(method.options(relation_heads=setting.relation_heads), pairing)
    module = DistillationModule(student, LiveTeaching(teacher, terms), terms)
    keep_freed_memory()  # As a run does, which reads its weights from files and makes none.
    freeze_unreached(module, {key: value[:2] for key, value in make_batch(setting).items()})
    module.teaching.move("cpu")

    def loss(batch: Batch) -> Tensor:
        outputs = module(**batch)
        shares = [term.weight * outputs[term.name][0] / outputs[term.name][1] for term in terms]
        return torch.stack(shares).sum()

    return Side(module, loss, dtype == "bfloat16", __version__)


def _bertdistiller(setting: Setting, dtype: str, folder: str | None) -> Side:
    if folder is not None:
        sys.path.append(folder)
    from importlib.metadata import version

    from bertdistiller import MiniLMTrainer, MiniLMTrainingArguments

    arguments = MiniLMTrainingArguments(
        output_dir=tempfile.gettempdir(),
        teacher_layer=setting.teacher[0],
        student_layer=setting.student[0],
        student_hidden_size=setting.student[1],
        student_attention_heads=setting.heads,
        num_relation_heads=setting.relation_heads,
        use_cpu=setting.device == "cpu",
        report_to="none",
    )
    teacher, student = make_model("teacher", setting), make_model("student", setting)
    trainer = MiniLMTrainer(args=arguments, teacher_model=teacher, model=student)

    def loss(batch: Batch) -> Tensor:
        return trainer.compute_loss(student, batch)

    return Side(student, loss, dtype == "bfloat16", version("bertdistiller"))


def _relation_loop(setting: Setting, dtype: str) -> Side:
    teacher = make_model("teacher", setting, attn_implementation="eager").eval().requires_grad_(False)
    student = make_model("student", setting, attn_implementation="eager")
    divergence = nn.KLDivLoss(reduction="sum")
    heads = setting.relation_heads

    def projected(model: PreTrainedModel, batch: Batch) -> list[Tensor]:
        """Queries, keys and values of the last layer by relation head, `[B, heads, L, width / heads]`."""
        outputs = model(**batch, output_hidden_states=True, output_attentions=True)
        below = outputs.hidden_states[-2]
        attention = model.encoder.layer[-1].attention.self
        maps = (attention.query, attention.key, attention.value)
        return [part(below).unflatten(-1, (heads, -1)).transpose(1, 2) for part in maps]

    def relation(vectors: Tensor) -> Tensor:
        return vectors @ vectors.mT / math.sqrt(vectors.shape[-1])

    def loss(batch: Batch) -> Tensor:
        lengths = batch["attention_mask"].sum(1).tolist()
        total = torch.zeros(())
        for theirs, own in zip(projected(teacher, batch), projected(student, batch), strict=True):
            wanted, found = relation(theirs), relation(own)
            for example, length in enumerate(lengths):
                target = wanted[example, :, :length, :length].softmax(-1)
                guess = found[example, :, :length, :length].log_softmax(-1)
                total = total + divergence(guess.flatten(0, 1), target.flatten(0, 1)) / (heads * length)
        return total / len(lengths)

    return Side(student, loss, dtype == "bfloat16")
