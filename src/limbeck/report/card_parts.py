"""Parts of the cards of students and exports: their usage, and the differences, sizes and latencies of an export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from limbeck.core.blocks import NOTHING, Layout, Table, console
from limbeck.core.markdown import plain_table
from limbeck.core.timing import FEWEST_ROUNDS
from limbeck.report.quality import is_doubtful


@dataclass(frozen=True)
class HeadUsage:
    """A kind of head.

    Attributes:
        noun: What the student is.
        pipeline_tag: The Hub's name of the task.
        model_class: The class that loads it.
        batch: Code that makes a batch.
        answer: Code that reads the answer from `output`.
    """

    noun: str
    pipeline_tag: str
    model_class: str
    batch: str
    answer: str


_TEXT = 'batch = tokenizer("A first sentence.", "A second one.", truncation=True, return_tensors="pt")'
_QUESTION = 'batch = tokenizer("Who reads?", "The student reads what the teacher reads.", return_tensors="pt")'

HEAD_USAGE = {
    "masked_lm": HeadUsage(
        "A masked language model",
        "fill-mask",
        "AutoModelForMaskedLM",
        'batch = tokenizer(f"A {tokenizer.mask_token} sentence.", return_tensors="pt")',
        "print(tokenizer.decode(output.logits[batch.input_ids == tokenizer.mask_token_id].argmax(-1)))",
    ),
    "classification": HeadUsage(
        "A text classifier",
        "text-classification",
        "AutoModelForSequenceClassification",
        _TEXT + "  # one text, or a pair",
        "print(model.config.id2label[output.logits.argmax(-1).item()])",
    ),
    "regression": HeadUsage(
        "A text regressor",
        "text-classification",
        "AutoModelForSequenceClassification",
        _TEXT + "  # one text, or a pair",
        "print(output.logits.item())",
    ),
    "question_answering": HeadUsage(
        "An extractive question answerer",
        "question-answering",
        "AutoModelForQuestionAnswering",
        _QUESTION,
        "start, end = output.start_logits.argmax(), output.end_logits.argmax()\n"
        "print(tokenizer.decode(batch.input_ids[0, start : end + 1]))",
    ),
}
"""The head's kind, as the run's record has it, to how it is used."""


# How an ONNX file is run in ONNX Runtime, by what it returns: for its model card.


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


# What an export is, in Markdown and in plain lines: size, differences, and what int8 gains or costs.


_KINDS = ("float32", "int8")
_NAMES = {
    "onnx": "ONNX",
    "onnx-int8": "ONNX with int8 weights",
    "sentence-transformers": "a sentence-transformers folder",
    "safetensors": "safetensors",
}


def export_title(export: Mapping[str, Any]) -> str:
    """Return what an export is, for a sentence: `ONNX in float32, operator set 17`."""
    title = _NAMES[export["format"]]
    if export["dtype"] != "int8":
        title += f" in {export['dtype']}"
    return f"{title}, operator set {export['opset']}" if export.get("opset") else title


def export_lines(export: Mapping[str, Any]) -> list[str]:
    """Return what was measured of an export, a plain sentence an entry.

    Args:
        export: The record of the export.
    """
    found = export["differences"]
    lines = [] if export.get("int8") else [f"Weights: {export['megabytes']:.1f} MB."]
    largest = ", ".join(
        f"{value:.2g} in {name} (largest value {found['scale'][name]:.2g})" if value is not None else f"none in {name}"
        for name, value in found["largest"].items()
    )
    lines.append(
        f"Largest difference from the source, on {found['texts']} sample texts in {found['batches']} batches of up to "
        f"{found['tokens']} tokens: {largest}."
    )
    if export["dtype"] != "float32":
        lines += _quality(found)
    if export.get("int8"):
        lines += _int8_lines(export)
    if export["dtype"] == "float16" and export["format"] == "onnx":
        lines.append(
            "On a CPU, ONNX Runtime computes many float16 operators in float32 with casts; it is meant for a GPU."
        )
    verified = export.get("verified")
    if verified:
        lines.append(f"Verified in a fresh process on {verified['texts']} texts in {verified['batches']} batches.")
    return lines


def latency_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return the latencies of float32 and int8 for the terminal: medians with their 10th and 90th percentile, in ms.

    Args:
        rows: As an export's record has them.
    """
    headings = ("texts x tokens", "rounds", "float32 ms", "10th–90th", "int8 ms", "10th–90th", "int8 is")
    cells = []
    for row in rows:
        times = (
            f for kind in _KINDS for median, low, high in [milliseconds(row, kind)] for f in (median, f"{low}–{high}")
        )
        cells.append((f"{row['batch']} x {row['length']}", str(row["rounds"]), *times, speed_of(row)))
    return console(Table("", headings, tuple(cells), words=(0,), layout=Layout(fold=False, collapsed=False)))


