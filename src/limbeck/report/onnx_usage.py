"""How an ONNX file is run in ONNX Runtime, by what it returns: for its model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXTS = '["A first sentence.", "A second one."]'
_OPEN = """import numpy as np
import onnxruntime
from transformers import {classes}

folder = "path/to/student"
{config}tokenizer = AutoTokenizer.from_pretrained(folder)
session = onnxruntime.InferenceSession(f"{{folder}}/{file}")

batch = tokenizer({batch}, truncation=True, max_length={longest}, return_tensors="np")
inputs = {{node.name: batch[node.name].astype(np.int64) for node in session.get_inputs()}}
"""
_BATCHES = {
    "masked_lm": 'f"A {tokenizer.mask_token} sentence."',
    "question_answering": '"Who reads?", "The student reads what the teacher reads."',
    "classification": '"A first sentence.", "A second one."',
    "regression": '"A first sentence.", "A second one."',
}
_ANSWERS = {
    "masked_lm": '(logits,) = session.run(["logits"], inputs)\n'
    'print(tokenizer.decode(logits[batch["input_ids"] == tokenizer.mask_token_id].argmax(-1)))',
    "classification": '(logits,) = session.run(["logits"], inputs)\nprint(config.id2label[int(logits.argmax(-1)[0])])',
    "regression": '(logits,) = session.run(["logits"], inputs)\nprint(logits.item())',
    "token_classification": '(logits,) = session.run(["logits"], inputs)\n'
    "print([[config.id2label[int(label)] for label in row] for row in logits.argmax(-1)])",
    "question_answering": 'start, end = session.run(["start_logits", "end_logits"], inputs)\n'
    'print(tokenizer.decode(batch["input_ids"][0, start.argmax() : end.argmax() + 1]))',
}
_HIDDEN = '(hidden,) = session.run(["last_hidden_state"], inputs)\nprint(hidden.shape)  # texts, tokens, width'
_SENTENCES = '(vectors,) = session.run(["sentence_embedding"], inputs)\n'


def onnx_usage(export: Mapping[str, Any]) -> str:
    """Return Python that runs an exported graph on a line of text.

    Args:
        export: The record of the export; `file`, `head`, `pooling`, `normalize` and `longest` are read.
    """
    head = str(export.get("head"))
    answer = _ANSWERS.get(head) or _vectors(export)
    labels = "config." in answer
    opened = _OPEN.format(
        classes="AutoConfig, AutoTokenizer" if labels else "AutoTokenizer",
        config="config = AutoConfig.from_pretrained(folder)\n" if labels else "",
        file=export["file"],
        batch=_BATCHES.get(head, f"{_TEXTS}, padding=True"),
        longest=int(export["longest"]),
    )
    return opened + answer


def _vectors(export: Mapping[str, Any]) -> str:
    if not export.get("pooling"):
        return _HIDDEN
    return _SENTENCES + ("print(vectors @ vectors.T)" if export.get("normalize") else "print(vectors.shape)")
