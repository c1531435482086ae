"""The options of a fitted start, `initialise.fit` of a recipe; `start_fit.py` carries it out."""

from __future__ import annotations

from pydantic import Field

from limbeck.core.fields import Count
from limbeck.core.strict import Strict


class FitOptions(Strict):
    """A fit of the copied layers' output maps to hidden states of the teacher, on text and in closed form."""

    tokens: int = Field(100_000, ge=1, le=10**9)
    """Tokens of the run's text to fit to; a tenth as many more are read to see whether the fit helps."""
    ridge: float = Field(0.01, gt=0, le=1e6)
    """How strongly maps are held at their copied weights, as a share of the mean squared entry of their inputs."""
    targets: list[Count] | None = Field(
        None,
        description=(
            "The teacher's layer whose hidden state each student layer is fitted to, such as [1, 5, 6]; default: of "
            "each layer the state that the next copied layer read in the teacher, and of the last the teacher's last."
        ),
    )
    pooled: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description=(
            "Weight of the mean vectors of whole texts in the fit of the last layer: at 1 all texts together weigh as "
            "much as all tokens."
        ),
    )
