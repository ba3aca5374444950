"""Gives each replica a loopback port of its own."""

from __future__ import annotations

import socket

from holdfast.adapters.runner.backends import LOOPBACK


class Ports:
    """Ports come from the system; those given out are remembered until given back.

    Between the choice and the backend's own bind anybody may take the port. The replica
    then hears so from the backend and asks for another.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        """Return a port that was free a moment ago and is not another replica's."""
        while True:
            with socket.socket() as probe:
                probe.bind((LOOPBACK, 0))
                port: int = probe.getsockname()[1]
            if port not in self._taken:
                self._taken.add(port)
                return port

    def keep(self, port: int) -> None:
        """Remember a port that is in use already."""
        self._taken.add(port)

    def give_back(self, port: int) -> None:
        """Forget a port whose process has ended."""
        self._taken.discard(port)