def latency_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the latencies of float32 and int8 as a table."""
    headings = ("Texts x tokens", "Rounds", "float32, ms (10th–90th)", "int8, ms (10th–90th)", "int8 is")
    cells = []
    for row in rows:
        times = ("{} ({}–{})".format(*milliseconds(row, kind)) for kind in _KINDS)
        cells.append((f"{row['batch']} x {row['length']}", str(row["rounds"]), *times, speed_of(row)))
    return plain_table(Table("", headings, tuple(cells), words=(0, 4)))


def milliseconds(row: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    """Return median, 10th and 90th percentile of `"float32"` or `"int8"`, in three digits or more."""
    values = (float(row[f"{kind}{part}_ms"]) for part in ("", "_p10", "_p90"))
    median, low, high = (f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in values)
    return median, low, high


def speed_of(row: Mapping[str, Any]) -> str:
    """Say how fast int8 is in a row of the latencies; nothing where that cannot be told, see `busy_line`."""
    return NOTHING if _is_doubtful(row) else speed_words(row["speedup"])


def busy_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say which rows have no speed, and why; empty where all have."""
    untold = [f"{row['batch']} x {row['length']}" for row in rows if _is_doubtful(row)]
    if not untold:
        return ""
    return (
        f"The machine was busy: at {', '.join(untold)} tokens rounds were fewer than {FEWEST_ROUNDS}, or their ratios "
        f"are not those of the medians, so no speed is told ({NOTHING}); export again with more --seconds."
    )


def _is_doubtful(row: Mapping[str, Any]) -> bool:
    return is_doubtful(row["float32_ms"], row["int8_ms"], row["speedup"], row["rounds"])


def speed_words(speedup: float) -> str:
    """Say how fast int8 is beside float32; within 3 % they are alike."""
    if 0.97 <= speedup <= 1.03:
        return "as fast"
    return f"{speedup:.2f}x faster" if speedup > 1 else f"{1 / speedup:.2f}x slower"


def _quality(found: Mapping[str, Any]) -> list[str]:
    lines = []
    if cosine := found.get("cosine"):
        lines.append(
            f"Cosine with the source's vectors: {cosine['mean']:.4f} on average, {cosine['lowest']:.4f} at worst."
        )
    if found.get("equal_decisions") is not None:
        lines.append(
            f"Decisions equal to the source's: {found['equal_decisions']:.1%}; KL of the probabilities "
            f"{found['mean_kl']:.2g} nats."
        )
    return lines


def _int8_lines(export: Mapping[str, Any]) -> list[str]:
    sizes, rows = export["int8"]["megabytes"], export["int8"]["latency"]
    lines = [f"Size: {sizes['int8']:.1f} MB, float32 {sizes['float32']:.1f} MB."]
    slower = [row for row in rows if row["speedup"] < 0.97 and not _is_doubtful(row)]
    if slower:
        where = ", ".join(f"{row['batch']} x {row['length']} ({1 / row['speedup']:.2f} times)" for row in slower)
        lines.append(f"int8 is slower than float32 here at {where} tokens: use --format onnx for that.")
    lines += [busy] if (busy := busy_line(rows)) else []
    if export.get("weight_bits") == 7:
        lines.append("Weights have 7 bits: the processor that exported it has no VNNI, where 8 could overflow.")
    else:
        lines.append("Weights have 8 bits: for x86 processors without VNNI, where that may overflow, export it on one.")
    return lines
