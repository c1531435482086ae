"""What a student with a task head is, and how it is used: for its model card."""

from __future__ import annotations

from dataclasses import dataclass


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
