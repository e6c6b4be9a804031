"""Servers to try things on by hand: `python -m tests.servers postgres redis` prints their URLs and runs until Ctrl-C."""

from __future__ import annotations

import signal
import sys

from tests.servers.run import KINDS, server_url


def main() -> None:
    """Starts what was asked for, all three if nothing was."""
    wanted = sys.argv[1:] or list(KINDS)
    if unknown := set(wanted) - set(KINDS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(KINDS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for kind in wanted:
        print(kind, server_url(kind), flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
