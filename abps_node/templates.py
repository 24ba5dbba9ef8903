"""The commented files that ``abps init`` writes; a test proves that both load as they are."""

from __future__ import annotations

import json
from typing import Final

_CENTER: Final = """\
# One center's own file. Relative paths start at the folder of this file.
# Every key with its bounds and default: docs/configuration.md
# After each change: abps check center.toml

# This center's id on the roster of federation.toml.
id = {id}
federation = {federation}

# The patient table, .csv or .parquet, one row per patient or stay. It never leaves this center.
data = "patients.csv"

# Mode 0600. Whoever has this file can speak for this center.
secret_key = {secret_key}

# Where this center listens. 127.0.0.1 is this machine alone; for others to connect write
# "tcp://*:5555", and open the port in the firewall.
bind = "tcp://127.0.0.1:5555"

# What the others are told, where that is not `bind`: behind NAT, in a container, with host *.
# advertise = "tcp://federation.hospital.example:5555"

# Rounds, beliefs, models and the log. Keep it on a local disk; deleting it means starting over.
state_dir = "state"

# This center's own goal, if it is to differ from the contract's:
# "none", "homogeneity", "diversity" or "alignment".
# goal = "homogeneity"

# Seed of this center's own randomness. Choices are repeatable, not secret.
# seed = 0

# Also train without partners, to tell what the federation gave. Costs the same time again.
# compare_alone = true

# "debug", "info", "warning" or "error"
# log_level = "info"

# What this center wants beyond the contract's label, and columns that only it has. Nothing of it
# leaves the center; it needs contract.policy.head_layers of 1 or more. See docs/objectives.md.
# [[objective]]
# name = "mortality"
# kind = "bce"                 # or "sensitivity", "fairness", "huber-log" (days)
# column = "died_30d"
# [[objective]]
# name = "stay"
# kind = "huber-log"
# column = "stay_days"
# [[private]]
# name = "crp"
# kind = "continuous"
# [stage2]                     # private fine-tuning after the last round
# epochs = 20

# With discovery.kind = "mqtt" only: this center at the broker. The password stands alone in a file
# of mode 0600; without ca_file the broker's certificate must be of a well-known authority.
# [mqtt]
# password_file = "keys/broker.password"
# ca_file = "broker-ca.crt"
# events = true                # summaries of rounds, for dashboards

# Numbers about the running center for a Prometheus server, from this machine only.
# [metrics]
# bind = "tcp://127.0.0.1:9464"
"""

_DATA: Final = """\
# The table that every center brings. Replace the example by what you have agreed on;
# `abps schema infer patients.csv` drafts it from a table.
[contract.data]
label = "died_30d"             # 0 or 1
# group = "patient_id"         # several rows per patient: all of them fall into one split
# date = "admission_date"      # the card then tells the mean year
features = [
    { name = "age", kind = "continuous", unit = "years" },
    { name = "lactate", kind = "continuous", unit = "mmol/l", missing_indicator = true },
    { name = "diabetes", kind = "binary" },
    { name = "sex", kind = "binary", levels = ["F", "M"] },
    { name = "admission", kind = "categorical", levels = ["elective", "urgent", "emergency"] },
]

# The card is all that the others learn before weights move: the rate of the label, the logarithm
# of the number of training rows, the mean year, and the share of rows with each of these.
[contract.data.card]
features = ["diabetes"]
"""

_FEDERATION: Final = """\
# What all centers of the federation share: the same file everywhere.
# The hash of [contract] travels in every handshake; a center with another contract is refused.
# [discovery] and [[roster]] are outside the hash, so that a center can join without a new contract.
# Every key with its bounds and default: docs/configuration.md

[contract]
name = "example"
# "none" would send everything in clear: for experiments only.
security = "curve"

{data}
[contract.model]
hidden = [128, 64]
dropout = 0.2
init_seed = 1                  # all centers start from the same weights

# A preset supplies defaults; keys beside it win. The table of presets is in docs/configuration.md.
[contract.policy]
preset = "abps+p+q"
rounds = 50

[contract.pacing]
min_peers = 1                  # round 1 waits for so many peers…
start_wait_s = 60.0            # …at most this long
round_min_s = 1.0

# static: addresses stand in the roster. directory: each center drops its address into a folder
# that all of them see (kind = "directory", path = "cards").
[discovery]
kind = "static"

# Who may take part. The public key is the identity: a center without an entry is not heard.
[[roster]]
id = {id}
public_key = {public_key}
# address = "tcp://federation.hospital.example:5555"
"""


def center_toml(center_id: str, federation: str, secret_key: str) -> str:
    """center.toml; the two paths as they are to stand in the file."""
    return _CENTER.format(
        id=_quoted(center_id), federation=_quoted(federation), secret_key=_quoted(secret_key)
    )


def federation_toml(center_id: str, public_key: str, data: str | None = None) -> str:
    """A federation.toml whose roster knows this one center.

    ``data`` is the TOML text of ``[contract.data]``; default: an example.
    """
    return _FEDERATION.format(
        id=_quoted(center_id),
        public_key=_quoted(public_key),
        data=_DATA if data is None else data,
    )


def roster_entry(center_id: str, public_key: str) -> str:
    """What the keeper of federation.toml adds to it."""
    return f"[[roster]]\nid = {_quoted(center_id)}\npublic_key = {_quoted(public_key)}\n"


def _quoted(text: str) -> str:
    """A basic string of TOML; JSON's escapes are a subset of TOML's."""
    return json.dumps(text, ensure_ascii=False)
