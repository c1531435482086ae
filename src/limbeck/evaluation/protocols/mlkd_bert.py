"""The protocol of MLKD-BERT."""

from __future__ import annotations

from limbeck.evaluation.protocols.protocol import Changes, Protocol


def _task(rate: float, epochs: int, length: int = 128) -> Changes:
    return {"learning_rates": rate, "epochs": epochs, "batch_size": 32, "length": length}


MLKD_BERT = Protocol(
    name="mlkd_bert",
    source=(
        "MLKD-BERT, table 9 (appendix A), the columns of stage 2: epochs, batch, length and rate of every task; "
        "table 1 (F1 of MRPC and QQP, Spearman of STS-B, all tasks averaged, both MNLI sets counted) and table 2 "
        "(F1 of SQuAD)."
    ),
    silent=(
        "The fine-tuning of a student that is not distilled for the task, and of the teacher: the students of the "
        "paper are trained by stage 2 itself, whose settings are taken. The number of runs (one), warm-up, decay "
        "and stride (BERT's 0.1, 0.01 and 128). Tasks that table 9 lacks: WNLI as RTE, Chinese and cross-lingual "
        "ones as MNLI and SQuAD."
    ),
    base=_task(3e-5, 6),
    changes={
        "question_answering": {
            "learning_rates": 3e-5, "epochs": 3, "batch_size": 16, "length": 384, "stride": 128
        },
        "cola": _task(1e-5, 30, length=64),
        "mnli": _task(3e-5, 6),
        "mrpc": {**_task(2e-5, 15), "metric": "f1"},
        "sst2": _task(2e-5, 10, length=64),
        "stsb": {**_task(3e-5, 15), "metric": "spearman"},
        "qqp": {**_task(2e-5, 6), "metric": "f1"},
        "qnli": _task(2e-5, 10),
        "rte": _task(2e-5, 15),
        "wnli": _task(2e-5, 15),
    },
    average=("mnli-m", "mnli-mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte"),
    papers=("mlkd_bert",),
)  # fmt: skip
