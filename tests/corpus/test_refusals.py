"""Refusals of corpora in one line: `refusals.yaml` has a part of each line, what is called, and the files for it."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from transformers import ByT5Tokenizer

from limbeck.corpus import CorpusSettings, MaskedTokens, MixSpec, PadCollator, ReplacedTokens, mask_id_of, open_source
from limbeck.corpus.sources.file_patterns import find_sources
from limbeck.corpus.sources.named_sources import open_rows
from limbeck.corpus.tokens.answer_windows import AnswerWindows
from limbeck.corpus.tokens.packing import BlockPacker
from limbeck.errors import CorpusError
from tests.support.corpora import TOKENIZER, byte_tokenizer
from tests.support.models import tiny_tokenizer
from tests.support.streams import build_rows, build_text, examples, row_settings, stream, text_settings, write_packed

REFUSALS = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
CASES = [(call, *row, {})[:4] for call, rows in REFUSALS.items() for row in rows]
WORDS = np.array([7])


def written(folder, *rows):
    return write_packed(folder / "a.jsonl", "\n".join(map(json.dumps, rows)))


CALLS = {
    "mix": lambda _, **mix: CorpusSettings(sources=["a"], mix=mix),
    "parts": lambda _, name: find_sources(name),
    "shares": lambda _, sizes, **mix: MixSpec(**mix).shares(sizes),
    "pad": lambda _, rows=(), **options: PadCollator(**{"pad_token_id": 0, **options})(rows),
    "mask": lambda _, row=None, share=0.1, words=WORDS: MaskedTokens(
        [row], share, mask_id=2, words=words, special=(), seed=0
    )[0],
    "replace": lambda _, share: ReplacedTokens([], share, words=WORDS, special=(), seed=0),
    "mask id": lambda _: mask_id_of(byte_tokenizer(None, eos_token="</s>")),
    "pack": lambda _, **options: BlockPacker(**options),
    "windows": lambda _, slow=False, **options: AnswerWindows(ByT5Tokenizer() if slow else tiny_tokenizer(), **options),
    "text settings": lambda _, sources=("a",), mix=None, **settings: text_settings(*sources, mix=mix, **settings),
    "row settings": lambda _, sources=("a",), **settings: row_settings(*sources, **settings),
    "open": lambda _, name: open_source(name),
    "open rows": lambda _, name: open_rows(name),
    "labelled": lambda folder, label, **settings: examples(
        written(folder, {"text": "x", "label": 1}, {"text": "x", "label": label}), **settings
    ),
    "question": lambda folder, **row: examples(written(folder, row), task="question_answering"),
    "table": lambda folder: examples(*folder.iterdir()),
    "build text": lambda folder, **settings: build_text(folder / ".cache", TOKENIZER, *folder.iterdir(), **settings),
    "build rows": lambda folder, **settings: build_rows(
        folder / ".cache", tiny_tokenizer(), *folder.iterdir(), **settings
    ),
    "stream": lambda folder, sources=(), **settings: stream(
        folder / ".cache", TOKENIZER, *sources, *folder.iterdir(), **settings
    ),
}


@pytest.mark.parametrize(("call", "message", "arguments", "files"), CASES)
def test_refused_in_one_line(tmp_path, call, message, arguments, files):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    if "name" in arguments:
        arguments = {"name": arguments["name"].replace("{folder}", str(tmp_path))}
    with pytest.raises(CorpusError) as caught:
        CALLS[call](tmp_path, **arguments)
    assert message.replace("{folder}", str(tmp_path)) in str(caught.value)
    # A build leaves nothing behind.
    assert not [path for path in tmp_path.glob(".cache/[bl]*/*") if path.is_dir()]
