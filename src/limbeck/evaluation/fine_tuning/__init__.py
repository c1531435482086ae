"""Fine-tuning a model on a task, and scoring it: the cells of a grid, one training at a time."""

from limbeck.evaluation.fine_tuning.cell import (
    Cell,
    SimilarityPoint,
    TrainingPoint,
    grid,
    identity,
    seeds,
    training_identity,
)
from limbeck.evaluation.fine_tuning.fingerprints import (
    data_fingerprint,
    model_fingerprint,
    tokenizer_fingerprint,
    training_set_fingerprint,
)
from limbeck.evaluation.fine_tuning.prepared import PreparedCell, PreparedTask, TokenKeys, prepare
from limbeck.evaluation.fine_tuning.run_cell import CellResult, Trained, run_cell, train_once

__all__ = [
    "Cell",
    "CellResult",
    "PreparedCell",
    "PreparedTask",
    "SimilarityPoint",
    "TokenKeys",
    "Trained",
    "TrainingPoint",
    "data_fingerprint",
    "grid",
    "identity",
    "model_fingerprint",
    "prepare",
    "run_cell",
    "seeds",
    "tokenizer_fingerprint",
    "train_once",
    "training_identity",
    "training_set_fingerprint",
]
