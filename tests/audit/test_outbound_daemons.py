"""Real centers: what the record says has left is what went over their sockets, kills included."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

from abps_node.audit.chain import files_of
from abps_node.audit.verify import verify
from abps_node.cli.read_outbound import Filter, lines
from abps_node.config import CenterConfig
from abps_node.exits import ExitCode
from abps_node.store.reader import Reader
from tests.support.center_processes import CenterProcesses
from tests.support.command_line import abps
from tests.support.wards import ward_contract, ward_federation

ROUNDS = 4


def sent_by_kind(center: CenterConfig) -> Counter[tuple[str, str]]:
    """Frames that were handed over, by receiver and kind, as the record knows them."""
    sent = (line for line in lines(center.state_dir, Filter()) if line["sent"])
    return Counter((str(line["to"]), str(line["what"])) for line in sent if line["via"] == "peer")


def test_the_record_is_what_was_sent(tmp_path: Path, processes: CenterProcesses) -> None:
    agreed = ward_contract({"rounds": ROUNDS}, {"linger_s": 5.0})
    amber, crow = ward_federation(tmp_path / "f", ["amber", "crow"], agreed).centers
    first, other = processes.start(amber), processes.start(crow)
    first.wait_for_round(2)
    first.send(signal.SIGKILL)
    first.wait_for_end()
    files = files_of(amber.state_dir)
    assert len(files) == 1 and verify(amber.state_dir).broken is None
    again = processes.start(amber)
    assert again.wait_for_end() == other.wait_for_end() == ExitCode.OK

    for center in (amber, crow):
        verdict = verify(center.state_dir)
        assert verdict.broken is None
        assert verdict.head == verdict.anchor
        check_cards(center)
    assert verify(amber.state_dir).starts == 2
    accounts = Reader(crow.state_dir).traffic()
    counted = {(a.peer, a.kind): a.messages for a in accounts if a.direction == "out"}
    assert sent_by_kind(crow) == counted
    weights = list(lines(crow.state_dir, Filter(kind="weights")))
    assert weights and all(len(str(line["trunk"])) == 64 for line in weights)

    shown = abps("outbound", amber.path, "--verify")
    assert shown.code == ExitCode.OK and "whole: every line of 2 starts" in shown.out
    files[0].write_bytes(files[0].read_bytes().replace(b'"to":"crow"', b'"to":"owls"', 1))
    shown = abps("outbound", amber.path, "--verify")
    assert shown.code == ExitCode.BROKEN_RECORD
    assert f"{files[0]}: line " in shown.err and "found hash" in shown.err


def check_cards(center: CenterConfig) -> None:
    """The hello tells the card's values; the folder's card was written and taken back."""
    found = list(lines(center.state_dir, Filter()))
    hello = next(line for line in found if line["what"] == "hello")
    assert len(hello["message"]["card"]["values"]) == 2
    told = [line for line in found if line["via"] == "directory"]
    assert told[0]["what"] == "card" and told[-1]["what"] == "card-removed"
    assert json.loads(told[0]["told"])["id"] == center.id
    assert {"propose", "accept", "weights"} & {line["what"] for line in found}


def test_what_went_out_before_a_kill_is_on_record(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    """SIGKILL right after a trunk was handed to the socket."""
    agreed = ward_contract({"rounds": ROUNDS}, {"linger_s": 5.0})
    amber, crow = ward_federation(tmp_path / "f", ["amber", "crow"], agreed).centers
    processes.start(crow)
    killed = processes.start(amber, "--die-at", "weights", "--in-round", "2")
    assert killed.wait_for_end() == -signal.SIGKILL
    last = list(lines(amber.state_dir, Filter()))[-1]
    assert (last["what"], last["to"], last["sent"]) == ("weights", "crow", True)
    assert last["message"]["round"] >= 2
    verdict = verify(amber.state_dir)
    assert verdict.broken is None
    assert verdict.head is not None and verdict.anchor is not None
    assert verdict.head.number > verdict.anchor.number
