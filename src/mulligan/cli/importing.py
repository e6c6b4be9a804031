"""From `module:app` to the app: imported as a program in the working directory would import it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.core.errors import BadSetting

if TYPE_CHECKING:
    from mulligan.app import Mulligan


def import_app(target: str) -> Mulligan:
    """The app a target names; BadSetting with what is wrong and what to do."""
    from mulligan.app import Mulligan

    module_name, colon, path = target.partition(":")
    if not (colon and module_name and path) or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise BadSetting(
            f"{target!r} does not name an app: give MODULE:APP, for example shop.tasks:app for the variable app in shop/tasks.py"
        )
    found: object = _import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise BadSetting(f"module {module_name} has no {path!r}{_apps_in(module_name)}")
        found = getattr(found, part)
    if not isinstance(found, Mulligan):
        raise BadSetting(f"{target} is a {type(found).__name__}, not a Mulligan app{_apps_in(module_name)}")
    return found


def _import_module(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        missing = problem.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise BadSetting(
                f"there is no module {missing!r} in {here} or among the installed packages; start in the folder that holds it"
            ) from None
        raise BadSetting(
            f"importing {name} failed: it needs the module {missing!r}, which is not installed ({_place(problem)})"
        ) from problem
    except Exception as problem:
        # It is the user's code that fails here: whatever it raises is told with its place, in one line.
        raise BadSetting(f"importing {name} failed: {type(problem).__name__}: {problem} ({_place(problem)})") from problem


def _place(problem: BaseException) -> str:
    """Where in the user's code an import went wrong."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = str(Path(__file__).parent)
    theirs = [frame for frame in frames if not frame.filename.startswith(("<frozen", ours)) and "importlib" not in frame.filename]
    return f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else "no place is known"


def _apps_in(module_name: str) -> str:
    """The apps a module does have, for the error about a wrong name."""
    from mulligan.app import Mulligan

    names = [name for name, value in vars(sys.modules[module_name]).items() if isinstance(value, Mulligan)]
    return f"; it has {', '.join(f'{module_name}:{name}' for name in names)}" if names else "; it defines no Mulligan app"
