"""Text to token blocks: sources, packing, cache, batches.

The flow: `sources` give documents; `document_store` keeps them, once; `tokenising` cuts them into units,
encodes them and packs them into blocks; `build_corpus` ties it together and returns a `Corpus`.
"""

from limbeck.corpus.build import build_corpus
from limbeck.corpus.collate import PadCollator, padding_share
from limbeck.corpus.corpus import Corpus
from limbeck.corpus.document import Document
from limbeck.corpus.document_store import Progress
from limbeck.corpus.replacing import ReplacedTokens, word_ids
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import open_source
from limbeck.corpus.units import UNITS, split_paragraphs, split_sentences

__all__ = [
    "UNITS",
    "Corpus",
    "CorpusSettings",
    "Document",
    "PadCollator",
    "Progress",
    "ReplacedTokens",
    "SourceReport",
    "build_corpus",
    "open_source",
    "padding_share",
    "split_paragraphs",
    "split_sentences",
    "word_ids",
]
