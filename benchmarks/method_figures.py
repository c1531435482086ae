"""The figures of `methods.py`: what a student has of its teacher, on held-out text and on two small tasks."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from transformers import BertForMaskedLM, PreTrainedModel

from limbeck.corpus import CorpusSettings, MaskedTokens, PadCollator, build_corpus, mask_id_of, word_ids
from limbeck.evaluation import encode, pair_similarities
from limbeck.models.families import depth
from limbeck.models.loading import load_model
from limbeck.models.locating import resolve_model
from limbeck.models.quiet import quiet
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from limbeck.models.tokenizers import load_tokenizer
from limbeck.objectives import masked_lm_ce, relation_kl

_PARTS = ("query", "key", "value")
_HELD_OUT_ROWS, _PROBE_ROWS, _PAIRS = 384, 2000, 1500
_HEAD_STEPS, _HEAD_ROWS, _HEAD_RATE = 300, 64, 3e-3
RELATION_HEADS = 48


def settings_of(corpus: Path, length: int) -> CorpusSettings:
    """How the corpus of the comparison is cut."""
    return CorpusSettings(sources=(str(corpus),), unit="sentence", length=length, held_out=0.02)


def masked_batches(rows: Any, tokenizer: Any, size: int, count: int) -> Iterable[dict[str, Tensor]]:
    """Batches of masked rows, labels included, from the first `size * count` rows."""
    masked = MaskedTokens(
        rows, 0.15, mask_id=mask_id_of(tokenizer), words=word_ids(tokenizer), special=tokenizer.all_special_ids, seed=0
    )
    collate = PadCollator(tokenizer.pad_token_id, labels="token")
    for start in range(0, min(len(rows), size * count), size):
        yield collate([masked[index] for index in range(start, min(start + size, len(rows)))])


def held_out_batches(teacher: Path, corpus: Path, length: int) -> list[dict[str, Tensor]]:
    """Masked batches of the held-out blocks: `input_ids` with masks, and `labels` to undo them."""
    tokenizer = load_tokenizer(str(teacher))
    held_out = build_corpus(settings_of(corpus, length), tokenizer).held_out
    return list(masked_batches(held_out, tokenizer, 32, _HELD_OUT_ROWS // 32))


def fit_masked_lm_head(teacher: str, corpus: dict[str, Any], folder: Path) -> None:
    """Fit a masked language model head on a frozen BERT, its decoder tied to the embeddings, and save both."""
    tokenizer = load_tokenizer(teacher)
    torch.manual_seed(0)
    with quiet():
        model = BertForMaskedLM.from_pretrained(resolve_model(teacher))
    model.requires_grad_(False)
    model.cls.requires_grad_(True)
    model.cls.predictions.decoder.weight.requires_grad_(False)
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=_HEAD_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _HEAD_RATE, _HEAD_STEPS, pct_start=0.1)
    rows = build_corpus(settings_of(Path(corpus["sources"][0]), corpus["length"]), tokenizer).train.shuffle(seed=0)
    model.eval()
    for step, batch in enumerate(masked_batches(rows, tokenizer, _HEAD_ROWS, _HEAD_STEPS)):
        labels = batch.pop("labels")
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                hidden = model.bert(**batch).last_hidden_state[labels != -100]
            scores = model.cls(hidden)
        loss = torch.nn.functional.cross_entropy(scores.float(), labels[labels != -100])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"masked language model head: step {step}, loss {loss.item():.3f}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class Figures:
    """Measures students of one teacher.

    Args:
        teacher: Folder of the teacher with its masked language model head.
        batches: Held-out masked batches.
        pairs: A file of labelled sentence pairs.
        sentences: A folder of labelled sentences, train.tsv and dev.tsv.
    """

    def __init__(self, *, teacher: Path, batches: list[dict[str, Tensor]], pairs: Path, sentences: Path) -> None:
        self.tokenizer = load_tokenizer(str(teacher))
        self.batches = batches
        self.plain = [_unmasked(batch) for batch in batches]
        self.pairs, self.scores = _read_pairs(pairs)
        self.train, self.dev = (_read_sentences(sentences / name) for name in ("train.tsv", "dev.tsv"))
        self.teacher = load_model(str(teacher), head="masked_lm")
        self.head = self.teacher.cls
        self.of_teacher = _streams(self.teacher.bert, self.plain)
        self.of_teacher_masked = _streams(self.teacher.bert, self.batches)

    @torch.no_grad()
    def measure(self, folder: Path | str) -> dict[str, float]:
        """All figures of one model.

        Returns:
            `relations`: mean divergence of the last layers' Q-Q, K-K and V-V relations, 48 heads, in nats; `hidden`:
            share of the variance of the teacher's last hidden states that a linear map from the student's explains, on
            rows that it was not fitted on; `masked_lm`: cross entropy of masked tokens by the teacher's head, through
            such a map; `sick`: Spearman of cosine similarities with human scores; `sst2`: accuracy of a logistic
            regression on frozen mean vectors.
        """
        model = load_model(str(folder))
        plain, masked = _streams(model, self.plain), _streams(model, self.batches)
        similarities = pair_similarities(model, self.tokenizer, self.pairs, dtype=torch.bfloat16)
        return {
            "relations": self._relations(plain),
            "hidden": self._explained(plain),
            "masked_lm": self._masked_lm(masked),
            "sick": float(spearmanr(similarities, self.scores).statistic),
            "sst2": self._probe(model),
        }

    def _relations(self, streams: list[dict[str, Tensor]]) -> float:
        total, count = 0.0, 0.0
        for batch, own, other in zip(self.plain, streams, self.of_teacher, strict=True):
            for part in _PARTS:
                given = own[part], own[part], other[part], other[part]
                term = relation_kl(*given, heads=RELATION_HEADS, valid=batch["attention_mask"].bool())
                total, count = total + float(term.total), count + float(term.count)
        return total / count

    def _map(self, streams: list[dict[str, Tensor]], teacher: list[dict[str, Tensor]], inputs: Any) -> tuple[Any, ...]:
        """Fit a ridge regression on the first half, and return mapped and wanted vectors of the second half."""
        own, wanted = (
            [s["hidden"][b["attention_mask"].bool()].double() for s, b in zip(side, inputs, strict=True)]
            for side in (streams, teacher)
        )
        half = len(own) // 2
        x, y = torch.cat(own[:half]), torch.cat(wanted[:half])
        center, target = x.mean(0), y.mean(0)
        gram = (x - center).T @ (x - center)
        gram += torch.eye(len(gram), dtype=gram.dtype) * gram.diagonal().mean() * 1e-3
        weight = torch.linalg.solve(gram, (x - center).T @ (y - target))
        return [(z - center) @ weight + target for z in own[half:]], wanted[half:], half

    def _explained(self, streams: list[dict[str, Tensor]]) -> float:
        mapped, wanted, _ = self._map(streams, self.of_teacher, self.plain)
        found, target = torch.cat(mapped), torch.cat(wanted)
        return float(1 - (found - target).square().sum() / (target - target.mean(0)).square().sum())

    def _masked_lm(self, streams: list[dict[str, Tensor]]) -> float:
        mapped, _, half = self._map(streams, self.of_teacher_masked, self.batches)
        total, count = 0.0, 0.0
        for vectors, batch in zip(mapped, self.batches[half:], strict=True):
            labels = batch["labels"][batch["attention_mask"].bool()]
            chosen = labels != -100
            term = masked_lm_ce(self.head(vectors[chosen].float())[None], labels[chosen][None])
            total, count = total + float(term.total), count + float(term.count)
        return total / count

    def _probe(self, model: PreTrainedModel) -> float:
        (texts, labels), (dev_texts, dev_labels) = self.train, self.dev
        train, dev = (
            encode(model, self.tokenizer, t, max_length=64, dtype=torch.bfloat16).float().numpy()
            for t in (texts, dev_texts)
        )
        probe = LogisticRegression(max_iter=2000, C=10.0).fit(train, labels)
        return float(probe.score(dev, dev_labels))


def _streams(model: PreTrainedModel, batches: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """The last layer's queries, keys, values and hidden states."""
    last = depth(model.config)
    keys = [StreamKey(kind, last) for kind in (*_PARTS, "hidden")]
    with StreamTap(model.eval(), keys) as tap, torch.no_grad():
        found = [tap(batch["input_ids"], batch["attention_mask"]) for batch in batches]
    return [{key.name: tensor for key, tensor in streams.items()} for streams in found]


def _unmasked(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    labels = batch["labels"]
    return {
        "input_ids": torch.where(labels != -100, labels, batch["input_ids"]),
        "attention_mask": batch["attention_mask"],
    }


def _read_pairs(path: Path) -> tuple[list[tuple[str, str]], list[float]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:_PAIRS]
    return [(row["sentence_A"], row["sentence_B"]) for row in rows], [float(row["relatedness_score"]) for row in rows]


def _read_sentences(path: Path) -> tuple[list[str], list[int]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:_PROBE_ROWS]
    return [row["sentence"] for row in rows], [int(row["label"]) for row in rows]
