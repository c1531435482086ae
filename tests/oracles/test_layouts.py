"""Scores and vectors of a text are those of the text alone: batches, orders and sides of padding do not matter.

The expected numbers are those of `transformers` and `sentence-transformers`, which read each text by itself.
"""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)

from limbeck.corpus.rows.labelled_rows import WORD_GAP, LabelledRow
from limbeck.evaluation.evaluators import head_outputs
from limbeck.evaluation.plan.points import AsIsPoint
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.kinds.task import Task, TaskData
from limbeck.models.inference import encode
from limbeck.models.loading import load_model
from limbeck.models.quiet import quiet
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.tokenizers import load_tokenizer
from tests.support.models import make_embedding, make_teacher
from tests.support.tasks import WORDS, make_rows, make_task, prepare

FAMILIES = ("bert", "roberta", "xlm-roberta", "modernbert")
SIZES = {"layers": 2, "hidden": 48, "heads": 4, "ffn": 48}
LENGTH = 24
POINT = AsIsPoint(length=LENGTH, stride=0, bf16=False, max_scored_rows=None, classes=None, predict=False)
KINDS = ("classification", "token_classification", "ranking")
#: The batch size, the order of the rows, and the side on which the folder's tokenizer pads.
LAYOUTS = [(1, "as written", "left"), (32, "as written", "right"), (32, "shuffled", "left"), (5, "backwards", "right")]
each_layout = pytest.mark.parametrize(("batch_size", "order", "side"), LAYOUTS)
each_family = pytest.mark.parametrize("family", FAMILIES)


def ordered(rows: list, order: str) -> list:
    rows = list(rows)
    if order == "backwards":
        rows.reverse()
    if order == "shuffled":
        random.Random(0).shuffle(rows)
    return rows


def pad_on(side: str, folder: Path) -> None:
    """Let the tokenizer of a folder pad on a side."""
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"padding_side": side}))


def task_of(kind: str) -> Task:
    if kind == "ranking":
        return TaskDefinition(name="ranks", type="ranking", files={"validation": "rows.jsonl"}).task
    return make_task(kind, train=None, predicted=())


def rows_of(kind: str) -> list[LabelledRow]:
    """Return 36 rows of many lengths: texts, pairs, tagged sentences, or 12 queries with documents."""
    if kind != "ranking":
        return make_rows(kind, 36, 5, paired=kind == "classification")
    draw = random.Random(5)
    rows = []
    for number in range(36):
        document = " ".join(draw.choices(WORDS, k=draw.randint(2, 12)))
        rows.append(LabelledRow(str(number), f"query {number // 3}", document, float(number % 3 == 0)))
    return rows


@torch.no_grad()
def scores_alone(folder: Path, rows: list[LabelledRow], kind: str) -> dict[str, np.ndarray]:
    """Return the scores that `transformers` gives each row by itself, by the id of the row."""
    loader = AutoModelForTokenClassification if kind == "token_classification" else AutoModelForSequenceClassification
    with quiet():
        model = loader.from_pretrained(folder).eval()
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    scores = {}
    for row in rows:
        cut = {"truncation": True, "max_length": LENGTH, "return_tensors": "pt"}
        if kind == "token_classification":
            encoded = tokenizer([row.text.split(WORD_GAP)], is_split_into_words=True, **cut)
        else:
            encoded = tokenizer(row.text, row.pair, **cut)
        scores[row.id] = model(**encoded).logits[0].numpy()
    return scores


@pytest.fixture(scope="module")
def scored_models(tmp_path_factory):
    """Return a maker of a folder of each family and kind, with its rows and their scores."""
    made = {}

    def make(family: str, kind: str) -> tuple[Path, list[LabelledRow], dict[str, np.ndarray]]:
        if (family, kind) not in made:
            labels = {"classification": 2, "token_classification": 3, "ranking": 1}[kind]
            folder = make_teacher(tmp_path_factory.mktemp("model"), family, head=kind, num_labels=labels, **SIZES)
            rows = rows_of(kind)
            made[family, kind] = folder, rows, scores_alone(folder, rows, kind)
        return made[family, kind]

    return make


@each_layout
@pytest.mark.parametrize("kind", KINDS)
@each_family
def test_scores_are_those_of_each_row_alone(
    family, kind, batch_size, order, side, scored_models, tmp_path, monkeypatch
):
    monkeypatch.setattr(head_outputs, "EVALUATION_BATCH", batch_size)
    folder, rows, expected = scored_models(family, kind)
    pad_on(side, folder)
    rows = ordered(rows, order)
    task = task_of(kind)
    tokenizer = load_tokenizer(str(folder))
    prepared = prepare(TaskData(task, {"validation": rows}), POINT, tokenizer, cache_dir=tmp_path)
    model = head_outputs.load_head(str(folder), task, tokenizer, LENGTH)
    (scores,) = head_outputs.read_outputs(model, tokenizer, prepared, "validation")
    for row, scores_of_row in zip(rows, scores, strict=True):
        wanted = expected[row.id]
        if kind == "token_classification":
            # What stands behind the tokens of a sentence is padding.
            assert len(scores_of_row) >= len(wanted)
            scores_of_row = scores_of_row[: len(wanted)]
        np.testing.assert_allclose(scores_of_row, wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory):
    """Return a maker of an embedding model of each family and pooling, with texts and their vectors."""
    library = pytest.importorskip("sentence_transformers")
    made = {}

    def make(family: str, pooling: str) -> tuple[Path, list[str], dict[str, torch.Tensor]]:
        if (family, pooling) not in made:
            modes = {"pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_cls_token": pooling == "cls"}
            folder = make_embedding(tmp_path_factory.mktemp("model"), family, **modes)
            texts = list(dict.fromkeys(row.text for row in make_rows("similarity", 36, 6)))
            with quiet():
                model = library.SentenceTransformer(str(folder), device="cpu")
            vectors = model.encode(texts, batch_size=1, convert_to_tensor=True, normalize_embeddings=True)
            made[family, pooling] = folder, texts, dict(zip(texts, vectors, strict=True))
        return made[family, pooling]

    return make


@each_layout
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@each_family
def test_vectors_are_those_of_each_text_alone(family, pooling, batch_size, order, side, embeddings):
    folder, texts, expected = embeddings(family, pooling)
    pad_on(side, folder)
    texts = ordered(texts, order)
    described = sentence_pooling(str(folder))
    assert described is not None
    vectors = encode(
        load_model(str(folder)),
        load_tokenizer(str(folder)),
        texts,
        pooling=SentenceHead(described),
        batch_size=batch_size,
    )
    torch.testing.assert_close(vectors, torch.stack([expected[text] for text in texts]), rtol=1e-5, atol=1e-5)
