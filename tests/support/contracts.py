"""Small valid contracts for tests."""

from __future__ import annotations

from typing import Any

from protocol.contract import Contract


def contract_values(**data: Any) -> dict[str, Any]:
    """The values of a contract with one feature of each kind; keywords go into ``data``."""
    return {
        "name": "test federation",
        "data": {
            "label": "died",
            "features": [
                {"name": "age", "kind": "continuous", "unit": "years"},
                {"name": "diabetes", "kind": "binary"},
                {"name": "cancer", "kind": "binary", "levels": ["no", "yes"]},
                {"name": "ward", "kind": "categorical", "levels": ["a", "b", "c"]},
            ],
            **data,
        },
    }


def small_contract(policy: dict[str, Any] | None = None, **data: Any) -> Contract:
    """A valid contract with this policy and these changes to its data section."""
    return Contract.model_validate({**contract_values(**data), "policy": policy or {}})
