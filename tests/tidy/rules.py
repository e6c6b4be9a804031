"""The house rules as functions: each takes a parsed file (or its text) and returns what it finds, one `line: sentence` per finding.

They live apart from the tests that apply them, so that other tests can show that each rule is able to fail.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

MODULE = "<module>"

Function = ast.FunctionDef | ast.AsyncFunctionDef

WALL_CLOCKS = {
    "time.time": "read the store's or the injected clock",
    "time.time_ns": "read the store's or the injected clock",
    "time.ctime": "read the store's or the injected clock",
    "time.gmtime": "read the store's or the injected clock",
    "time.localtime": "read the store's or the injected clock",
    "time.strftime": "format a time of the store's or the injected clock",
    "datetime.datetime.now": "read the store's or the injected clock",
    "datetime.datetime.utcnow": "read the store's or the injected clock",
    "datetime.datetime.today": "read the store's or the injected clock",
    "datetime.date.today": "read the store's or the injected clock",
    "uuid.uuid1": "make ids with core/ids",
    "uuid.uuid7": "make ids with core/ids",
}
# What the random module offers without a hidden, shared generator.
RANDOM_CLASSES = {"random.Random", "random.SystemRandom"}
FORBIDDEN_MODULES = {
    "pickle": "a stored pickle is code that runs when it is read; use JSON",
    "cPickle": "a stored pickle is code that runs when it is read; use JSON",
    "cloudpickle": "a stored pickle is code that runs when it is read; use JSON",
    "dill": "a stored pickle is code that runs when it is read; use JSON",
    "shelve": "it is pickle underneath; use JSON",
    "marshal": "it trusts its input; use JSON",
    "yaml": "its loaders can build any object; use JSON or TOML",
}
FORBIDDEN_CALLS = {
    "eval": "text is not code here",
    "exec": "text is not code here",
    "compile": "text is not code here",
    "__import__": "only registered tasks run; use importlib under an allow-listed prefix",
    "os.system": "start a program with a list of arguments",
    "os.popen": "start a program with a list of arguments",
    "subprocess.getoutput": "start a program with a list of arguments",
    "subprocess.getstatusoutput": "start a program with a list of arguments",
}
SQL = re.compile(
    r"\bselect\b.+\bfrom\b|\binsert\s+(or\s+\w+\s+)?into\b|\bupdate\s+(or\s+\w+\s+)?\S+\s+set\b|\bdelete\s+from\b"
    r"|\bcreate\s+(unique\s+|temp\s+|temporary\s+)?(table|index|view|trigger)\b|\balter\s+table\b|\bdrop\s+(table|index|view|trigger)\b"
    r"|\bpragma\s+\w+|\bwith\s+(recursive\s+)?\w+\s*(\([^)]*\)\s*)?as\s+(materialized\s+)?\(|\bvacuum\s+into\b|\battach\s+database\b",
    re.IGNORECASE | re.DOTALL,
)
# Written so that no pattern matches its own text.
TRACES = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:root|home|work|opt|Users)/[\w.-]"),
    "the address of a package registry": re.compile(
        r"(?:pypi|pythonhosted|npmjs|anaconda|crates)\.(?:org|com|io)\b|registry\.[a-z]+\.[a-z]{2,}"
    ),
    "a setting that names a package index": re.compile(r"--(?:extra-)?index-url\s+\S|--find-links\s+\S|(?:extra-)?index-url\s*="),
}


def long_file(text: str) -> list[str]:
    """A file is one noun: it fits into FILE_LINES_MAX lines."""
    lines = len(text.splitlines())
    return [f"1: {lines} lines, the limit is {FILE_LINES_MAX}; split it by nouns"] if lines > FILE_LINES_MAX else []


def long_functions(tree: ast.Module) -> list[str]:
    """A function is one thought: it fits into FUNCTION_LINES_MAX lines."""
    found = []
    for function in functions(tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            found.append(f"{function.lineno}: {function.name} has {lines} lines, the limit is {FUNCTION_LINES_MAX}")
    return found


def clock_and_chance(tree: ast.Module) -> list[str]:
    """Nothing reads the wall clock or the global random generator; a mere mention (clock=time.time) counts as reading."""
    found = []
    for node, name in dotted_uses(tree):
        if name in WALL_CLOCKS:
            found.append(f"{node.lineno}: {name}: {WALL_CLOCKS[name]}")
        elif name.startswith("random.") and name.count(".") == 1 and name not in RANDOM_CLASSES:
            found.append(f"{node.lineno}: {name} draws from the global generator; take a random.Random as an argument")
    names = imported_names(tree)
    found += [
        f"{call.lineno}: an unseeded generator cannot be repeated; take one as an argument, or core/clock.system_rng()"
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and not call.args and dotted(call.func, names) in RANDOM_CLASSES
    ]
    return sorted(found, key=line_of)


def dangerous(tree: ast.Module) -> list[str]:
    """Nothing turns stored or given text into code or into a shell command."""
    found = []
    names = imported_names(tree)
    for node in ast.walk(tree):
        for module in imported_modules(node):
            root = module.split(".")[0]
            if root in FORBIDDEN_MODULES:
                found.append(f"{getattr(node, 'lineno', 0)}: import of {root}: {FORBIDDEN_MODULES[root]}")
        if isinstance(node, ast.Call):
            name = dotted(node.func, names)
            if name in FORBIDDEN_CALLS:
                found.append(f"{node.lineno}: {name}(): {FORBIDDEN_CALLS[name]}")
            if any(keyword.arg == "shell" and not is_false(keyword.value) for keyword in node.keywords):
                found.append(f"{node.lineno}: shell=: start a program with a list of arguments")
    return sorted(found, key=line_of)


def missing_module_docstring(tree: ast.Module) -> list[str]:
    """A module opens with a sentence that says what it is."""
    return [] if ast.get_docstring(tree) else ["1: the module has no docstring"]


def undocumented_tests(tree: ast.Module) -> list[str]:
    """A test says in a sentence what it shows."""
    return [
        f"{function.lineno}: {function.name} has no docstring"
        for function in functions(tree)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]


def sleeps(tree: ast.Module) -> dict[str, list[int]]:
    """Where time.sleep is used: the dotted name of the function around it, and the lines."""
    names = imported_names(tree)
    return places(tree, lambda node: isinstance(node, ast.Name | ast.Attribute) and dotted(node, names) == "time.sleep")


def composed_sql(tree: ast.Module) -> dict[str, list[int]]:
    """Where SQL is put together from text: the dotted name of the function around it, and the lines. Values are bound, never pasted in."""
    return places(tree, lambda node: SQL.search(composed_text(node)) is not None)


def traces(text: str) -> list[str]:
    """Nothing in the repository tells on which machine, or from where, it was made."""
    return [
        f"{number}: {what}: {match.group()}"
        for number, line in enumerate(text.splitlines(), start=1)
        for what, pattern in TRACES.items()
        if (match := pattern.search(line))
    ]


def dead_modules(trees: Mapping[str, ast.Module], entries: set[str]) -> list[str]:
    """Every module is an entry point, or is imported (also late, also by its dotted name in a string) by another one."""
    alive = set(entries)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            for target in [*imported_modules(node), *named_modules(node)]:
                parts = target.split(".")
                prefixes = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
                alive |= prefixes - {module}
    return sorted(f"{module} is imported nowhere" for module in trees if module not in alive)


def places(tree: ast.Module, wanted: Callable[[ast.AST], bool]) -> dict[str, list[int]]:
    """The lines of the wanted nodes, by the function or class around them."""
    found: dict[str, list[int]] = {}
    for node, owner in owned(tree):
        if wanted(node):
            found.setdefault(owner, []).append(getattr(node, "lineno", 0))
    return found


# -- helpers ---------------------------------------------------------------------------------------------------------


def functions(tree: ast.Module) -> Iterator[Function]:
    """All functions and methods, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def imported_modules(node: ast.AST) -> list[str]:
    """What one import statement may bring in; `from a import b` may mean the module a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def named_modules(node: ast.AST) -> list[str]:
    """A module named in a string, as a lazily loaded command is: "mulligan.cli.demo" or "mulligan.cli.demo:command"."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"mulligan(\.\w+)+(:\w+)?", node.value):
        return [node.value.partition(":")[0]]
    return []


