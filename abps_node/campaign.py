"""Another campaign of a center: a new label period or refreshed data, and beliefs that go on.

The state of the campaign before is put aside whole. What goes on is the number of starts (the
others know it), the beliefs, discounted, and, under an unchanged contract, the words on sessions
that others may still ask for. No patient may change splits: whoever tested the last model must not
train the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abps_node.config import CenterConfig
from abps_node.data import Fingerprint, load_center
from abps_node.errors import DataError, StoreError
from abps_node.store import Store
from abps_node.store.carry import carry_over, sessions_that_others_may_ask_for
from abps_node.store.reader import Reader
from protocol.beliefs import Belief
from protocol.contract import Contract


@dataclass(frozen=True)
class Campaign:
    """What was begun."""

    archive: Path
    """The state of the campaign before."""
    rounds: int
    """That it had committed."""
    beliefs: dict[str, Belief]
    next_start: int


def begin_campaign(config: CenterConfig, discount: float) -> Campaign:
    """Put the state aside and begin a new one; ``discount`` is the share of evidence that is kept.

    Raises ``StoreError`` if the center runs or has no state, ``DataError`` if the table is not fit
    or a patient would change splits. Nothing is changed then.
    """
    contract, state_dir = config.federation.contract, config.state_dir
    reader = Reader(state_dir)
    status = reader.status()
    if status.condition in ("running", "elsewhere"):
        raise StoreError(
            f"{reader.path}: found the center running, allowed: stopped; stop it first"
        )
    if status.center != config.id:
        raise StoreError(f"{reader.path}: found the state of {status.center}, allowed: {config.id}")
    now = load_center(contract, config.id, config.data, config.aims).fingerprint
    stored = reader.patients()
    before = None if stored is None else Fingerprint.model_validate_json(stored)
    if now is not None and (reason := moving(reader.contract, contract, before, now)):
        raise DataError(f"{config.data}: patients would change splits: {reason}")
    beliefs = _discounted(reader, contract, discount)
    unchanged = reader.contract.digest() == contract.digest()
    sessions = sessions_that_others_may_ask_for(state_dir) if unchanged else []
    archive = _free_name(state_dir, "campaign")
    told: dict[str, Any] = {
        "discount": discount,
        "archive": archive.name,
        "former_contract": reader.contract.digest(),
        "beliefs": {peer: [b.alpha, b.beta, b.n] for peer, b in sorted(beliefs.items())},
    }
    text = f"a campaign begins; beliefs keep {discount:g} of their evidence"
    fresh = _free_name(state_dir, "next")
    with Store.open(fresh, config.id, contract, patients=now):
        pass
    carry_over(fresh, status.incarnation, beliefs, sessions, text, told)
    try:
        state_dir.rename(archive)
        fresh.rename(state_dir)
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot be renamed: {error.strerror}") from error
    return Campaign(archive, status.last_round, beliefs, status.incarnation + 1)


def moving(
    former: Contract, contract: Contract, before: Fingerprint | None, now: Fingerprint
) -> str | None:
    """Why a patient could change splits between two campaigns; None if none can.

    With a patient column the split is a hash of the patient under the contract's seed, whatever
    else is in the table. Without one it hangs on the table's rows and labels, so only a table whose
    rows are the same, dealt in the same way, will do.
    """
    old, new = former.data, contract.data
    if old.split_seed != new.split_seed:
        return f"data.split_seed: found {new.split_seed}, allowed: {old.split_seed}, as before"
    if old.group != new.group:
        return f"data.group: found {new.group!r}, allowed: {old.group!r}, as before"
    if new.group is not None:
        return None
    if before is None or before.rows != now.rows or before.splits != now.splits:
        return (
            "without a patient column (data.group) only a table with the same rows can be told to "
            "keep them apart; name one, or begin anew with another state_dir"
        )
    same = [
        name
        for name in before.columns.keys() & now.columns.keys()
        if name not in (old.label, new.label) and before.columns[name] == now.columns[name]
    ]
    return None if same else "no column of the former table is unchanged, so rows cannot be told"


def _discounted(reader: Reader, contract: Contract, factor: float) -> dict[str, Belief]:
    old, new = reader.contract.policy, contract.policy
    before = Belief(old.prior_alpha, old.prior_beta)
    prior = Belief(new.prior_alpha, new.prior_beta)
    found = {p: b.discounted(factor, before, prior) for p, b in reader.beliefs().items()}
    return {peer: belief for peer, belief in found.items() if belief != prior}


def _free_name(state_dir: Path, word: str) -> Path:
    number = 1
    while (found := state_dir.with_name(f"{state_dir.name}.{word}-{number}")).exists():
        number += 1
    return found
