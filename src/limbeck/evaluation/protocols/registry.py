"""Every protocol by its name."""

from __future__ import annotations

from limbeck.core.registry import Registry
from limbeck.evaluation.protocols.comparative_study import COMPARATIVE_STUDY, COMPARATIVE_STUDY_MULTILINGUAL
from limbeck.evaluation.protocols.elm import ELM
from limbeck.evaluation.protocols.minilm import MINILM, MINILMV2
from limbeck.evaluation.protocols.mlkd_bert import MLKD_BERT
from limbeck.evaluation.protocols.protocol import Protocol
from limbeck.evaluation.protocols.quick import QUICK

PROTOCOLS: Registry[Protocol] = Registry("preset")
"""Name to protocol."""

for _protocol in (
    MINILMV2, MINILM, ELM, MLKD_BERT, COMPARATIVE_STUDY, COMPARATIVE_STUDY_MULTILINGUAL, QUICK
):  # fmt: skip
    PROTOCOLS.register(_protocol.name, _protocol)
