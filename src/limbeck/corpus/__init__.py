"""Text and labelled rows as batches of token rows: everything between the files of a user and a step of training.

A *source* is what a recipe names: files, a data set of the Hub, or installed packages. It holds *documents* (texts) or
*labelled rows*. Token rows that are made of documents are called *blocks*. The folders, in the order of the work:

- `settings`: what a recipe says of a corpus, and every rule about it.
- `sources`: what a name stands for; `files`: how files are found, opened and read, by their kind.
- `text`: documents, and the units that they are cut into; `rows`: labelled rows, and how labels are read.
- `stored`: documents and rows in the cache, read from their sources once.
- `augmentation`: copies of labelled rows with other words.
- `tokens`: texts and rows turned into token ids.
- `building`: documents and rows split, tokenised, written to the cache and opened as a `Corpus`.
- `streams`: blocks that are made while they are trained on, in place of `stored` and `building`.
- `batches`: token rows mixed, masked, grouped by length and padded to tensors.
"""

from typing import TYPE_CHECKING

from limbeck.core import IGNORED_LABEL, import_when_used
from limbeck.core.kinds import LabelKind

if TYPE_CHECKING:
    from limbeck.corpus.batches.collating import PadCollator
    from limbeck.corpus.batches.grouped_rows import GroupedRows
    from limbeck.corpus.batches.length_groups import padding_share
    from limbeck.corpus.batches.masking import MaskedTokens, ReplacedTokens
    from limbeck.corpus.batches.mixing import RowMix
    from limbeck.corpus.building.build_labelled import build_labelled_corpus
    from limbeck.corpus.building.build_text import build_corpus
    from limbeck.corpus.building.build_vocabulary import build_vocabulary, choose_text_pieces
    from limbeck.corpus.building.corpora import Corpus, LabelledCorpus
    from limbeck.corpus.progress import Progress
    from limbeck.corpus.settings import (
        Augmentation,
        CorpusSettings,
        LabelledSettings,
        LengthSchedule,
        MixSpec,
    )
    from limbeck.corpus.source_report import SourceReport
    from limbeck.corpus.sources.named_sources import open_source
    from limbeck.corpus.streams.source_blocks import Lane
    from limbeck.corpus.streams.streamed_corpus import StreamedCorpus, open_stream
    from limbeck.corpus.text.documents import Document
    from limbeck.corpus.text.pieces import UNITS
    from limbeck.corpus.text.sentences import split_paragraphs, split_sentences
    from limbeck.corpus.tokens.reading import Tokenizers
    from limbeck.corpus.tokens.vocabulary import mask_id_of, word_ids

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "batches.collating": "PadCollator",
        "batches.grouped_rows": "GroupedRows",
        "batches.length_groups": "padding_share",
        "batches.masking": "MaskedTokens ReplacedTokens",
        "building.build_text": "build_corpus",
        "building.build_labelled": "build_labelled_corpus",
        "building.build_vocabulary": "build_vocabulary choose_text_pieces",
        "building.corpora": "Corpus LabelledCorpus",
        "text.documents": "Document",
        "text.pieces": "UNITS",
        "text.sentences": "split_paragraphs split_sentences",
        "source_report": "SourceReport",
        "batches.mixing": "RowMix",
        "settings": "Augmentation CorpusSettings LabelledSettings LengthSchedule MixSpec",
        "sources.named_sources": "open_source",
        "progress": "Progress",
        "tokens.reading": "Tokenizers",
        "tokens.vocabulary": "mask_id_of word_ids",
        "streams.source_blocks": "Lane",
        "streams.streamed_corpus": "StreamedCorpus open_stream",
    },
)

__all__ = [
    "IGNORED_LABEL",
    "UNITS",
    "Augmentation",
    "Corpus",
    "CorpusSettings",
    "Document",
    "GroupedRows",
    "LabelKind",
    "LabelledCorpus",
    "LabelledSettings",
    "Lane",
    "LengthSchedule",
    "MaskedTokens",
    "MixSpec",
    "PadCollator",
    "Progress",
    "ReplacedTokens",
    "RowMix",
    "SourceReport",
    "StreamedCorpus",
    "Tokenizers",
    "build_corpus",
    "build_labelled_corpus",
    "build_vocabulary",
    "choose_text_pieces",
    "mask_id_of",
    "open_source",
    "open_stream",
    "padding_share",
    "split_paragraphs",
    "split_sentences",
    "word_ids",
]
