"""The protocol of ELM."""

from __future__ import annotations

from limbeck.evaluation.protocols.protocol import Changes, Protocol

_SINGLE_SENTENCE: Changes = {"length": 64}

ELM = Protocol(
    name="elm",
    source=(
        "ELM, section 5.2 (GLUE: batch 32, rates {1e-5, 2e-5, 3e-5}, epochs {3, 5, 10}, length 64 for single "
        "sentences and 128 for pairs; SQuAD: length 384, 4 epochs, batch 16, rate 3e-5); table 2 (means of 3 "
        "runs; its averages follow from F1 where a task has two figures); appendix A.1 (Chinese tasks: the "
        "benchmark's own settings)."
    ),
    silent=(
        "Warm-up, decay and stride (BERT's 0.1, 0.01 and 128). The Chinese settings are CLUE's, as its README "
        "gives them for BERT-base: CMNLI 2e-5, batch 32, length 128, 3 epochs; CMRC 2018 3e-5, batch 32, length "
        "512, 2 epochs, warm-up 0.1; for CSL it gives none (CMNLI's, at length 256, since its texts are "
        "abstracts). XNLI, MLQA and XQuAD (as GLUE and SQuAD)."
    ),
    base={"learning_rates": (1e-5, 2e-5, 3e-5), "epochs": (3, 5, 10), "seeds": 3, "batch_size": 32, "length": 128},
    changes={
        "question_answering": {"learning_rates": 3e-5, "epochs": 4, "batch_size": 16, "length": 384, "stride": 128},
        "chinese": {"learning_rates": 2e-5, "epochs": 3, "batch_size": 32, "length": 128},
        "sst2": _SINGLE_SENTENCE,
        "cola": _SINGLE_SENTENCE,
        "mrpc": {"metric": "f1"},
        "qqp": {"metric": "f1"},
        "stsb": {"metric": "spearman"},
        "csl": {"length": 256},
        "cmrc2018": {"learning_rates": 3e-5, "epochs": 2, "length": 512},
    },
    average=("sst2", "mnli-m", "squad", "mrpc", "cola", "qnli", "qqp", "squad2"),
    papers=("elm",),
)
