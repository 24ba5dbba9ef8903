"""One center as a process: config, keys, transport, discovery, learning, store, daemon, CLI."""

__version__ = "0.1.0"
