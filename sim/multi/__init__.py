"""FedCARE's side of the simulator: clients with different tasks, private features, many heads.

Not on ``sim.engine``, whose centers all learn one label with one model: here what a client's model
is depends on its tasks. Trunks, heads, losses and the Pareto step are the daemon's
(``abps_node.learning``); data are split and encoded by ``abps_node.data``.
"""
