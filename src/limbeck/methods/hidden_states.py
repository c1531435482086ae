"""Hidden state transfer: hidden states of mapped layers, through learned maps."""

from pydantic import Field

from limbeck.methods.citation import COMPARATIVE_STUDY, cite
from limbeck.methods.layer_terms import MappedOptions, learned_map, mapped_terms
from limbeck.methods.options import MappingChoice
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term


class HiddenStatesOptions(MappedOptions):
    """Options of hidden state transfer (arXiv 2310.08797, sections 3 and 4)."""

    mapping: MappingChoice = Field(
        "uniform_last",
        description="Student layers to teacher layers: single, last, uniform, uniform_consecutive, uniform_last (best "
        "or within 0.2 of it in most columns of table 3), contribution, random, attention, a list or layers by number.",
    )


@register_as_method(options=HiddenStatesOptions, citation=cite(COMPARATIVE_STUDY, "section 3, equation 6"))
def hidden_states(options: HiddenStatesOptions, pairing: Pairing) -> list[Term]:
    """Hidden states of mapped layers, each pair through a learned map; any heads, any widths.

    L = Σ MSE(H^S W, H^T) over the pairs of layers, each with its own W (eq. 6).
    """
    return mapped_terms(
        options,
        pairing,
        name="hidden",
        objective="hidden_mse",
        stream="hidden",
        weight=1.0,
        learned=learned_map(pairing),
    )
