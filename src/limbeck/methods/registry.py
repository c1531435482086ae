"""The registry of methods; a method's name equals its file's name."""

from typing import Any

from limbeck.methods.composition import Method
from limbeck.methods.minilmv2 import MINILMV2
from limbeck.methods.sentence_embedding import SENTENCE_EMBEDDING
from limbeck.registry import Registry

METHODS: Registry[Method[Any]] = Registry("method")
for _method in (MINILMV2, SENTENCE_EMBEDDING):
    METHODS.register(_method.name, _method)
