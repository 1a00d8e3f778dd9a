"""Results as a table to read, as JSON to compare, and as part of a page."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from benchmarks.frame import Row, Value

RESULTS = Path(__file__).parent / "results"
PAGES = tuple((Path(__file__).parents[1] / "docs").glob("*.md"))
_PACKAGES = (
    "apache-airflow",
    "apache-airflow-providers-cncf-kubernetes",
    "kubernetes",
    "aiohttp",
)


@dataclass(frozen=True)
class Result:
    """What one benchmark gave.

    :param key: the letter by which it is asked for.
    :param command: what was run for it.
    :param seconds: how long it took.
    """

    key: str
    title: str
    about: str
    command: str
    seconds: float
    rows: Sequence[Row]


def describe_machine() -> dict[str, str]:
    """Say on what the figures were measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "CPUs": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    } | {name: version(name) for name in _PACKAGES}


def build_tables(rows: Sequence[Row]) -> list[str]:
    """Return Markdown tables, set so that they read well in a terminal too.

    Rows with the same columns that follow each other share one.
    """
    lines: list[str] = []
    for columns, group in groupby(rows, key=lambda row: tuple(row.values)):
        lines += ["", *_build_table(columns, list(group))]
    return lines[1:]


def _build_table(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    has_bar = any(row.bar for row in rows)
    has_note = any(row.note for row in rows)
    header = ["", *columns, *(["bar", "met"] if has_bar else []), *(["note"] if has_note else [])]
    lines = [header]
    for row in rows:
        cells = [row.what, *(_format(row.values[name]) for name in columns)]
        if has_bar:
            cells += [row.bar, {None: "", True: "yes", False: "**no**"}[row.met]]
        if has_note:
            cells.append(row.note)
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    rule = ["-" * max(width, 3) for width in widths]
    return [_join(line, widths) for line in (lines[0], rule, *lines[1:])]


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def _format(value: Value) -> str:
    if isinstance(value, str):
        return value
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def write_json(results: Sequence[Result], machine: Mapping[str, str]) -> list[Path]:
    """Write a file for each benchmark, over what the last run wrote."""
    RESULTS.mkdir(exist_ok=True)
    paths = []
    for result in results:
        path = RESULTS / f"{result.key}.json"
        path.write_text(json.dumps({"machine": dict(machine)} | asdict(result), indent=2) + "\n")
        paths.append(path)
    return paths


def write_pages(results: Sequence[Result], machine: Mapping[str, str]) -> list[Path]:
    """Put the tables into the pages that have a place for them, between two comments.

    The place of a benchmark is `<!-- bench a -->` to `<!-- end of bench a -->`; that of the
    machine has the word `machine` for the letter.
    """
    texts = {result.key: _build_part(result) for result in results}
    texts["machine"] = "Measured on " + ", ".join(f"{k} {v}" for k, v in machine.items()) + "."
    written = []
    for page in PAGES:
        before = after = page.read_text()
        for key, text in texts.items():
            after = _replace(after, key, text)
        if after != before:
            page.write_text(after)
            written.append(page)
    return written


def _build_part(result: Result) -> str:
    lines = [f"`{result.command}`, {result.seconds:.0f} s. {result.about}".rstrip(), ""]
    return "\n".join([*lines, *build_tables(result.rows)])


def _replace(page: str, key: str, text: str) -> str:
    begin, end = f"<!-- bench {key} -->", f"<!-- end of bench {key} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page)
