"""What the shell completes: names that are written down here, since asking the registries would import torch.

A test holds them to the registries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

METHODS = (
    "minilm", "minilmv2", "direct_minilm", "hidden_states", "output_distribution", "distilbert", "tinybert", "elm",
    "mlkd_bert", "bert_pkd", "bert_emd", "sentence_embedding", "mlm",
)  # fmt: skip
RECIPE_CARDS = ("teacher_assistant", "truncated_teacher")
STUDENTS = (
    "minilm-6x384", "minilm-4x384", "minilm-3x384", "minilm-12x384", "minilm-6x768", "minilmv2-12x384-e128",
    "tinybert-4x312", "nas-4x576", "nas-3x384",
)  # fmt: skip
PROTOCOLS = (
    "minilmv2", "minilm", "elm", "mlkd_bert", "comparative_study", "comparative_study_multilingual", "quick",
)  # fmt: skip
TASK_GROUPS = ("glue", "glue_leaderboard", "qa", "cross_lingual", "chinese", "few_chinese", "similarity")
TASKS = (
    "cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax", "squad", "squad2", "xnli", "mlqa",
    "xquad", "cmnli", "csl", "ocnli", "cmrc2018", "few_csl", "few_ocnli", "stsb_cosine", "sick_cosine",
)  # fmt: skip
FORMATS = ("onnx", "onnx-int8", "sentence-transformers", "safetensors")
OBJECTIVES = ("relation_kl", "attention_score_mse", "soft_label_kl")
SAMPLERS = ("tpe", "random", "nsga2", "gp")
DTYPES = ("float32", "bfloat16", "float16")

Complete = Callable[[str], list[str]]


def complete(names: Sequence[str]) -> Complete:
    """Return a function that completes one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_list(names: Sequence[str]) -> Complete:
    """Return a function that completes the last of names separated by commas, leaving out those that are there."""

    def completions(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in given]

    return completions
