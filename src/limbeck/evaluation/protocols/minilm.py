"""The protocols of MiniLM and MiniLMv2."""

from __future__ import annotations

from limbeck.evaluation.protocols.protocol import Changes, Protocol

_GLUE_RATES = (1e-5, 1.5e-5, 2e-5, 3e-5, 5e-5)
_SQUAD_RATES = (3e-5, 6e-5, 8e-5, 9e-5)
_CROSS_LINGUAL_RATES = (5e-5, 6e-5)
_TABLE_1 = ("squad2", "mnli-m", "qnli", "qqp", "rte", "sst2", "mrpc", "cola")

_BASE: Changes = {
    "learning_rates": _GLUE_RATES,
    "epochs": (3, 5, 10),
    "seeds": 4,
    "batch_size": 32,
    "length": 128,
    "warmup": 0.1,
    "weight_decay": 0.01,
}
_CHANGES: dict[str, Changes] = {
    "question_answering": {"learning_rates": _SQUAD_RATES, "epochs": 3, "length": 384, "stride": 128},
    "cola": {"epochs": 25},
    "xnli": {
        "learning_rates": _CROSS_LINGUAL_RATES,
        "epochs": 5,
        "batch_size": 128,
        "keep": "best_epoch",
        "pick": "best",
    },
    "mlqa": {"learning_rates": _CROSS_LINGUAL_RATES, "epochs": 3, "length": 512, "keep": "best_epoch"},
    "xquad": {"learning_rates": _CROSS_LINGUAL_RATES, "epochs": 3, "length": 512, "keep": "best_epoch"},
}

MINILMV2 = Protocol(
    name="minilmv2",
    source=(
        "MiniLMv2, appendix C (rates, epochs, batches, lengths, warm-up and decay of GLUE and SQuAD 2.0); tables "
        "1 and 3 (means of 4 runs, accuracy of QQP and MRPC, F1 of SQuAD 2.0, Pearson of STS-B); section 4.3 "
        "(XNLI: the best single model on the joint development set; MLQA: stopped early on English development "
        "data)."
    ),
    silent=(
        "The stride of windows (BERT's 128); warm-up and decay of XNLI and MLQA (as GLUE); what is stopped early "
        "by (the best epoch is kept); SQuAD 1.1 (as 2.0); XQuAD (as MLQA); WNLI and Chinese tasks (as GLUE and "
        "SQuAD)."
    ),
    base=_BASE,
    changes=_CHANGES,
    average=_TABLE_1,
    papers=("minilmv2",),
)

MINILM = Protocol(
    name="minilm",
    source=(
        "MiniLM, tables 2 to 7 (means of 4 runs, F1 of SQuAD 2.0, Matthews correlation of CoLA, accuracy of the "
        "rest) and section 4.3 (XNLI and MLQA, as MiniLMv2)."
    ),
    silent=(
        "All of rates, epochs, batches, lengths, warm-up and decay, which the paper leaves to its supplement: "
        "those of MiniLMv2 (appendix C), which repeats this paper's results in its own tables."
    ),
    base=_BASE,
    changes=_CHANGES,
    average=_TABLE_1,
    papers=("minilm",),
)
