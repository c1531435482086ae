"""`Reading`: how one side, student or teacher, turns a text into token ids; and the tokenizers of both sides."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.tokens.encoded_rows import OF_TEACHER
from limbeck.corpus.tokens.token_encoder import TokenEncoder

PROMPT = "prompt"
"""Column of a corpus with prompts: number of tokens at the beginning of a row that belong to the prompt, or 0."""
TEACHER_IDS = f"{OF_TEACHER}input_ids"
"""Column of a corpus with two readings: the teacher's ids, where `input_ids` are the student's."""
TEACHER_PROMPT = f"{OF_TEACHER}{PROMPT}"
"""Column of a corpus with two tokenizers and prompts: the tokens of the teacher's prompt; `prompt` is the student's."""


class Tokenizers(NamedTuple):
    """The tokenizers of the two sides of a text.

    Args:
        student: The `transformers` tokenizer of the student.
        teacher: That of the teacher, where it gives other tokens; None where the teacher reads the student's tokens, or
            none.
        whole: The whole tokenizer from which the student's was cut, where texts are left out that the two cut
            differently; None where all texts are read.
    """

    student: Any
    teacher: Any | None = None
    whole: Any | None = None


@dataclass(frozen=True)
class Reading:
    """How one side, student or teacher, turns a text into token ids.

    Args:
        encoder: The side's tokenizer.
        reads_prompts: Whether the prompt of a text's source stands before the text.
    """

    encoder: TokenEncoder
    reads_prompts: bool = True

    def encode(self, texts: Sequence[str], prompt: str = "") -> list[NDArray[np.int32]]:
        """Return the ids of each text, without special tokens.

        Prompt and text are encoded together, since a tokenizer may join the end of the one with the beginning of the
        other.

        Args:
            texts: The texts, without the prompt.
            prompt: The prompt of their source; empty where it has none.
        """
        if self.reads_prompts:
            texts = [prompt + text for text in texts]
        return self.encoder.encode(texts)
