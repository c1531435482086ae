"""The protocols of the comparative study, for English and for multilingual models."""

from __future__ import annotations

from dataclasses import replace

from limbeck.evaluation.protocols.protocol import Protocol

COMPARATIVE_STUDY = Protocol(
    name="comparative_study",
    source=(
        "Comparative study, appendix D: rate 2e-5 and batch 32 for all models and tasks; 3 epochs for GLUE, 6 for "
        "CoLA with English models and 10 with multilingual ones, 5 for XNLI; 3 seeds. Tables 5 and 6 (averages "
        "with and without CoLA)."
    ),
    silent=(
        "Length (128), warm-up and decay (0.1 and 0.01, as MiniLMv2); the metrics (F1 of QQP, which its figures "
        "fit, and of MRPC; Spearman of STS-B); which MNLI set (matched); question answering, which it does not "
        "evaluate (as GLUE, at length 384)."
    ),
    base={"learning_rates": 2e-5, "epochs": 3, "seeds": 3, "batch_size": 32, "length": 128},
    changes={
        "question_answering": {"length": 384, "stride": 128},
        "cola": {"epochs": 6},
        "mrpc": {"metric": "f1"},
        "qqp": {"metric": "f1"},
        "stsb": {"metric": "spearman"},
        "xnli": {"epochs": 5},
    },
    average=("mnli-m", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte"),
    papers=("comparative_study",),
)

COMPARATIVE_STUDY_MULTILINGUAL = replace(
    COMPARATIVE_STUDY,
    name="comparative_study_multilingual",
    changes={**COMPARATIVE_STUDY.changes, "cola": {"epochs": 10}},
)
