"""Whether a center is who its roster says: the own key pair against the own roster entry."""

from __future__ import annotations

from abps_node.config import CenterConfig
from abps_node.errors import KeyFileError
from abps_node.keys import KeyPair, load_key_pair
from abps_node.members_file import current_membership


def load_own_keys(config: CenterConfig) -> KeyPair:
    """The key pair of this center; ``KeyFileError`` if unusable or not one of its own keys.

    The others would take a center with another key for a stranger and hear nothing from it, so
    this is found out before anything is started.
    """
    pair = load_key_pair(config.secret_key)
    allowed = current_membership(config).keys.get(config.id, ())
    if pair.public not in allowed:
        raise KeyFileError(
            f"{config.secret_key}: found the secret of public key {pair.public}, allowed: that of "
            f"{' or '.join(allowed) or 'none'}, which the roster of {config.federation.path} gives "
            f"{config.id}"
        )
    return pair
