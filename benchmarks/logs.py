"""How the learners' output gets into the task's log: how fast, how late, and at what cost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.request import TrainingRequest
from airflow_learner_provider.training.spec import parse_training_spec
from benchmarks.frame import Benchmark, Effort, Row, find_cluster, median, percentile, say
from benchmarks.namespace import prepared_namespace
from benchmarks.triggerer import Figures, run_triggerer

_TRIGGER = "airflow_learner_provider.triggers.LearnerTrigger"
_CONNECTION = "kubernetes_default"
_SECONDS = 300
_LEARNERS = 8
# Bash's own clock is in each line, to compare with the time at which it is logged.
_STEADY = """
for i in $(seq {rounds}); do
  for j in $(seq {lines}); do echo "$EPOCHREALTIME step $i.$j loss 0.123456"; done
  sleep 0.1
done
"""
_FLOOD = """
line=$(printf %085d 0)
yes "$EPOCHREALTIME $line" | head -c {size}
sleep 2
"""
_LINE = re.compile(r"\[\d+\] (\d+\.\d+) .*")
_LEFT_OUT = re.compile(r"\[\d+\] \.\.\. (\d+) lines left out.*")


@dataclass(frozen=True)
class _Run:
    """What a training's log looked like.

    :param delays: seconds from each line's writing to its logging.
    :param span: seconds from the first line that was logged to the last.
    """

    delays: Sequence[float]
    span: float
    left_out: int
    before: Figures
    after: Figures


async def _run(namespace: str, kubeconfig: str, command: str, learners: int) -> _Run:
    spec = {
        "learners": learners,
        "image": os.environ.get("LEARNER_TINY_IMAGE", "localhost/alp/tiny:1"),
        "command": command,
        "namespace": namespace,
        "cpus": "20m",
        "memory": "64Mi",
    }
    run = uuid.uuid4().hex
    owner = Owner("bench", "logs", run, -1, 1, run, durable=False)
    request = TrainingRequest(parse_training_spec(spec), owner, None, "0").to_json()
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        extra = {"kube_config": kubeconfig}
        async with run_triggerer({_CONNECTION: extra}, log=log) as triggerer:
            # The first training imports all that is imported once.
            warm_up = TrainingRequest(
                parse_training_spec(spec | {"command": "true", "name": "warm-up"}), owner, None, "0"
            )
            arguments = {"kubernetes_conn_id": _CONNECTION}
            triggerer.start(0, _TRIGGER, arguments | {"training": warm_up.to_json()})
            await triggerer.wait_for([0], seconds=_SECONDS)
            before = await triggerer.figures()
            triggerer.start(1, _TRIGGER, arguments | {"training": request})
            await triggerer.wait_for([1], seconds=_SECONDS)
            after = await triggerer.figures()
        return _read(log, before, after)


def _read(log: Path, before: Figures, after: Figures) -> _Run:
    delays: list[float] = []
    logged: list[float] = []
    left_out = 0
    for text in log.read_text().splitlines():
        record: dict[str, Any] = json.loads(text)
        if line := _LINE.fullmatch(record["event"]):
            at = datetime.fromisoformat(record["timestamp"]).timestamp()
            logged.append(at)
            delays.append(at - float(line[1]))
        elif said := _LEFT_OUT.fullmatch(record["event"]):
            left_out += int(said[1])
    return _Run(delays, logged[-1] - logged[0], left_out, before, after)


def _build_row(what: str, run: _Run, written: int, *, bar: str, met: bool) -> Row:
    lines = len(run.delays)
    values = {
        "lines written": written,
        "lines logged": lines,
        "left out, as the log says": run.left_out,
        "lines a second": lines / run.span,
        "delay p50 ms": median(run.delays) * 1000,
        "p99 ms": percentile(run.delays, 99) * 1000,
        "CPU us a line": (run.after.cpu - run.before.cpu) / max(lines, 1) * 1e6,
        "memory at most + MB": (run.after.peak - run.before.peak) / 1024,
    }
    return Row(what, values, bar=bar, met=met)


async def _measure(effort: Effort) -> list[Row]:
    rows = []
    with prepared_namespace(find_cluster()) as (namespace, role):
        kubeconfig = role.read_text()
        for each in (10, 20):
            rounds = effort.choose(100, 30)
            written = _LEARNERS * rounds * each
            what = f"{_LEARNERS} learners, {each} lines each every 0.1 s"
            say(what)
            command = _STEADY.format(rounds=rounds, lines=each)
            run = await _run(namespace, kubeconfig, command, _LEARNERS)
            met = len(run.delays) == written
            rows.append(_build_row(what, run, written, bar="every line", met=met))
        size = effort.choose(100, 20) * 1_000_000
        what = f"1 learner, {size // 1_000_000} MB at once"
        say(what)
        run = await _run(namespace, kubeconfig, _FLOOD.format(size=size), 1)
        grown = (run.after.peak - run.before.peak) / 1024
        bar = "at most + 20 MB, and what is left out is said"
        met = grown <= 20 and run.left_out > 0
        rows.append(_build_row(what, run, size // 103, bar=bar, met=met))
    return rows


def measure(effort: Effort) -> list[Row]:
    """Let learners write, and read what a triggerer logs."""
    return asyncio.run(_measure(effort))


BENCHMARK = Benchmark(
    title="Logs",
    measure=measure,
    about=(
        "Real learners, and Airflow's own runner of triggers, which logs to a file. Of 100 MB that "
        "are written at once the kubelet may have thrown away some before anybody reads them."
    ),
)
