from __future__ import annotations

import ast
import textwrap

import pytest

from tests.tidy import rules


def tree(text: str) -> ast.Module:
    return ast.parse(textwrap.dedent(text))


def test_a_long_file_is_found() -> None:
    """One line over the limit is a finding, the limit itself is not."""
    assert rules.long_file("x = 1\n" * rules.FILE_LINES_MAX) == []
    assert rules.long_file("x = 1\n" * (rules.FILE_LINES_MAX + 1))


@pytest.mark.parametrize("head", ["def f():", "async def f():"])
def test_a_long_function_is_found(head: str) -> None:
    """One line over the limit is a finding, the limit itself is not, and a method counts like a function."""
    fits = "\n    ".join([head] + ["x = 1"] * (rules.FUNCTION_LINES_MAX - 1))
    assert rules.long_functions(tree(fits)) == []
    assert rules.long_functions(tree(f"{fits}\n    x = 1"))
    method = "class C:\n" + textwrap.indent(f"{fits}\n    x = 1", "    ")
    assert rules.long_functions(tree(method))


@pytest.mark.parametrize(
    "text",
    [
        "import time\nnow = time.time()",
        "import time\nnow = time.time_ns()",
        "import time as t\nnow = t.time()",
        "from time import time\nnow = time()",
        "from time import time as now\nx = now()",
        "import time\ndef f(clock=time.time): ...",
        "from datetime import datetime\nnow = datetime.now()",
        "from datetime import datetime, timezone\nnow = datetime.now(timezone.utc)",
        "import datetime\nnow = datetime.datetime.utcnow()",
        "import datetime as dt\nnow = dt.datetime.now(dt.UTC)",
        "from datetime import date\nday = date.today()",
        "import uuid\nname = uuid.uuid1()",
        "import random\nx = random.random()",
        "import random\nx = random.uniform(0, 1)",
        "import random\nx = random.choice([1])",
        "import random\nx = random.randint(0, 1)",
        "import random\nrandom.seed(1)",
        "from random import uniform\nx = uniform(0, 1)",
        "import random\nrng = random.Random()",
        "from random import Random\nrng = Random()",
        "def f():\n    import time\n    return time.time()",
    ],
)
def test_a_wall_clock_or_global_chance_is_found(text: str) -> None:
    """However it is imported, renamed or handed on, the use is found."""
    assert rules.clock_and_chance(tree(text))


@pytest.mark.parametrize(
    "text",
    [
        "import time\nx = time.monotonic()",
        "import random\nrng = random.Random(7)",
        "import random\ndef f(rng: random.Random) -> float:\n    return rng.uniform(0, 1)",
        "def f(clock):\n    return clock.time()",
        "from datetime import datetime\nx = datetime.fromtimestamp(0)",
        "class C:\n    time = 1\nx = C.time",
    ],
)
def test_monotonic_time_and_given_generators_are_fine(text: str) -> None:
    """Spans and generators handed in are not findings."""
    assert rules.clock_and_chance(tree(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import marshal",
        "import yaml",
        "import shelve",
        "eval('1')",
        "exec('x = 1')",
        "compile('1', '', 'eval')",
        "__import__('os')",
        "import os\nos.system('ls')",
        "from os import popen\npopen('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=flag)",
    ],
)
def test_text_turned_into_code_is_found(text: str) -> None:
    """Pickles, evaluation and shells are findings."""
    assert rules.dangerous(tree(text))


@pytest.mark.parametrize(
    "text", ["import re\nre.compile('x')", "import subprocess\nsubprocess.run(['ls'], shell=False)", "x.eval()", "import json"]
)
def test_harmless_namesakes_are_fine(text: str) -> None:
    """re.compile, shell=False and methods of that name are not findings."""
    assert rules.dangerous(tree(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        'def f(x):\n    return f"SELECT * FROM jobs WHERE id = {x}"',
        'def f(x):\n    return f"select a from {x}"',
        'def f(x):\n    return f"INSERT INTO jobs VALUES ({x})"',
        'def f(x):\n    return f"update {x} set a = 1"',
        'def f(x):\n    return f"DELETE FROM {x}"',
        'def f(x):\n    return f"PRAGMA user_version = {x}"',
        'def f(x):\n    return "SELECT a FROM %s" % x',
        'def f(x):\n    return "SELECT a FROM {}".format(x)',
        'def f(x):\n    return "SELECT a FROM jobs WHERE " + x',
        'def f(x):\n    try:\n        pass\n    except ValueError:\n        return f"WITH due AS (SELECT {x})"',
    ],
)
def test_composed_sql_is_found(text: str) -> None:
    """Every way of pasting SQL together is found, and named by the function it stands in."""
    assert list(rules.composed_sql(tree(text))) == ["f"]


