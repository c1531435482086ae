"""Fine-tuning a model on a task, and scoring it: one cell of a grid at a time."""

from limbeck.evaluation.fine_tuning.cell import Cell, SimilarityPoint, TrainingPoint, grid, identity, seeds
from limbeck.evaluation.fine_tuning.fingerprints import data_fingerprint, model_fingerprint, tokenizer_fingerprint
from limbeck.evaluation.fine_tuning.prepared import PreparedTask, prepare
from limbeck.evaluation.fine_tuning.run_cell import CellResult, run_cell

__all__ = [
    "Cell",
    "CellResult",
    "PreparedTask",
    "SimilarityPoint",
    "TrainingPoint",
    "data_fingerprint",
    "grid",
    "identity",
    "model_fingerprint",
    "prepare",
    "run_cell",
    "seeds",
    "tokenizer_fingerprint",
]
