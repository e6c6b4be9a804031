"""Meeting a server: is it the right kind, does it keep what it is given, whose keys are there; and what to tell about it."""

from __future__ import annotations

import msgspec
import redis.asyncio as driver

from mulligan.core.clock import us_to_datetime
from mulligan.core.errors import SchemaMismatch
from mulligan.core.events import EVENT_LOG_MAX
from mulligan.stores.redis import durability
from mulligan.stores.redis.losses import LOSSES_MAX, Loss
from mulligan.stores.redis.server import SCHEMA_VERSION, Server, new_epoch
from mulligan.stores.redis.url import Address

_loss_decoder = msgspec.json.Decoder(Loss)


async def open_keys(server: Server, address: Address) -> None:
    """Checks the server's settings and the version of the keys, and makes the epoch where there is none."""
    durability.check(await durability.read_facts(server.client), address.durability, address.where)
    [version] = (await server.run("open", new_epoch(), SCHEMA_VERSION)).values
    if version.isdigit() and int(version) < SCHEMA_VERSION:
        raise SchemaMismatch(
            f"{address.where}: the keys of app {address.app} have layout {version.decode()[:20]}, this mulligan speaks {SCHEMA_VERSION}; "
            "copy the jobs with the mulligan that wrote them (mulligan copy), or use another ?app="
        )
    if not version.isdigit() or int(version) > SCHEMA_VERSION:
        raise SchemaMismatch(
            f"{address.where}: the keys of app {address.app} have layout {version.decode()[:20]}, this mulligan speaks {SCHEMA_VERSION}; "
            "install the newer mulligan"
        )


async def is_set_up(client: driver.Redis, app: str) -> bool:
    """Whether the keys that every app has are there."""
    return bool(await client.exists(f"{{{app}}}:schema"))


async def stored_losses(server: Server) -> tuple[Loss, ...]:
    """The losses noted in the store, oldest first, by whichever process saw them."""
    texts = await server.client.lrange(f"{server.prefix}losses", 0, LOSSES_MAX - 1)
    return tuple(_loss_decoder.decode(text) for text in texts)


async def forget_losses(server: Server) -> None:
    """Clears the notes of lost data."""
    await server.client.delete(f"{server.prefix}losses")
    server.losses.found.clear()


async def describe(server: Server, address: Address) -> dict[str, object]:
    """The server's version and settings, the sizes of the indexes, and what was lost."""
    facts = await durability.read_facts(server.client)
    losses = await stored_losses(server)
    client, prefix = server.client, server.prefix
    return {
        "server": f"{facts.server} {facts.version}, {facts.role}, {address.where}",
        "schema_version": SCHEMA_VERSION,
        "app": address.app,
        "durability": address.durability,
        "settings": {name: value for name, value in msgspec.structs.asdict(facts).items() if name not in ("server", "version")},
        "jobs": await client.zcard(f"{prefix}ids"),
        "leases": await client.zcard(f"{prefix}leases"),
        "done": await client.zcard(f"{prefix}finished:done"),
        "failed": await client.zcard(f"{prefix}finished:failed"),
        "cancelled": await client.zcard(f"{prefix}finished:cancelled"),
        "events": min(int(await client.get(f"{prefix}seq") or 0), EVENT_LOG_MAX),
        "claims": await client.zcard(f"{prefix}claims"),
        "losses": [f"{us_to_datetime(loss.at_us):%Y-%m-%d %H:%M:%S} UTC: {loss.what}" for loss in losses],
        "warnings": durability.warnings_of(facts),
    }
