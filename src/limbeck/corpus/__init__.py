"""Text and labelled rows as token rows: sources, the cache, packing, streams and batches.

`sources` open what a string names as documents or labelled rows; `store` keeps them, once; `build` makes token rows of
them by `packing`, `labelled` and `answers`, and opens the result as a `Corpus` or `LabelledCorpus`; `streaming` does
the same while it is trained on. `masking` changes tokens, `collating` pads them to a `batch`, and a `reading` says how
student or teacher turn text into tokens.
"""

from typing import TYPE_CHECKING

from limbeck.core import IGNORED_LABEL, import_when_used
from limbeck.core.kinds import LabelKind

if TYPE_CHECKING:
    from limbeck.corpus.build import build_corpus, build_labelled_corpus
    from limbeck.corpus.collating import PadCollator
    from limbeck.corpus.documents import Document
    from limbeck.corpus.grouped_rows import GroupedRows
    from limbeck.corpus.length_groups import padding_share
    from limbeck.corpus.masking import MaskedTokens, ReplacedTokens, mask_id_of, word_ids
    from limbeck.corpus.mixing import RowMix
    from limbeck.corpus.opened import Corpus, LabelledCorpus
    from limbeck.corpus.pieces import UNITS
    from limbeck.corpus.sentences import split_paragraphs, split_sentences
    from limbeck.corpus.settings import (
        Augmentation,
        CorpusSettings,
        LabelledSettings,
        LengthSchedule,
        MixSpec,
    )
    from limbeck.corpus.source_report import SourceReport
    from limbeck.corpus.sources import open_source
    from limbeck.corpus.store import Progress
    from limbeck.corpus.stream_source import Lane
    from limbeck.corpus.streaming import StreamedCorpus, open_stream

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "collating": "PadCollator",
        "grouped_rows": "GroupedRows",
        "length_groups": "padding_share",
        "masking": "MaskedTokens ReplacedTokens mask_id_of word_ids",
        "build": "build_corpus build_labelled_corpus",
        "opened": "Corpus LabelledCorpus",
        "documents": "Document",
        "pieces": "UNITS",
        "sentences": "split_paragraphs split_sentences",
        "source_report": "SourceReport",
        "mixing": "RowMix",
        "settings": "Augmentation CorpusSettings LabelledSettings LengthSchedule MixSpec",
        "sources": "open_source",
        "store": "Progress",
        "stream_source": "Lane",
        "streaming": "StreamedCorpus open_stream",
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
