"""Three MongoDB servers as one replica set, for fail-over tests."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tests.servers.mongo import SET_NAME, Mongo, set_config
from tests.servers.ports import HOST
from tests.servers.processes import wait_until
from tests.servers.server import START_S, ServerFailed

NOBODY_CAN_FOLLOW = 262  # ExceededTimeLimit


class MongoSet:
    """A replica set of three whose members can be killed and started again."""

    def __init__(self, *, owner: int | None = None) -> None:
        self.members = [Mongo(owner=owner, alone=False) for _ in range(3)]

    @property
    def url(self) -> str:
        """The address of the whole set."""
        return f"mongodb://{','.join(f'{HOST}:{member.port}' for member in self.members)}/?replicaSet={SET_NAME}"

    @property
    def urls(self) -> list[str]:
        """The address of each member alone."""
        return [f"mongodb://{HOST}:{member.port}/?directConnection=true" for member in self.members]

    def start(self) -> Self:
        """Starts what does not run and returns when there is a primary. The first time it makes the set."""
        try:
            for member in self.members:
                member.start()
            with self.members[0].direct() as client:
                if "setName" not in client.admin.command("hello"):
                    client.admin.command("replSetInitiate", set_config([member.port for member in self.members]))
            self.primary()
            self._wait_for_all()
        except BaseException:
            self.remove()
            raise
        return self

    def primary(self) -> Mongo:
        """The member that takes writes, waited for while there is none."""
        found: list[Mongo] = []

        def look() -> bool:
            found[:] = [member for member in self.members if member.running and self._state(member) == "primary"]
            return bool(found)

        if not wait_until(look, START_S):
            raise ServerFailed("the replica set has no primary")
        return found[0]

    def kill_primary(self) -> Mongo:
        """Kills the primary with SIGKILL and gives it back, to be started again."""
        member = self.primary()
        member.kill()
        return member

    def step_down(self) -> None:
        """Makes the primary hand over to another one, as maintenance does."""
        from pymongo.errors import OperationFailure

        def stepped_down() -> bool:
            try:
                with self.primary().direct(answer_s=30) as client:
                    client.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=5)
            except OperationFailure as error:
                if error.code != NOBODY_CAN_FOLLOW:
                    raise
                return False  # under load the others are behind, or have stepped down themselves a moment ago
            return True

        if not wait_until(stepped_down, START_S):
            raise ServerFailed("no other member could take over from the primary")

    def remove(self) -> None:
        """Ends all members and removes their data."""
        for member in self.members:
            member.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def _wait_for_all(self) -> None:
        if not wait_until(lambda: all(self._state(member) for member in self.members), START_S):
            raise ServerFailed("a member of the replica set does not follow")

    def _state(self, member: Mongo) -> str:
        from pymongo.errors import PyMongoError

        try:
            with member.direct() as client:
                hello = client.admin.command("hello")
        except PyMongoError:
            return ""
        return "primary" if hello["isWritablePrimary"] else "secondary" if hello.get("secondary") else ""
