"""Checks of what was agreed on with the others: the contract, and the own identity in it."""

from __future__ import annotations

from collections.abc import Iterator

from abps_node.config import CenterConfig
from abps_node.config_text import FILL_IN
from abps_node.identity import load_own_keys
from abps_node.members_file import current_membership, read_changes
from abps_node.preflight.finding import Finding, ok, warning


def check_agreement(config: CenterConfig) -> Iterator[Finding]:
    """What was agreed on, and what in it somebody may not have meant."""
    federation = config.federation
    contract, policy = federation.contract, federation.contract.policy
    yield ok(
        "contract",
        f"{contract.name}, roster of {len(federation.roster)}, hash {contract.digest()[:12]}, "
        f"own goal {config.goal}",
    )
    if contract.security == "none":
        yield warning(
            "security",
            'security = "none": trunks and cards travel in clear, and nobody proves who they are',
            'set contract.security = "curve" for anything but an experiment with public data',
        )
    if federation.simulation:
        yield warning(
            "simulation",
            "several centers' secret keys lie together: whoever reads the folder is all of them",
            "for an experiment only; else each center makes its own key with `abps init`",
        )
    if unfilled := [each.name for each in contract.data.features if each.unit == FILL_IN]:
        yield warning(
            "units",
            f"«{FILL_IN}» is still the unit of {', '.join(unfilled)}",
            "write the unit, so that all centers bring the same; it is never converted",
        )
    if policy.card == "enriched" and not contract.data.card.features:
        yield warning(
            "card",
            'policy.card = "enriched", but data.card.features is empty: it stays the base card',
            "name the binary columns in contract.data.card.features",
        )


def check_keys(config: CenterConfig) -> Iterator[Finding]:
    """The own key pair; raises ``KeyFileError`` if it is unusable or not the roster's."""
    if config.federation.contract.security == "none":
        yield ok("keys", 'not used, since security = "none"')
        return
    pair = load_own_keys(config)
    own = current_membership(config).keys[config.id]
    if len(own) == 1:
        text = f"{config.secret_key.name} is private, and its public key is the roster's"
    else:
        text = (
            f"{config.secret_key.name} is private; of {len(own)} own keys {pair.public} is in use"
        )
    yield ok("keys", text)


def check_members(config: CenterConfig) -> Iterator[Finding]:
    """What was changed since the roster; raises ``ConfigError`` for a damaged file."""
    changes = read_changes(config.members)
    if not changes:
        yield ok("members", "those of the roster; nothing was changed since")
        return
    found = current_membership(config)
    gone = ", ".join(sorted(found.revoked)) or "nobody"
    named = f"{len(found.keys)} after {len(changes)} changes in {config.members.name}"
    yield ok("members", f"{named}; revoked: {gone}")
