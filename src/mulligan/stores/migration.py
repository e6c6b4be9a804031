"""A migration of a SQL store: one numbered step, known by its checksum."""

from __future__ import annotations

from hashlib import sha256

import msgspec


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the schema: statements that are run together, in one transaction."""

    number: int
    name: str
    statements: tuple[str, ...]

    @property
    def checksum(self) -> str:
        """Changes when a statement does, but not when its indentation does."""
        words = [" ".join(statement.split()) for statement in self.statements]
        return sha256(";\n".join(words).encode()).hexdigest()

    @property
    def sql(self) -> str:
        """The step as a script."""
        head = f"-- {self.number}: {self.name}\n"
        return head + "".join(f"{statement.strip()};\n" for statement in self.statements)
