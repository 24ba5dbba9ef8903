"""What a running center tells a Prometheus server, where center.toml asks for it."""
