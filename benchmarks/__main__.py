"""`python -m benchmarks`: measure, print tables, and write JSON to `benchmarks/results/`."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
import traceback

from benchmarks import report
from benchmarks.frame import Benchmark, Effort

# By the letter that asks for it, the module whose BENCHMARK it is.
MODULES = {
    "a": "benchmarks.imports",
    "b": "benchmarks.tasks",
    "c": "benchmarks.create",
    "d": "benchmarks.waiting",
    "e": "benchmarks.logs",
    "f": "benchmarks.builders",
}


def main() -> int:
    """Measure what is asked for; 1 when something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", metavar="a,b", default=",".join(MODULES), help="which; by default all"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that all works")
    parser.add_argument("--pages", action="store_true", help="write the tables into docs/ as well")
    arguments = parser.parse_args()
    keys = arguments.only.split(",")
    if unknown := sorted(set(keys) - set(MODULES)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(MODULES)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    effort = Effort(quick=arguments.quick)
    results = [result for key in keys if (result := run(key, effort)) is not None]
    machine = report.describe_machine()
    written = report.write_json(results, machine)
    if arguments.pages:
        written += report.write_pages(results, machine)
    print(f"\nwritten: {', '.join(str(path) for path in written)}")
    bars = [row for result in results for row in result.rows if row.met is not None]
    print(f"bars met: {sum(row.met is True for row in bars)} of {len(bars)}")
    return 0 if len(results) == len(keys) else 1


def run(key: str, effort: Effort) -> report.Result | None:
    """Run one benchmark and print its table; None when it failed, and why is printed."""
    benchmark: Benchmark = importlib.import_module(MODULES[key]).BENCHMARK
    print(f"\n== {key}. {benchmark.title}", flush=True)
    started = time.monotonic()
    try:
        rows = benchmark.measure(effort)
    except Exception:  # noqa: BLE001 - the other benchmarks are still worth running
        traceback.print_exc()
        return None
    command = f"python -m benchmarks --only {key}{' --quick' if effort.quick else ''}"
    seconds = time.monotonic() - started
    print(*report.build_tables(rows), sep="\n", flush=True)
    return report.Result(key, benchmark.title, benchmark.about, command, seconds, rows)


if __name__ == "__main__":
    sys.exit(main())