@pytest.mark.parametrize(
    "text",
    ['q = "SELECT a FROM jobs WHERE id = ?"', 'x = f"{n} jobs wait"', 'x = "a" + b', 'x = f"select the {thing}"', "x = n % 2"],
)
def test_fixed_sql_and_plain_text_are_fine(text: str) -> None:
    """A constant statement with bound values, and prose, are not findings."""
    assert rules.composed_sql(tree(text)) == {}


def test_composed_sql_is_named_by_its_place() -> None:
    """At module level, in a method and in a nested function the place has its own name."""
    text = """
        HEAD = f"SELECT {COLUMNS} FROM jobs"
        class Writer:
            def write(self):
                def inner():
                    return f"DELETE FROM {TABLE}"
    """
    assert rules.composed_sql(tree(text)) == {"<module>": [2], "Writer.write.inner": [6]}


def test_a_missing_module_docstring_is_found() -> None:
    """Code without an opening sentence is a finding, an empty file too."""
    assert rules.missing_module_docstring(tree("x = 1"))
    assert rules.missing_module_docstring(tree(""))
    assert rules.missing_module_docstring(tree('"""What it is."""\nx = 1')) == []


def test_a_test_without_a_sentence_is_found() -> None:
    """Plain, async and class-bound tests need one; helpers do not."""
    assert rules.undocumented_tests(tree("def test_a(): ..."))
    assert rules.undocumented_tests(tree("async def test_a(): ..."))
    assert rules.undocumented_tests(tree("class TestA:\n    def test_a(self): ..."))
    assert rules.undocumented_tests(tree('def test_a():\n    """Says it."""\ndef helper(): ...')) == []


def test_a_sleep_is_found() -> None:
    """time.sleep is found under each of its names, an awaited asyncio.sleep is not."""
    assert rules.sleeps(tree("import time\ndef test_a():\n    time.sleep(1)")) == {"test_a": [3]}
    assert rules.sleeps(tree("from time import sleep\ndef test_a():\n    sleep(1)")) == {"test_a": [3]}
    assert rules.sleeps(tree("import asyncio\nasync def test_a():\n    await asyncio.sleep(0)")) == {}


def test_a_dead_module_is_found() -> None:
    """A module nobody names is dead; one imported, imported late, named in a string, or an entry point is not."""
    trees = {
        "mulligan": tree("from mulligan.core import job"),
        "mulligan.core": tree(""),
        "mulligan.core.job": tree("def f():\n    import mulligan.late"),
        "mulligan.late": tree('COMMANDS = {"demo": "mulligan.named:command"}'),
        "mulligan.named": tree("import mulligan.named"),
        "mulligan.dead": tree("import mulligan.dead"),
    }
    assert rules.dead_modules(trees, {"mulligan"}) == ["mulligan.dead is imported nowhere"]


@pytest.mark.parametrize("place", ["root", "home", "work", "opt", "Users"])
def test_a_path_of_a_machine_is_found(place: str) -> None:
    """A folder of somebody's machine is found at the start of a path, not inside one."""
    assert rules.traces(f"see /{place}/somebody/file")
    assert rules.traces(f"docs/{place}/file") == []


@pytest.mark.parametrize(
    "text", ["https://py" + "pi.org/simple", "files.python" + "hosted.org", "--index" + "-url x", "index" + "-url = x"]
)
def test_an_address_of_a_registry_is_found(text: str) -> None:
    """A host or an option that tells where packages came from is found."""
    assert rules.traces(text)
