"""`HeadUsage`, the lines of example code that differ between heads: in cards of models and beside exported graphs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HeadUsage:
    """Example code of a head, as Python.

    Attributes:
        torch: Prints the prediction of `output`, which the `model` returned for a `batch`.
        onnx: Runs the graph of a `session` on its `inputs`, and prints the prediction.
        texts: Arguments by which the tokenizer reads an example; None where a row is a text or a pair of texts.
        before: Lines before the call of the tokenizer, which make what `texts` names.
        puts_in_order: Whether the head scores documents for a query, so that cards show how to rank them too.
    """

    torch: str
    onnx: str
    texts: str | None = None
    before: str = ""
    puts_in_order: bool = False


RUN_LOGITS = '(logits,) = session.run(["logits"], inputs)\n'
"""The line of `onnx` that runs a graph with one output."""

MASKED_LM = HeadUsage(
    texts='f"A {tokenizer.mask_token} sentence."',
    torch="print(tokenizer.decode(output.logits[batch.input_ids == tokenizer.mask_token_id].argmax(-1)))",
    onnx=RUN_LOGITS + 'print(tokenizer.decode(logits[batch["input_ids"] == tokenizer.mask_token_id].argmax(-1)))',
)
"""The masked language model, which is no kind of task."""
