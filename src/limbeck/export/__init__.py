"""Other formats of a student."""

from limbeck.export.sentence_transformers import write_sentence_transformers_files

__all__ = ["write_sentence_transformers_files"]
