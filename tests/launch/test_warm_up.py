"""What the launcher runs once before centers are forked from it."""

from __future__ import annotations

import pytest

from launch import template
from tests.support.objectives import contract_of


@pytest.mark.parametrize("kind", ["mlp", "fedcare"])
def test_a_round_is_taken_with_either_trunk(kind: str) -> None:
    template._throw_away_round(contract_of(kind))
