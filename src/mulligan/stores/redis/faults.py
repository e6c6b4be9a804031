"""What the driver's errors mean to a caller. No message holds a password: the server's place is named without it."""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,  # noqa: A004 - the driver's own name
    NoPermissionError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004 - the driver's own name
)

from mulligan.core.errors import BadSetting, MulliganError, SchemaMismatch, StoreRejected, StoreUnavailable

# The first word of what a server says when it cannot for now, and what that means.
_FOR_NOW = {
    "BUSY": "is busy with another client's slow script; SCRIPT KILL ends one that has not written",
    "LOADING": "is reading its file after a start",
    "READONLY": "is a replica, and takes no writes; point the URL at the primary",
    "MASTERDOWN": "is a replica that has lost its primary",
    "TRYAGAIN": "is moving keys to another node of its cluster",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "MOVED": "belongs to a cluster, and the app's keys live on another node; point the URL at the node that has their slot",
    "ASK": "is moving the app's keys to another node of its cluster",
    "OOM": "is out of memory (maxmemory), so nothing was written; raise maxmemory, or prune old jobs",
    "MISCONF": "cannot save its data to disk and refuses writes; look into its log",
    "NOREPLICAS": "has fewer replicas than min-replicas-to-write asks for",
    "UNBLOCKED": "has just become a replica",
}

# Where the driver has an error class of its own, it leaves the word out of the message.
_BY_CLASS = {
    "BusyLoadingError": "LOADING",
    "ReadOnlyError": "READONLY",
    "MasterDownError": "MASTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "ClusterDownError": "CLUSTERDOWN",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "OutOfMemoryError": "OOM",
}


def translated(problem: Exception, where: str) -> MulliganError:
    """The error to raise instead of a driver's."""
    said = _said(problem)
    if isinstance(problem, (AuthenticationError, AuthorizationError)) or said.startswith(("NOAUTH", "WRONGPASS", "invalid username")):
        return BadSetting(f"{where} refuses the user or the password of the URL")
    if isinstance(problem, NoPermissionError) or said.startswith("NOPERM"):
        return BadSetting(f"{where}: this user may not do what the store needs (EVALSHA, and all commands on its keys): {said}")
    word = _BY_CLASS.get(type(problem).__name__)
    if word is not None:
        return StoreUnavailable(f"{where} {_FOR_NOW[word]}")
    for word, meaning in _FOR_NOW.items():
        if said.startswith(word) or f" {word} " in said or f"-{word} " in said:
            return StoreUnavailable(f"{where} {meaning}")
    if "WRONGTYPE" in said:
        return SchemaMismatch(
            f"{where}: a key of this app holds something else than mulligan put there; give it a name of its own by ?app="
        )
    if isinstance(problem, (ConnectionError, TimeoutError, OSError, EOFError)):
        return StoreUnavailable(f"{where} cannot be reached: {said or type(problem).__name__}; is it running, and may this host reach it?")
    if "invalid DB index" in said or "DB index is out of range" in said:
        return BadSetting(f"{where} has no database of that number")
    if isinstance(problem, ResponseError) and "max number of clients" in said:
        return StoreUnavailable(f"{where} has no connection left (maxclients)")
    if isinstance(problem, RedisError):
        return StoreRejected(f"{where} refuses: {said}")
    return StoreRejected(f"{where}: {type(problem).__name__}: {said}")


def _said(problem: Exception) -> str:
    """The message, bounded. The driver names hosts and ports, never the URL."""
    return str(problem).replace("\n", " ")[:300]
