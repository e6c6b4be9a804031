"""Looking at and changing the keys behind a store, past all its checks."""

from __future__ import annotations

from typing import Any

from mulligan.stores.redis import RedisStore


async def command(store: RedisStore, *words: Any) -> Any:
    """The server's answer to a command; `{}` at the beginning of a word stands for the app's prefix."""
    texts = [word.replace("{}", store._db.prefix, 1) if isinstance(word, str) and word.startswith("{}") else word for word in words]

    async def ask() -> Any:
        return await store._db.client.execute_command(*texts)  # type: ignore[no-untyped-call]

    return await store._call(ask)


async def figures(store: RedisStore) -> dict[str, Any]:
    """What the server counts of each command, those of scripts included."""

    async def ask() -> dict[str, Any]:
        return await store._db.client.info("commandstats")

    return await store._call(ask)


async def keys(store: RedisStore) -> set[str]:
    """All keys of the app, without the prefix."""
    prefix = store._db.prefix
    return {key.decode().removeprefix(prefix) for key in await command(store, "KEYS", "{}*")}
