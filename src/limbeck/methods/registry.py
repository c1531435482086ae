"""The registry of methods; a method's name equals its file's name."""

from typing import Any

from limbeck.methods.bert_emd import BERT_EMD
from limbeck.methods.bert_pkd import BERT_PKD
from limbeck.methods.composition import Method
from limbeck.methods.direct_minilm import DIRECT_MINILM
from limbeck.methods.distilbert import DISTILBERT
from limbeck.methods.elm import ELM
from limbeck.methods.hidden_states import HIDDEN_STATES
from limbeck.methods.minilm import MINILM
from limbeck.methods.minilmv2 import MINILMV2
from limbeck.methods.mlkd_bert import MLKD_BERT
from limbeck.methods.mlm import MLM
from limbeck.methods.output_distribution import OUTPUT_DISTRIBUTION
from limbeck.methods.sentence_embedding import SENTENCE_EMBEDDING
from limbeck.methods.tinybert import TINYBERT
from limbeck.registry import Registry

METHODS: Registry[Method[Any]] = Registry("method")
for _method in (
    MINILM,
    MINILMV2,
    DIRECT_MINILM,
    HIDDEN_STATES,
    OUTPUT_DISTRIBUTION,
    DISTILBERT,
    TINYBERT,
    ELM,
    MLKD_BERT,
    BERT_PKD,
    BERT_EMD,
    SENTENCE_EMBEDDING,
    MLM,
):
    METHODS.register(_method.name, _method)
