"""Relation heads under rotary positions: what a student learns of whole attention heads, of parts, and before rotation.

    python benchmarks/rotary_relations.py

A rotary embedding turns pairs of features of each query and key by an angle that grows with the position. The product
of two whole heads then depends on their distance alone. MiniLMv2 has more relation heads than attention heads, which
parts the pairs. Three rules are measured on a teacher that is pretrained here by masked language modelling on the
docstrings of Python's standard library:

- `parts`: relation heads of a quarter of an attention head, after rotation
- `whole`: one relation head for each attention head, after rotation; this is limbeck's rule
- `before`: relation heads of a quarter of an attention head, read before rotation by hooks on the projections

For each rule and seed a student of half the depth and width learns the relations of the teacher's last layer, and is
then tuned by masked language modelling. `shift` is the divergence (nats) of the teacher's query relations from those of
the same content 20 positions further on, `loss` the student's loss on held-out text after tuning. Rows are written to
`results/rotary_relations.json`.
"""

from __future__ import annotations

import ast
import statistics
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, NomicBertConfig, PreTrainedModel

from harness import write_rows
from limbeck.models.family_table import Projections, families
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from limbeck.objectives import relation_kl

LENGTH = 64
BATCH = 16
VOCABULARY = 4000
MASK = 1
MASKED_SHARE = 0.15
TEACHER = {"num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
STUDENT = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256}
TEACHER_STEPS = 1000
DISTIL_STEPS = 400
TUNE_STEPS = 120
SEEDS = (1, 2, 3)
SHIFT = 20
STREAMS = ("query", "key", "value")
RESULTS = Path(__file__).with_name("results") / "rotary_relations.json"


@dataclass(frozen=True)
class Rule:
    """How queries and keys are related.

    Args:
        heads: Number of relation heads.
        before_rotation: Whether queries and keys are read before they are rotated.
    """

    heads: int
    before_rotation: bool


RULES = {"parts": Rule(16, False), "whole": Rule(4, False), "before": Rule(16, True)}


def read_docstrings() -> list[str]:
    """Return the docstrings of the standard library, module by module."""
    texts: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py")):
        if {"site-packages", "test", "tests", "idlelib", "lib2to3"} & {*path.parts}:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
        texts += [ast.get_docstring(node) or "" for node in nodes]
    return [text for text in texts if len(text) > 40]


def read_blocks() -> Tensor:
    """Return the text as blocks of tokens, `[blocks, LENGTH]`, by a tokenizer that is trained on it."""
    texts = read_docstrings()
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=["[PAD]", "[MASK]", "[UNK]", "[SEP]"], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    separator = tokenizer.token_to_id("[SEP]")
    ids = [number for encoding in tokenizer.encode_batch(texts) for number in (*encoding.ids, separator)]
    whole = len(ids) // LENGTH * LENGTH
    blocks = torch.tensor(ids[:whole]).view(-1, LENGTH)
    return blocks[torch.randperm(len(blocks), generator=torch.Generator().manual_seed(0))]


def make_model(sizes: dict[str, int], seed: int) -> PreTrainedModel:
    """Make a model with random weights and a head for masked language modelling."""
    torch.manual_seed(seed)
    config = NomicBertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=2 * LENGTH,
        pad_token_id=0,
        bos_token_id=3,
        eos_token_id=3,
        **sizes,
    )
    model: PreTrainedModel = AutoModelForMaskedLM.from_config(config)
    return model


def masked_loss(model: PreTrainedModel, blocks: Tensor, generator: torch.Generator) -> Tensor:
    """Return the loss of masked language modelling on some blocks; masked tokens are all hidden by the mask."""
    is_masked = torch.rand(blocks.shape, generator=generator) < MASKED_SHARE
    logits = model(input_ids=blocks.masked_fill(is_masked, MASK), attention_mask=torch.ones_like(blocks)).logits
    return nn.functional.cross_entropy(logits[is_masked], blocks[is_masked])


def batches(blocks: Tensor, steps: int, seed: int) -> Iterator[Tensor]:
    """Iterate over random batches of blocks."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield blocks[torch.randint(len(blocks), (BATCH,), generator=generator)]


def pretrain(model: PreTrainedModel, blocks: Tensor, steps: int, seed: int, rate: float) -> None:
    """Train a model by masked language modelling, with a linear warm-up and decay."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    model.train()
    for step, batch in enumerate(batches(blocks, steps, seed)):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 50) * (1 - step / steps)
        optimizer.zero_grad()
        masked_loss(model, batch, generator).backward()
        optimizer.step()


