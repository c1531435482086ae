"""The base of everything that a recipe is made of: unknown keys are refused with a suggestion."""

from __future__ import annotations

from typing import Any

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
                    raise ValueError(f"unknown key '{key}'.{suggestion(str(key), cls.model_fields)}")
        return data
