"""Text to token blocks: sources, packing, cache, batches.

The flow: `sources` give documents; `document_store` keeps them, once; `tokenising` cuts them into units,
encodes them and packs them into blocks; `build_corpus` ties it together and returns a `Corpus`. `open_stream` does
the same while it is trained on, and returns a `StreamedCorpus`.

Rows with labels go the same way: `labelled_sources` give rows; `labelled_examples` checks them; `labelled_store` keeps
them; `labelled_encoding` and `labelled_answers` make tokens; `build_labelled_corpus` returns a `LabelledCorpus`.
"""

from limbeck.core import IGNORED_LABEL
from limbeck.corpus.batches import (
    LabelKind,
    MaskedTokens,
    PadCollator,
    ReplacedTokens,
    mask_id_of,
    padding_share,
    word_ids,
)
from limbeck.corpus.build import Corpus, LabelledCorpus, build_corpus, build_labelled_corpus
from limbeck.corpus.documents import UNITS, Document, SourceReport, split_paragraphs, split_sentences
from limbeck.corpus.settings import CorpusSettings, LabelledSettings, LabelledTask, Mix, RowMix
from limbeck.corpus.sources import open_source
from limbeck.corpus.store import Progress
from limbeck.corpus.streaming import Lane, StreamedCorpus, open_stream

__all__ = [
    "IGNORED_LABEL",
    "UNITS",
    "Corpus",
    "CorpusSettings",
    "Document",
    "LabelKind",
    "LabelledCorpus",
    "LabelledSettings",
    "LabelledTask",
    "Lane",
    "MaskedTokens",
    "Mix",
    "PadCollator",
    "Progress",
    "ReplacedTokens",
    "RowMix",
    "SourceReport",
    "StreamedCorpus",
    "build_corpus",
    "build_labelled_corpus",
    "mask_id_of",
    "open_source",
    "open_stream",
    "padding_share",
    "split_paragraphs",
    "split_sentences",
    "word_ids",
]
