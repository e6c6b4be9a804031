"""Memory and CPU of a process and all its descendants, from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


class Usage(NamedTuple):
    """What a tree of processes has used."""

    rss_mb: float  # shared pages count in each process that has them
    cpu_s: float  # of those that live, and of their children that have ended


def usage(pid: int) -> Usage:
    """Of this process and all below it; nothing of those that have just gone."""
    rss = cpu = 0.0
    for one in tree(pid):
        try:
            fields = _stat(one)
            rss += _status_kb(one, "VmRSS") / 1024
        except OSError:
            continue
        cpu += sum(int(value) for value in fields[11:15]) * TICK_S
    return Usage(rss, cpu)


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _stat(pid: int) -> list[str]:
    """The fields of the kernel's line behind the name, which may hold anything: state, parent, ..."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _status_kb(pid: int, name: str) -> int:
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0
