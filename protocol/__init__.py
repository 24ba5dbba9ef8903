"""Everything a center decides and says, with no clock, socket, file, thread or torch.

The same code runs in the daemon (``abps_node``) and in the simulator (``sim``). Time comes in as
an argument, randomness from seeds, and the outside world as events; what is to be done leaves as
effects. See ``docs/architecture.md`` for the rooms of the house and ``docs/protocol.md`` for the
messages and the session state table.
"""

from typing import Final, Literal

PROTOCOL_VERSION: Final[Literal[1]] = 1
