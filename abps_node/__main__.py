"""``python -m abps_node`` is ``abps``."""

from abps_node.cli.main import run

if __name__ == "__main__":
    run()
