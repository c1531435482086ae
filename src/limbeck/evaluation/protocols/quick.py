"""A look, not a measurement."""

from __future__ import annotations

from limbeck.evaluation.protocols.protocol import Protocol

QUICK = Protocol(
    name="quick",
    source="No paper: one rate and one seed on part of the rows, to see that a model learns.",
    silent="Everything.",
    base={
        "learning_rates": 5e-5,
        "epochs": 3,
        "length": 128,
        "group_by_length": True,
        "max_train_rows": 2000,
        "max_scored_rows": 1000,
    },
    changes={
        "question_answering": {"epochs": 2, "batch_size": 16, "length": 256, "stride": 64, "max_scored_rows": 200},
        "similarity": {"max_scored_rows": None},
    },
)
