"""One rule says after which exit codes a center is started again; the launcher follows it."""

from __future__ import annotations

import pytest

from abps_node.exits import AFTER_A_CHANGE, NEVER_AGAIN, ExitCode
from launch.restarts import Crashes, RestartPolicy


@pytest.mark.parametrize("code", [*AFTER_A_CHANGE, *NEVER_AGAIN])
def test_what_needs_a_person_first_is_not_started_again(code: ExitCode) -> None:
    assert Crashes(RestartPolicy()).next_start_s(code, ran_s=1.0) is None


@pytest.mark.parametrize("code", [ExitCode.INTERNAL, ExitCode.FAILED, -9])
def test_a_crash_is_started_again_a_few_times(code: int) -> None:
    crashes = Crashes(RestartPolicy(tries=2))
    assert [crashes.next_start_s(code, 1.0) for _ in range(3)] == [1.0, 2.0, None]
