"""The base of everything that a recipe is made of: unknown keys are refused with a suggestion."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator

from limbeck.errors import suggestion


class Strict(BaseModel):
    """A frozen pydantic model that names the nearest key when it meets one it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise ValueError(f"unknown key '{str(key)[:200]}'.{suggestion(str(key), cls.model_fields)}")
                # Pydantic takes true for 1, and YAML takes yes and on for true.
                if isinstance(data[key], bool) and not _takes_truth(cls.model_fields[key].annotation):
                    raise ValueError(f"{key} is {str(data[key]).lower()}, which means nothing here: give a value")
        return data


def _takes_truth(kind: Any) -> bool:
    """Whether a type has truth values among its own."""
    return kind in (bool, Any) or any(map(_takes_truth, get_args(kind)))
