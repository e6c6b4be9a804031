"""Free ports of this machine."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

HOST = "127.0.0.1"
LOWEST = 10_000


def free_port() -> int:
    """A port nobody listens on, and which the system gives to no outgoing connection.

    A client that knocks at a port of the outgoing range while its server is away may be connected to itself, and then holds
    the port so that the server cannot come back. Hence a port below that range.
    """
    for _ in range(1_000):
        port = LOWEST + secrets.randbelow(first_outgoing_port() - LOWEST)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {LOWEST} and {first_outgoing_port()}")


def first_outgoing_port() -> int:
    """Where the ports of outgoing connections begin."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("utf-8").split()[0])
    except OSError:
        return 32_768
    return first if first > LOWEST + 1_000 else 32_768
