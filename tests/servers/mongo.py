"""MongoDB as a replica set of one: the smallest that has majority writes and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.servers.ports import HOST
from tests.servers.programs import mongod
from tests.servers.server import Server

if TYPE_CHECKING:
    from pymongo import MongoClient

SET_NAME = "mulligan"
ALREADY_INITIALIZED = 23


class Mongo(Server):
    """A mongod that is primary of its own replica set, or a member of one that MongoSet makes."""

    kind = "mongo"

    def __init__(self, *, owner: int | None = None, alone: bool = True) -> None:
        super().__init__(owner=owner)
        self.alone = alone

    @property
    def url(self) -> str:
        """The address of the set it belongs to."""
        return f"mongodb://{HOST}:{self.port}/?replicaSet={SET_NAME}"

    def prepare(self) -> None:
        """The server makes its files by itself."""

    def command(self) -> list[str]:
        """A small cache and log, and an end that does not wait for clients to go."""
        return [
            *(str(mongod()), "--dbpath", str(self.folder), "--bind_ip", HOST, "--port", str(self.port), "--nounixsocket"),
            *("--replSet", SET_NAME, "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "128", "--quiet"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
            *("--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100"),
        ]

    def answers(self) -> bool:
        """Alone it is ready as primary; among others as soon as it says anything."""
        from pymongo.errors import PyMongoError

        try:
            with self.direct() as client:
                if self.alone:
                    return self._is_primary(client)
                client.admin.command("ping")
                return True
        except PyMongoError:
            return False

    def direct(self, answer_s: float = 5) -> MongoClient[dict[str, Any]]:
        """A client of this member, whatever its role. Close it."""
        from pymongo import MongoClient

        return MongoClient(HOST, self.port, directConnection=True, serverSelectionTimeoutMS=2_000, socketTimeoutMS=round(answer_s * 1_000))

    def _is_primary(self, client: MongoClient[dict[str, Any]]) -> bool:
        from pymongo.errors import OperationFailure

        hello = client.admin.command("hello")
        if "setName" in hello:
            return bool(hello["isWritablePrimary"])
        try:
            client.admin.command("replSetInitiate", set_config([self.port]))
        except OperationFailure as error:
            if error.code != ALREADY_INITIALIZED:
                raise
        return False


def set_config(ports: list[int]) -> dict[str, Any]:
    """A replica set on these ports, quick to notice that its primary is gone."""
    return {
        "_id": SET_NAME,
        "members": [{"_id": number, "host": f"{HOST}:{port}"} for number, port in enumerate(ports)],
        "settings": {"electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500},
    }