def imported_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for: {"dt": "datetime", "now": "time.time"}."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """The full dotted name of an expression, seen through the file's imports; empty if it is none."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (base := dotted(node.value, names)):
        return f"{base}.{node.attr}"
    return ""


def dotted_uses(tree: ast.Module) -> Iterator[tuple[ast.Name | ast.Attribute, str]]:
    """Every use of an imported name, with what it stands for. An import alone is no use, but `from time import time` used is."""
    names = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in names:
                yield node, dotted(node, names)


def composed_text(node: ast.AST) -> str:
    """The fixed parts of a text put together at run time (f-string, %, +, format), with ? for what is pasted in; empty if it is none."""
    if isinstance(node, ast.JoinedStr) and any(isinstance(part, ast.FormattedValue) for part in node.values):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else " ? " for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return fixed_text(node.left)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return " ? ".join((fixed_text(node.left), fixed_text(node.right)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return fixed_text(node.func.value)
    return ""


def fixed_text(node: ast.AST) -> str:
    """The text of a string constant, else nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def owned(node: ast.AST, owner: str = MODULE) -> Iterator[tuple[ast.AST, str]]:
    """Every node below this one with the dotted name of the innermost function or class around it."""
    for child in ast.iter_child_nodes(node):
        yield child, owner
        if isinstance(child, Function | ast.ClassDef):
            inner = child.name if owner == MODULE else f"{owner}.{child.name}"
            yield from owned(child, inner)
        else:
            yield from owned(child, owner)


def is_false(node: ast.AST) -> bool:
    """Whether an expression is the constant False."""
    return isinstance(node, ast.Constant) and node.value is False


def line_of(finding: str) -> int:
    """The line a finding begins with."""
    return int(finding.partition(":")[0])
