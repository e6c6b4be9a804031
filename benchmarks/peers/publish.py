"""`python -m benchmarks.peers.publish FOUND.json ...`: results become the section Results of the guide, and its plots.

Several files are several runs, each of other measures: nothing is compared across them.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.found import WORDS, Found, Unpublishable, joined, read
from benchmarks.peers.markdown import columns_list, figures_tables, judged, ratio_table, targets_table
from benchmarks.peers.plots import Plot, plots

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
PAGE = Path("docs/guide/benchmarks.md")
# Not beside the plots of the storms: a test holds that folder to what their page shows.
IMAGES = Path("docs/guide/img/peers")
# What a file may tell about its machine, in words.
FACTS = {"cpus": "{} cores", "memory_gib": "{} GiB of memory", "python": "Python {}", "system": "{}"}

SPREAD = "What was found is made of medians; at worst and at best each side had its slowest and its fastest round."


def section(runs: Sequence[Found], found: Found, pictures: Sequence[Plot], images: str) -> str:
    """Everything between the markers: how each run was made, and what all of them found."""
    parts = [part for run in runs for part in (_made(run), _noise(run))]
    parts += [_machine(found), *_problems(found)]
    if judgements := judged(found):
        reached = sum(one.verdict.is_fine for one in judgements)
        parts += [
            "### Targets",
            f"{reached} of the {len(judgements)} targets that this run can tell something about were reached. {SPREAD}",
        ]
        parts.append(targets_table(judgements))
    parts += [f"![{plot.title}]({images}/{plot.file})" for plot in pictures]
    for store in found.stores:
        contenders = found.on(store)
        parts += [f"### Figures on {WORDS.get(store, store)}", *figures_tables(contenders)]
        if compared := ratio_table(contenders):
            parts += ["More than 1 means that mulligan is ahead, also where less is better:", compared]
    parts += ["### The columns", columns_list(found.contenders)]
    return "\n\n".join(part for part in parts if part)


def replaced(page: str, inner: str, name: str) -> str:
    """The page with another text between its markers, which stay, as does everything outside."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise Unpublishable(f"{name} has to hold {BEGIN} once, and {END} once after it; nothing was written")
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{inner}\n{END}{rest.partition(END)[2]}"


def publish(files: Sequence[Path], page: Path, images: Path) -> list[Path]:
    """Writes the plots and the section; what was written. Nothing is written before everything is made."""
    runs = [read(file) for file in files]
    found = joined(runs)
    try:
        text = page.read_bytes().decode()  # not read_text, which would change the ends of lines
    except OSError as problem:
        raise Unpublishable(f"{page}: {problem.strerror}") from problem
    pictures = plots(found)
    beside = Path(os.path.relpath(images, page.parent)).as_posix()
    text = replaced(text, section(runs, found, pictures, beside), str(page))
    images.mkdir(parents=True, exist_ok=True)
    written = []
    for plot in pictures:
        (images / plot.file).write_bytes(plot.svg.encode())
        written.append(images / plot.file)
    page.write_bytes(text.encode())
    return [*written, page]


def _made(found: Found) -> str:
    """When and how."""
    rounds = f"{found.round_count} round{'s' if found.round_count > 1 else ''}"
    when = f"Made on {found.date}" if found.date else "Made"
    how = f"by `{_scrubbed(found.command)}`, {rounds}" if found.command else f"in {rounds}"
    return f"{when} {how}."


def _machine(found: Found) -> str:
    """On what."""
    machine = [FACTS.get(name, name.replace("_", " ") + " {}").format(value) for name, value in found.machine.items() if value]
    servers = [f"{WORDS.get(name, name)} {version}" for name, version in found.servers.items()]
    what = ", ".join([*machine, *servers])
    return f"The machine: {what}." if what else ""


def _noise(found: Found) -> str:
    if not found.noise:
        return ""
    noise = found.noise
    return (
        f"A fixed loop of CPU work took {noise['median_ms']} ms (fastest {noise['fastest_ms']}, slowest {noise['slowest_ms']}); "
        f"{noise['noisy_share']:.0%} of the steps began in a noisy moment."
    )


def _problems(found: Found) -> list[str]:
    if not found.problems:
        return []
    return ["Not measured:", "\n".join(f"- {_scrubbed(line)}" for line in found.problems)]


def _scrubbed(text: str) -> str:
    """Without the folders of the machine it was made on."""
    return re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+", "", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if the results were published."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.publish", description="Put results into the guide, with plots.")
    parser.add_argument(
        "found",
        type=Path,
        nargs="+",
        metavar="FOUND.json",
        help="what `python -m benchmarks.peers --out` has written; several for several measures",
    )
    parser.add_argument("--docs", type=Path, default=PAGE, help="the page with the markers (default %(default)s)")
    parser.add_argument("--images", type=Path, default=IMAGES, help="the folder of the plots (default %(default)s)")
    asked = parser.parse_args(arguments)
    try:
        written = publish(asked.found, asked.docs, asked.images)
    except Unpublishable as problem:
        sys.stderr.write(f"publish: {problem}\n")
        return 1
    sys.stdout.write("".join(f"{path}\n" for path in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