def tap_of(model: PreTrainedModel, rule: Rule) -> StreamTap:
    """Tap queries, keys and values of a model's last layer, after rotation or before it."""
    keys = [StreamKey(name, model.config.num_hidden_layers) for name in STREAMS]
    if not rule.before_rotation:
        return StreamTap(model, keys)
    names = [f"self_attn.{name}_proj" for name in "qkvo"]
    family = replace(families["nomic_bert"], projections=Projections(*names), packs=False)
    with patch("limbeck.models.taps.family_of", return_value=family):
        return StreamTap(model, keys)


def relation_loss(student: list[Tensor], teacher: list[Tensor], heads: int, valid: Tensor) -> Tensor:
    """Return the sum of the divergences of query, key and value relations."""
    losses = []
    for ours, theirs in zip(student, teacher, strict=True):
        term = relation_kl(ours, ours, theirs, theirs, heads=heads, valid=valid)
        losses.append(term.mean)
    return torch.stack(losses).sum()


def streams_of(tap: StreamTap, batch: Tensor, **inputs: Tensor) -> list[Tensor]:
    """Return queries, keys and values, `[B, L, width]` each."""
    streams = tap(batch, torch.ones_like(batch), **inputs)
    return [streams[key] for name in STREAMS for key in tap.keys if key.name == name]


def distil(teacher: PreTrainedModel, student: PreTrainedModel, blocks: Tensor, rule: Rule, seed: int) -> None:
    """Teach a student the relations of the teacher's last layer."""
    rate = 1e-3
    optimizer = torch.optim.AdamW(student.parameters(), lr=rate)
    with tap_of(teacher, rule) as teacher_tap, tap_of(student, rule) as student_tap:
        for step, batch in enumerate(batches(blocks, DISTIL_STEPS, seed)):
            optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 50) * (1 - step / DISTIL_STEPS)
            with torch.no_grad():
                theirs = streams_of(teacher_tap, batch)
            ours = streams_of(student_tap, batch)
            optimizer.zero_grad()
            relation_loss(ours, theirs, rule.heads, torch.ones_like(batch, dtype=torch.bool)).backward()
            optimizer.step()


@torch.no_grad()
def shift_of(teacher: PreTrainedModel, blocks: Tensor, rule: Rule) -> float:
    """Return the divergence of query relations from those of the same content `SHIFT` positions further on, in nats."""
    batch = blocks[:BATCH]
    positions = torch.arange(LENGTH).expand_as(batch)
    with tap_of(teacher, rule) as tap:
        query, *_ = streams_of(tap, batch, position_ids=positions)
        shifted, *_ = streams_of(tap, batch, position_ids=positions + SHIFT)
    valid = torch.ones_like(batch, dtype=torch.bool)
    term = relation_kl(shifted, shifted, query, query, heads=rule.heads, valid=valid)
    return float(term.mean)


@torch.no_grad()
def held_out_loss(model: PreTrainedModel, blocks: Tensor) -> float:
    """Return the mean loss of masked language modelling on held-out blocks, with the same masks for every model."""
    model.eval()
    generator = torch.Generator().manual_seed(0)
    return statistics.mean(float(masked_loss(model, part, generator)) for part in blocks.split(BATCH))


def main() -> None:
    """Measure all rules and write the rows."""
    torch.set_num_threads(1)
    blocks = read_blocks()
    held_out, blocks = blocks[:512], blocks[512:]
    started = time.perf_counter()
    teacher = make_model(TEACHER, 0)
    pretrain(teacher, blocks, TEACHER_STEPS, 0, 1e-3)
    teacher_loss = held_out_loss(teacher, held_out)
    print(f"{len(blocks)} blocks, teacher {teacher_loss:.3f}, {time.perf_counter() - started:.0f} s", flush=True)

    rows = []
    for name, rule in {"no distillation": None, **RULES}.items():
        losses = []
        for seed in SEEDS:
            student = make_model(STUDENT, seed)
            if rule is not None:
                distil(teacher, student, blocks, rule, seed)
            pretrain(student, blocks, TUNE_STEPS, seed + 100, 1e-3)
            losses.append(held_out_loss(student, held_out))
        row = {"rule": name, "loss": round(statistics.mean(losses), 4), "losses": [round(loss, 4) for loss in losses]}
        if rule is not None:
            row |= {"relation_heads": rule.heads, "shift": round(shift_of(teacher, held_out, rule), 6)}
        rows.append(row)
        print(row, f"{time.perf_counter() - started:.0f} s", flush=True)
    settings = {"teacher_steps": TEACHER_STEPS, "distil_steps": DISTIL_STEPS, "tune_steps": TUNE_STEPS}
    write_rows(RESULTS, rows, seeds=SEEDS, teacher=TEACHER, student=STUDENT, teacher_loss=teacher_loss, **settings)


if __name__ == "__main__":
    main()
