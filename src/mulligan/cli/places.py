"""What must hold of a store before a command may use it: a look creates nothing, and nothing is stored where nobody would find it."""

from __future__ import annotations

from mulligan.cli.options import store_hint
from mulligan.core.errors import BadSetting, SchemaMismatch, StoreUnavailable
from mulligan.stores import file_of, is_shared, pending_migrations, redacted


def require_shared(url: str) -> None:
    """Refuses a store that lives and dies with one process: a command could only see what it has put there itself."""
    if not is_shared(url):
        raise BadSetting(
            f"{url} lives and dies with one process, so a command cannot share it with another; name a file, as in sqlite:///jobs.db"
        )


async def require_ready(url: str) -> None:
    """Refuses a store that is not there, or would have to be changed before it can be read."""
    require_shared(url)
    path = file_of(url)
    if path is not None and not path.exists():
        raise StoreUnavailable(
            f"{path} does not exist, and a look does not create it; correct --store, or create it: mulligan migrate{store_hint(url)} "
            "(enqueue and worker do so too)"
        )
    pending = await pending_migrations(url)
    if pending:
        steps = ", ".join(f"{step.number} ({step.name})" for step in pending)
        raise SchemaMismatch(f"{path or redacted(url)} lacks migration {steps}; run: mulligan migrate{store_hint(url)}")
