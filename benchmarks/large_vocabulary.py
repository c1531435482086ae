"""A vocabulary as large as XLM-R's, cut to two languages: seconds, memory, and every id.

    python benchmarks/large_vocabulary.py --tatoeba TATOEBA --work runs/large-vocabulary
    python benchmarks/large_vocabulary.py --table

The tokenizer is a made-up Unigram of 250,002 pieces: words and beginnings of words of all languages below TATOEBA, and
random words. The model has one layer of 32 numbers, so that nearly all of it is vocabulary. `limbeck trim` cuts it to
the pieces that English and German lines use, in a process of its own, whose seconds and largest memory are measured.

Then both tokenizers read random texts of German and English words. A text all of whose pieces stayed must have the
same pieces by name, and each piece the embedding that it had. The number of such texts and of faults is in the row.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from harness import table, write_rows

RESULTS = Path(__file__).parent / "results" / "large_vocabulary.json"
SEED = 1
PIECES = 250_002
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
PIECES_LEFT = 20_000
WIDTH = 32
TEXTS = 10_000
WORDS_OF_TEXT = 4
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def read_lines(tatoeba: Path, *languages: str) -> list[str]:
    """Return the lines of some languages; of all without names."""
    lines: list[str] = []
    for file in sorted(tatoeba.glob("tatoeba.*-eng.*")):
        if not languages or file.suffix.removeprefix(".") in languages:
            lines += file.read_text(encoding="utf-8").splitlines()
    return lines


def make_pieces(lines: list[str]) -> list[tuple[str, float]]:
    """Return pieces with their scores: characters, words and beginnings of words, and random words up to the number."""
    generator = random.Random(SEED)
    names = dict.fromkeys(SPECIAL, 0.0)
    names["\u2581"] = -8.0
    for line in lines:
        for character in line:
            names.setdefault(character, -12.0)
    for line in lines:
        for word in line.split():
            names.setdefault(f"\u2581{word}", -6.0 - generator.random())
            for end in range(2, len(word)):
                names.setdefault(f"\u2581{word[:end]}", -9.0 - generator.random())
                names.setdefault(word[-end:], -9.5 - generator.random())
    while len(names) < PIECES:
        word = "".join(generator.choices(LETTERS, k=generator.randint(5, 12)))
        names.setdefault(f"\u2581{word}", -13.0 - generator.random())
    return list(names.items())[:PIECES]


def make_model(pieces: list[tuple[str, float]], folder: Path) -> None:
    """Save a small model with the vocabulary."""
    backend = Tokenizer(models.Unigram(pieces, unk_id=SPECIAL.index("<unk>")))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(SEED)
    config = XLMRobertaConfig(
        vocab_size=PIECES, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=2 * WIDTH
    )
    XLMRobertaModel(config).save_pretrained(folder)


def trim(model: Path, corpus: Path, output: Path) -> dict[str, float]:
    """Trim the model in a process of its own, and return its seconds and its largest memory."""
    command = [sys.executable, "-m", "limbeck", "trim", str(model), "--corpus", str(corpus)]
    command += ["--pieces", str(PIECES_LEFT), "--output", str(output), "--quiet"]
    began = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit("limbeck trim failed.")
    # Linux gives the largest resident size in KiB.
    return {"seconds": round(time.perf_counter() - began, 1), "gigabytes": round(usage.ru_maxrss * 1024 / 1e9, 2)}


def compare(model: Path, output: Path, lines: list[str]) -> dict[str, int]:
    """Compare both tokenizers and embeddings on random texts."""
    generator = random.Random(SEED)
    words = sorted({word for line in lines for word in line.split()})
    texts = [" ".join(generator.choices(words, k=WORDS_OF_TEXT)) for _ in range(TEXTS)]
    whole, cut = AutoTokenizer.from_pretrained(model), AutoTokenizer.from_pretrained(output)
    pieces_that_stayed = cut.get_vocab()
    rows_before = AutoModel.from_pretrained(model).get_input_embeddings().weight
    rows = AutoModel.from_pretrained(output).get_input_embeddings().weight
    counts = {"texts": TEXTS, "texts_of_pieces_that_stayed": 0, "faults": 0}
    for text in texts:
        ids_before = whole(text, add_special_tokens=False)["input_ids"]
        names = whole.convert_ids_to_tokens(ids_before)
        if not all(name in pieces_that_stayed for name in names):
            continue
        counts["texts_of_pieces_that_stayed"] += 1
        ids = cut(text, add_special_tokens=False)["input_ids"]
        has_same_names = cut.convert_ids_to_tokens(ids) == names
        if not has_same_names or not torch.equal(rows[ids], rows_before[ids_before]):
            counts["faults"] += 1
    return counts


def main() -> None:
    """Measure, or print what has been measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tatoeba", type=Path, help="folder with files such as tatoeba.deu-eng.deu")
    parser.add_argument("--work", type=Path, default=Path("runs/large-vocabulary"))
    parser.add_argument("--table", action="store_true", help="print the table of the rows")
    arguments = parser.parse_args()
    if not arguments.table:
        shutil.rmtree(arguments.work, ignore_errors=True)
        arguments.work.mkdir(parents=True)
        model, output = arguments.work / "model", arguments.work / "trimmed"
        make_model(make_pieces(read_lines(arguments.tatoeba)), model)
        two_languages = read_lines(arguments.tatoeba, "deu", "eng")
        corpus = arguments.work / "corpus.txt"
        corpus.write_text("\n".join(two_languages) + "\n", encoding="utf-8")
        row = {"pieces_before": PIECES, "pieces": PIECES_LEFT}
        row |= trim(model, corpus, output)
        row |= compare(model, output, read_lines(arguments.tatoeba, "deu"))
        write_rows(RESULTS, [row], seed=SEED)
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    print(table(list(rows[0]), [list(row.values()) for row in rows]))


if __name__ == "__main__":
    main()
