"""Transactions whose process has died in the middle of them.

The server does not notice that: it keeps what such a transaction has written from everybody else until its own limit is over, which is a
minute or more, and all that time nobody could claim under the same limits. So whoever is in conflict for long looks for transactions of
this program that were left alone, and ends them. One that was only held up begins again, like after any other conflict.
"""

from __future__ import annotations

import logging

from pymongo.errors import OperationFailure

from mulligan.stores.mongo.database import Database

log = logging.getLogger("mulligan.mongo")
APP_NAME = "mulligan"  # how the server knows the connections of this program
ABANDONED_US = 1_000_000  # the steps of our transactions follow one another at once


async def end_abandoned(database: Database) -> int:
    """Ends the transactions of this program that nobody has gone on with for a while; how many there were."""
    left_alone = {"type": "idleSession", "appName": APP_NAME, "transaction.timeInactiveMicros": {"$gt": ABANDONED_US}}
    admin = database.client.admin
    try:
        found = await (await admin.aggregate([{"$currentOp": {"idleSessions": True}}, {"$match": left_alone}])).to_list()
        if found:
            await admin.command("killSessions", [{"id": doc["lsid"]["id"]} for doc in found])
    except OperationFailure as problem:  # a user that may not do that waits for the server's own limit
        log.warning("abandoned transactions cannot be ended: %s", problem)
        return 0
    return len(found)
