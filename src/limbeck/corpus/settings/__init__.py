"""What a recipe says of its text or rows, and the settings that a corpus is built with."""

from limbeck.corpus.settings.augmentation import Augmentation, AugmentSpec, ModelName, RowAugmentationSpec
from limbeck.corpus.settings.corpus import CorpusSpec
from limbeck.corpus.settings.labelled_corpus import LabelledRows, LabelledSettings
from limbeck.corpus.settings.lengths import LengthSchedule
from limbeck.corpus.settings.mix import Mixing, MixSpec
from limbeck.corpus.settings.sources import Role, SourceSpec, SourceUse
from limbeck.corpus.settings.task import TaskSpec
from limbeck.corpus.settings.text import StageTextSpec, TextSpec
from limbeck.corpus.settings.text_corpus import CorpusSettings

__all__ = [
    "AugmentSpec",
    "Augmentation",
    "CorpusSettings",
    "CorpusSpec",
    "LabelledRows",
    "LabelledSettings",
    "LengthSchedule",
    "MixSpec",
    "Mixing",
    "ModelName",
    "Role",
    "RowAugmentationSpec",
    "SourceSpec",
    "SourceUse",
    "StageTextSpec",
    "TaskSpec",
    "TextSpec",
]
