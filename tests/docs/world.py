"""The folder that pages are run in: what they name is there, made small.

Models lie under the names that pages give them (`google-bert/bert-base-uncased` is a folder, as any teacher may be),
and so do texts, tasks and a finished run. `checked_world` has the models' configurations at their real sizes and no
weights, which is all that checking a recipe needs; `small_world` has tiny models that train in a moment.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file

import limbeck
from tests.docs.running import SMALL
from tests.support.corpora import documents
from tests.support.models import make_teacher, tiny_config, tiny_tokenizer
from tests.support.task_files import CHUNKS, squad, write_tasks
from tests.support.tasks import make_rows

#: The width of every small model; 48 relation heads divide it, and so do 12 heads.
WIDTH = 48


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
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        made.rename(folder / name)
    _write_texts(folder)
    write_tasks(folder / "data")
    for split in ("train", "dev"):
        (folder / "data" / f"{split}-v1.1.json").write_text(squad(make_rows("question_answering", 12, 3)))
    (folder / "conll2000").mkdir()
    (folder / "conll2000" / "test.txt").write_text(CHUNKS * 10, encoding="utf-8")
    _finish_a_run(folder)
    return folder


def _write_texts(folder: Path) -> None:
    lines = "\n".join(sentence for text in documents(16, 2) for sentence in text.split("\n\n"))
    for name in ("held-out.txt", "my-sentences.txt"):
        (folder / name).write_text(lines, encoding="utf-8")
    for name in ("texts", "data/wikipedia", "wikipedia-en", "texts/en", "texts/de", "texts/sw"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, text in enumerate(documents(30)):
            own = text.replace("The ", f"The {name} ")  # A corpus keeps no document twice.
            (folder / name / f"{number}.txt").write_text(own, encoding="utf-8")
    (folder / "MRPC").mkdir()
    (folder / "SST-2").mkdir()
    rows = make_rows("classification", 24, 0)
    pairs = "\n".join(f"{row.label}\t1\t2\t{row.text}\t{row.pair}" for row in rows)
    (folder / "MRPC" / "train.tsv").write_text(f"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n{pairs}\n")
    sentences = "\n".join(f"{row.text}\t{row.label}" for row in rows)
    (folder / "SST-2" / "train.tsv").write_text(f"sentence\tlabel\n{sentences}\n")


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
