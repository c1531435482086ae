"""Text to token blocks: sources, packing, cache, batches.

The flow: `sources` give documents; `document_store` keeps them, once; `tokenising` cuts them into units,
encodes them and packs them into blocks; `build_corpus` ties it together and returns a `Corpus`. `open_stream` does
the same while it is trained on, and returns a `StreamedCorpus`.

Rows with labels go the same way: `labelled_sources` give rows; `labelled_examples` checks them; `labelled_store` keeps
them; `labelled_encoding` and `labelled_answers` make tokens; `build_labelled_corpus` returns a `LabelledCorpus`.
"""

from limbeck.corpus.build import build_corpus
from limbeck.corpus.collate import LabelKind, PadCollator, padding_share
from limbeck.corpus.corpus import Corpus
from limbeck.corpus.document import Document
from limbeck.corpus.document_reading import Progress
from limbeck.corpus.labelled_build import build_labelled_corpus
from limbeck.corpus.labelled_corpus import LabelledCorpus
from limbeck.corpus.labelled_settings import LabelledSettings, LabelledTask
from limbeck.corpus.masking import IGNORED_LABEL, MaskedTokens, mask_id_of
from limbeck.corpus.mixing import Mix, RowMix
from limbeck.corpus.replacing import ReplacedTokens, word_ids
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import open_source
from limbeck.corpus.stream import StreamedCorpus, open_stream
from limbeck.corpus.stream_blocks import Lane
from limbeck.corpus.units import UNITS, split_paragraphs, split_sentences

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
