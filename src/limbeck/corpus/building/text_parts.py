"""`texts_of_blocks`: the text of each block that is cut from a piece, for a reader with another tokenizer."""

from __future__ import annotations

from itertools import pairwise

from limbeck.corpus.tokens.packing import BlockPacker
from limbeck.corpus.tokens.token_encoder import TokenEncoder


def texts_of_blocks(text: str, prompt: str, encoder: TokenEncoder, packer: BlockPacker) -> list[str]:
    """Return the texts of the blocks that `packer` makes of a piece, in their order and without the prompt.

    The parts make up the whole text, but for spaces between them.

    Args:
        text: The piece.
        prompt: The text in front of it.
        encoder: The tokenizer by which the piece is cut.
        packer: Cuts its tokens, those of the prompt included.

    Raises:
        CorpusError: for a tokenizer that does not tell where its tokens stand in a text.
    """
    whole = prompt + text
    begins_of_tokens = encoder.begins(whole)
    first_tokens = packer.begins(len(begins_of_tokens))
    # The first block begins with the prompt, which is not a part of the text.
    first_characters = begins_of_tokens[first_tokens[1:]].clip(min=len(prompt))
    borders = [len(prompt), *first_characters.tolist(), len(whole)]
    return [whole[begin:end].strip() for begin, end in pairwise(borders)]
