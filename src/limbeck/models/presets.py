"""Presets: the students of the papers, by name, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from limbeck.core.registry import Registry
from limbeck.errors import ModelError


@dataclass(frozen=True)
class Preset:
    """A published student's shape and where it is published; None follows the rules of `parse_blueprint`."""

    layers: int
    hidden: int
    source: str
    heads: int | None = None
    ffn: int | None = None
    embedding: int | None = None


presets: Registry[Preset] = Registry("student preset", error=ModelError)

presets.register(
    "minilm-6x384",
    Preset(6, 384, "MiniLM (Wang et al. 2020), tables 3 and 4; also ELM §5.2 and the comparative study, table 1."),
)
presets.register("minilm-4x384", Preset(4, 384, "MiniLM (Wang et al. 2020), tables 3 and 4."))
presets.register("minilm-3x384", Preset(3, 384, "MiniLM (Wang et al. 2020), tables 3 and 4."))
presets.register("minilm-12x384", Preset(12, 384, "MiniLM (Wang et al. 2020), tables 4 and 8."))
presets.register(
    "minilm-6x768",
    Preset(6, 768, "MiniLM (Wang et al. 2020), table 2; the DistilBERT shape; MiniLMv2, table 1."),
)
presets.register(
    "minilmv2-12x384-e128",
    Preset(
        12,
        384,
        "MiniLMv2 (Wang et al. 2021), table 4: 12x384 with 128-wide factorised embeddings.",
        embedding=128,
    ),
)
presets.register(
    "tinybert-4x312",
    Preset(4, 312, "TinyBERT; ELM §5.2 and MLKD-BERT §4.2: M=4, d=312, d_i=1200, h=12.", heads=12, ffn=1200),
)
presets.register(
    "nas-4x576",
    Preset(4, 576, "The comparative study, table 1: 4, 12, 576, 768, found by KD-NAS.", heads=12, ffn=768),
)
presets.register(
    "nas-3x384",
    Preset(3, 384, "The comparative study, table 1: 3, 12, 384, 1024, found by KD-NAS.", heads=12, ffn=1024),
)
