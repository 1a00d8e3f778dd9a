"""The page costs nothing where nobody looks at it, shows nothing without login, changes nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from airflow.configuration import conf
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from fastapi.routing import APIRoute

import airflow_learner_provider.ui as package
from airflow_learner_provider.get_provider_info import get_provider_info
from airflow_learner_provider.links import TrainingLink, UserLink
from airflow_learner_provider.operators import LearnerStatefulSetOperator
from airflow_learner_provider.ui.app import build_app
from airflow_learner_provider.ui.plugin import PREFIX, ROUTE, LearnerPlugin

STATIC = Path(package.__file__).parent / "static"
KEY: Any = SimpleNamespace(dag_id="digits", run_id="manual__1+0", task_id="train", map_index=3)
PROGRAM = """
import json, sys
import airflow.sdk.execution_time.task_runner
before = set(sys.modules)
from airflow_learner_provider.ui.plugin import LearnerPlugin
LearnerPlugin()
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_a_task_runner_that_loads_the_plugin_loads_nothing_else() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, check=True, env=dict(os.environ), text=True,
    )  # fmt: skip
    loaded = set(json.loads(run.stdout.splitlines()[-1])) - {"airflow_learner_provider"}
    assert loaded == {"airflow_learner_provider.ui", "airflow_learner_provider.ui.plugin"}


async def test_nothing_is_answered_without_a_login() -> None:
    app = build_app()
    routes = [route.path for route in app.routes if isinstance(route, APIRoute)]
    others = ["/static/page.css", "/docs", "/openapi.json"]
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
        answers = {path: (await client.get(path)).status_code for path in [*routes, *others]}
    assert answers == {
        "/": 401,
        "/training": 401,
        "/api/trainings": 401,
        "/api/training": 401,
        "/api/log": 401,
        "/static/page.css": 200,
        "/docs": 404,
        "/openapi.json": 404,
    }


def test_the_page_only_reads() -> None:
    methods = {
        m for route in build_app().routes if isinstance(route, APIRoute) for m in route.methods
    }
    assert methods == {"GET"}


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_the_page_is_made_of_its_own_files(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # a name, nothing is loaded
    assert "//" not in re.sub(r"^\s*//.*|\s// .*", "", text, flags=re.MULTILINE)
    assert not re.search(r"innerHTML|<script>|<style|\bstyle=|\son[a-z]+=", text)


def test_the_plugin_names_the_page_by_where_it_is() -> None:
    plugin = LearnerPlugin()
    [view] = plugin.external_views
    [app] = plugin.fastapi_apps
    assert app["url_prefix"] == PREFIX
    assert view["href"] == f"{PREFIX[1:]}/"
    assert view["url_route"] == ROUTE
    assert plugin.fastapi_apps[0]["app"] is app["app"]


def test_every_option_of_the_page_has_its_default() -> None:
    options = get_provider_info()["config"]["learner"]["options"]
    for name, option in options.items():
        assert conf.get("learner", name, fallback=option["default"]) == option["default"]


@pytest.mark.parametrize(
    ("base", "frame"),
    [
        ("https://airflow.example.com", "https://airflow.example.com/plugin/trainings/learners"),
        (
            "https://example.com/airflow/",
            "https://example.com/airflow/plugin/trainings/airflow/learners",
        ),
        ("", "/plugin/trainings/learners"),
    ],
)
def test_the_link_leads_into_the_frame(
    base: str, frame: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
    query = "dag_id=digits&run_id=manual__1%2B0&task_id=train&map_index=3"
    operator: Any = None
    assert TrainingLink().get_link(operator, ti_key=KEY) == f"{frame}/training?{query}"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://grafana.example.com/d/1", "https://grafana.example.com/d/1"),
        ("javascript:alert(1)", ""),
        ("/relative", ""),
        (None, ""),
    ],
)
def test_only_addresses_of_the_web_become_links(address: Any, shown: str) -> None:
    operator: Any = SimpleNamespace(links={"Grafana": address})
    assert UserLink("Grafana").get_link(operator, ti_key=KEY) == shown


def test_a_task_has_its_links_also_when_it_is_mapped() -> None:
    given: Any = {"learners": 1, "image": "tiny", "links": {"Grafana": "https://example.com"}}
    with DAG("linked", schedule=None) as dag:
        LearnerStatefulSetOperator(task_id="one", command="true", **given)
        LearnerStatefulSetOperator.partial(task_id="many", **given).expand(command=["a", "b"])
    serialized = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    names = {task.task_id: list(task.extra_links) for task in serialized.tasks}
    assert names == {"one": ["Grafana", "Training"], "many": ["Grafana", "Training"]}
