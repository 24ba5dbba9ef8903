"""A real mosquitto, set up by the commands and files of ``examples/mosquitto``."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from abps_node.config import Broker, BrokerAccess

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "mosquitto"
HOST: Final = "127.0.0.1"
_START_S: Final = 10.0
_SBIN: Final = "/usr/sbin"


def mosquitto() -> str | None:
    """The program; Debian puts it where only root looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path=_SBIN)


def prepare(folder: Path, *users: str) -> None:
    """Run the example's script."""
    command = [str(EXAMPLE / "prepare.sh"), str(folder), HOST, *users]
    subprocess.run(command, check=True, timeout=30, capture_output=True, text=True)


def free_port() -> int:
    """One that nobody holds just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class MosquittoBroker:
    """One broker in a prepared folder; can be stopped, frozen, and started again on its port."""

    def __init__(self, folder: Path, *, tls: bool = True) -> None:
        self.folder = folder
        self.port = free_port()
        self.tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / f"log-{self.port}"

    def start(self) -> None:
        """Start and wait until it listens."""
        program = mosquitto()
        assert program is not None
        conf = self.folder / f"run-{self.port}.conf"
        conf.write_text(self._configuration(), encoding="utf-8")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, "-c", str(conf)], cwd=self.folder, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _START_S
        while not self._listens():
            said = self.log.read_text(encoding="utf-8")
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.01)

    def _configuration(self) -> str:
        """The example's, but for the port and the user, and without TLS if need be."""
        text = (self.folder / "mosquitto.conf").read_text(encoding="utf-8")
        listener = "listener 8883\n"
        assert listener in text
        text = text.replace(listener, f"listener {self.port} {HOST}\n")
        if not self.tls:
            kept = [
                line for line in text.splitlines() if not line.startswith(("cert", "key", "tls"))
            ]
            text = "\n".join(kept)
        return f"{text}\nuser {getpass.getuser()}\n"

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It goes on listening and never answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        self._signal(signal.SIGCONT)

    def reload(self) -> None:
        """Read passwords and access rules anew."""
        self._signal(signal.SIGHUP)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def shared(self, prefix: str = "abps", keepalive_s: int = 30) -> Broker:
        """What federation.toml would say."""
        return Broker(HOST, self.port, self.tls, prefix, keepalive_s)

    def access(self, user: str) -> BrokerAccess:
        """What center.toml would say."""
        return BrokerAccess(
            file=self.folder / "center.toml",
            username=user,
            password_file=self.folder / "users" / f"{user}.password",
            ca_file=self.folder / "ca.crt" if self.tls else None,
        )

    def password(self, user: str) -> str:
        """Of this user."""
        path = self.folder / "users" / f"{user}.password"
        return path.read_text(encoding="utf-8").strip()
