"""The folder that pages are run in: what they name is there, made small.

Models lie under the names that pages give them (`google-bert/bert-base-uncased` is a folder, as any teacher may be),
and so do texts, tasks and a finished run. `checked_world` has the models' configurations at their real sizes and no
weights, which is all that checking a recipe needs; `small_world` has tiny models that train in a moment.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from safetensors.torch import save_file

import limbeck
from limbeck.models.sentence_files import write_sentence_transformers_files
from tests.docs.running import SMALL, smaller
from tests.support.corpora import documents
from tests.support.models import make_teacher, tiny_config, tiny_tokenizer
from tests.support.task_files import CHUNKS, squad, write_table, write_tasks
from tests.support.tasks import make_rows

#: The width of every small model; 48 relation heads divide it, and so do 12 heads.
WIDTH = 48
TAGS = "the B-NP\nmodel I-NP\nis B-VP\non B-PP\nit B-NP\n. O\n\n"


def checked_world(folder: Path) -> Path:
    """Make configurations, tokenizers and texts: what a recipe is checked against."""
    for name, model in SMALL["models"].items():
        config = tiny_config(**model["sizes"], max_position_embeddings=514)
        config.architectures = [model["architecture"]] if "architecture" in model else None
        tokenizer = tiny_tokenizer(model["sizes"]["family"])
        tokenizer.model_max_length = 512
        for part in (config, tokenizer):
            part.save_pretrained(folder / name)
    _write_texts(folder)
    return folder


def small_world(folder: Path) -> Path:
    """Make tiny models, texts, tasks and a finished run."""
    for name, model in SMALL["models"].items():
        sizes = model["sizes"] | {"hidden": WIDTH, "ffn": 4 * WIDTH}
        made = make_teacher(folder / "made", seed=1, head=model.get("head"), **sizes)
        if pooling := model.get("pooling"):
            vectors = {"width": WIDTH, "pooling": pooling, "normalize": True, "max_length": None}
            write_sentence_transformers_files(made, **vectors)
        place = folder / smaller(name)  # As the commands have it that are run here.
        place.parent.mkdir(parents=True, exist_ok=True)
        made.rename(place)
    _write_texts(folder)
    (folder / "conll2000").mkdir()
    (folder / "conll2000" / "test.txt").write_text(CHUNKS * 10, encoding="utf-8")
    _finish_a_run(folder)
    return folder


def _write_texts(folder: Path) -> None:
    lines = "\n".join(sentence for text in documents(16, 2) for sentence in text.split("\n\n"))
    for name in ("held-out.txt", "my-sentences.txt"):
        (folder / name).write_text(lines, encoding="utf-8")
    for name in ("news", "test"):
        for language in ("en", "de"):
            sentences = [f"The {language} text {number} of {name} is a text." for number in range(80)]
            (folder / f"{name}.{language}").write_text("\n".join(sentences), encoding="utf-8")
    for name in ("texts", "data/wikipedia", "wikipedia-en", "texts/en", "texts/de", "texts/sw"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, text in enumerate(documents(30)):
            own = text.replace("The ", f"The {name} ")  # A corpus keeps no document twice.
            (folder / name / f"{number}.txt").write_text(own, encoding="utf-8")
    _write_rows(folder)
    vectors = np.random.default_rng(0).standard_normal((40, 8))
    rows = [{"text": text, "embedding": vector} for text, vector in zip(documents(40), vectors.tolist(), strict=True)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "vectors.parquet")


def _write_rows(folder: Path) -> None:
    """Write labelled rows of every kind, to train on and to be scored on."""
    write_tasks(folder / "data")
    (folder / "ner").mkdir()
    for number, split in enumerate(("train", "dev")):
        rows = make_rows("classification", 24, number)
        texts = [f"{row.text} {row.pair}" for row in rows]
        answers = squad(make_rows("question_answering", 12, 3 + number))
        (folder / "data" / f"{split}-v1.1.json").write_text(answers)
        for name in ("ner/train.txt", "train.conll") if split == "train" else ("ner/dev.txt",):
            (folder / name).write_text(TAGS * (number + 2))
        ending = "" if split == "train" else f"-{split}"
        stars = [(text, row.label) for text, row in zip(texts, rows, strict=True)]
        write_table(folder / f"reviews{ending}.tsv", ("review", "stars"), stars)
        topics = [["sport"], ["money"], ["sport", "money"], []]
        _write_lines(
            folder / f"topics{ending}.jsonl", ({"text": t, "topics": topics[n % 4]} for n, t in enumerate(texts))
        )
        groups = [{"query": row.text, "positive": row.pair, "negatives": texts[:3]} for row in rows]
        for name in ("queries", "pairs") if split == "train" else ("held-out",):
            _write_lines(folder / f"{name}.jsonl", groups)
    for split, seed in (("dev", 1), ("train", 0)):
        rows = make_rows("classification", 24, seed)
        pairs = [(row.label, 1, 2, row.text, row.pair) for row in rows]
        write_table(folder / f"MRPC/{split}.tsv", ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), pairs)
    write_table(folder / "SST-2/train.tsv", ("sentence", "label"), [(row.text, row.label) for row in rows])
    named = [(row.text, row.pair, row.label) for row in rows]
    write_table(folder / "train.tsv", ("sentence1", "sentence2", "label"), named)


def _write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _finish_a_run(folder: Path) -> None:
    """`recipe.yaml`, its run `runs/mine`, and `runs/first` and `runs/second` beside it, with all that a run leaves."""
    (folder / "recipe.yaml").write_text(yaml.safe_dump(SMALL["recipe"]), encoding="utf-8")
    with contextlib.chdir(folder):
        run = folder / limbeck.distill(SMALL["recipe"] | {"output": "runs/mine"}).student.parent
    bad = run / "stages/1-minilmv2/bad_batches"
    bad.mkdir()
    facts = {"step": "812", "problem": "The loss term 'query_query' became nan"}
    save_file({"0.input_ids": torch.zeros(4, 32, dtype=torch.long)}, bad / "step-812.safetensors", metadata=facts)
    for name in ("first", "second"):
        shutil.copytree(run, folder / "runs" / name)
