"""The page "Trainings" in Airflow: what it shows, to whom, and that stopping goes by Airflow."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import expect

from airflow_learner_provider.training.naming import (
    LEARNERS,
    OUTCOME,
    Owner,
    build_annotations,
    build_labels,
    build_training_name,
)
from dev.airflow.access import Admin, build_connection
from tests.browser.pages import Site, Training
from tests.cluster.fixtures import CONNECTION, AirflowUnderTest
from tests.cluster.proxy import Proxy, Request

if TYPE_CHECKING:
    from kubernetes.client import AppsV1Api

DAG = r"""
with DAG(DAG_ID):
    LearnerStatefulSetOperator(
        task_id="train",
        learners=2,
        image=TINY_IMAGE,
        cpus="20m",
        memory="32Mi",
        min_ready_seconds=0,
        deferrable=True,
        namespace=NAMESPACE,
        links={
            "Dashboard": "https://dashboards.example.com/d/1?run={{ run_id | urlencode }}",
            "No address": "javascript:alert(1)",
        },
        command='''
            if [ $LEARNER_ID = 1 ]; then echo "<b id=markup>first</b>"; fi
            for step in $(seq 1 600); do
                printf '{"step": %d, "total": 600, "loss": 0.%d}\n' $step $((999 - step))
                echo "learner $LEARNER_ID is at $step"
                sleep 1
            done
        ''',
    )
"""
MARKUP = "<b id=markup>first</b>"  # never becomes HTML
IDLE = """
from airflow.providers.standard.operators.empty import EmptyOperator

with DAG(DAG_ID):
    EmptyOperator(task_id="train")
"""


@pytest.fixture
def put_training(apps_api: AppsV1Api, namespace: str) -> Callable[..., str]:
    """Put a training of a DAG there that has no learners, with what is noted on it."""

    def put(dag_id: str, run_id: str, **noted: Any) -> str:
        owner = Owner(dag_id, "train", run_id, -1, 1, f"{dag_id}-{run_id}", durable=False)
        name = build_training_name(owner)
        labels = build_labels(name, owner)
        annotations = build_annotations(owner, spec_hash="", version="0") | {LEARNERS: "2"}
        if noted:
            rows: dict[str, Any] = {"name": name, "namespace": namespace, "learners": []}
            rest: dict[str, Any] = {"timings": {}, "restarts": [], "result": None}
            annotations[OUTCOME] = json.dumps({**rows, **rest, "message": "", **noted})
        container = {"name": "learner", "image": "none"}
        body: Any = {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {
                "replicas": 0,
                "serviceName": name,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        apps_api.create_namespaced_stateful_set(namespace, body)
        return name

    return put


def test_a_training_is_followed_on_its_page_and_stopped_by_airflow(
    *,
    airflow: AirflowUnderTest,
    visit: Callable[..., Site],
    put_training: Callable[..., str],
    take_picture: Callable[[Site, str], None],
    wait_until_empty: Callable[[], None],
    apps_api: AppsV1Api,
    namespace: str,
) -> None:
    dag_id = airflow.dag_file(DAG)
    run = airflow.trigger(dag_id)
    earlier = put_training(dag_id, "earlier", phase="Succeeded", reason="")
    failed = put_training(dag_id, "before", phase="Failed", reason="OOMKilled")
    site = visit("user")
    trainings = site.open_trainings()
    row = trainings.row(run.run_id)
    expect(row).to_contain_text("Running", timeout=120_000)
    expect(row).to_contain_text("2 / 2")
    expect(trainings.row(failed)).to_contain_text("OOMKilled")
    take_picture(site, "trainings")
    trainings.frame.get_by_role("button", name="Failed 1").click()
    expect(trainings.row(earlier)).not_to_be_visible()
    trainings.frame.get_by_role("button", name="All 3").click()
    for name in (earlier, failed):
        apps_api.delete_namespaced_stateful_set(name, namespace)

    page = trainings.open(row.get_by_role("link").first.inner_text())
    expect(page.phase).to_have_text("Running")
    expect(page.learner(0)).to_contain_text("Ready")
    expect(page.learner(1)).to_contain_text("Ready")
    expect(page.show_log(0)).to_contain_text(MARKUP)
    expect(page.frame.locator("#markup")).to_have_count(0)
    expect(page.show_log(1)).to_contain_text(re.compile(r"learner 2 is at \d"))
    loss = page.frame.get_by_role("img", name="loss by step")
    expect(loss.locator("path")).to_have_attribute("d", re.compile(r"M.*(L.*){9}"))
    events = page.frame.get_by_role("table", name="Events")
    expect(events.get_by_role("row", name="learner 1 Started").first).to_be_visible()
    take_picture(site, "training")

    page.frame.get_by_role("link", name="Task in Airflow").click()
    site.page.wait_for_url(f"**/dags/{dag_id}/runs/*/tasks/train")
    site.page.get_by_role("link", name="Details", exact=True).click()
    dashboard = site.page.get_by_role("link", name="Dashboard")
    expect(dashboard).to_have_attribute("href", re.compile(r"^https://dashboards\.example\.com/"))
    expect(site.page.get_by_role("link", name="No address")).to_have_count(0)
    address = site.page.get_by_role("link", name="Training", exact=True).get_attribute("href")
    assert address is not None
    site.page.goto(address)
    page = Training(page.frame)
    expect(page.phase).to_have_text("Running")

    page.stop()
    # First what the browser shows: its requests are passed on only while the test waits for it.
    expect(page.phase).to_have_text("not in the cluster")
    run.task("train").wait_for("failed", timeout=120)
    wait_until_empty()
    expect(page.stop_button).not_to_be_visible()


def wait_until(look: Callable[[], bool], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.5)


def test_only_who_may_read_the_dag_sees_its_training(
    airflow: AirflowUnderTest, visit: Callable[..., Site], put_training: Callable[..., str]
) -> None:
    dag_id = airflow.dag_file(IDLE)
    name = put_training(dag_id, "run", phase="Failed", reason=MARKUP, message=MARKUP)
    unknown = put_training("nobodys", "run")
    query = {"dag_id": dag_id, "run_id": "run", "task_id": "train"}
    with ExitStack() as stack:
        users = {
            user: stack.enter_context(airflow.server.log_in(user))
            for user in ("admin", "user", "viewer", "nobody")
        }

        def ask(user: str, path: str, **query: str) -> httpx.Response:
            return users[user].send_to("GET", f"/learners/api/{path}", params=query)

        def is_shown() -> bool:
            answer = ask("viewer", "trainings")
            names = [row["name"] for row in answer.json().get("trainings", [])]
            return names == [name]

        wait_until(is_shown)  # the page has to notice that the connection has changed
        for path in ("training", "log"):
            assert ask("nobody", path, **query).status_code == 403
        assert ask("nobody", "trainings").status_code == 403
        assert ask("viewer", "training", **query).json()["may_stop"] is False
        assert ask("user", "training", **query).json()["may_stop"] is True
        others = {**query, "dag_id": "nobodys"}
        assert unknown not in ask("admin", "trainings").text
        assert ask("nobody", "training", **others).status_code == 403

    for path in ("", "training", "api/trainings", "api/training", "api/log"):
        assert httpx.get(f"{airflow.url}/learners/{path}", params=query).status_code == 401
    stranger = visit(None)
    stranger.page.goto(f"{airflow.url}/learners/training?{urlencode(query)}")
    expect(stranger.page.get_by_role("heading", name="Sign into Airflow")).to_be_visible()

    nobody = visit("nobody")
    nobody.page.goto(f"{airflow.url}/learners/")
    expect(nobody.page.get_by_role("alert")).to_have_text("You have no right to this.")
    expect(nobody.page.get_by_role("row", name=name)).to_have_count(0)

    viewer = visit("viewer")
    trainings = viewer.open_trainings()
    expect(trainings.row(name)).to_contain_text(MARKUP)
    page = trainings.open(name)
    expect(page.phase).to_have_text("Failed")
    expect(page.frame.get_by_text(MARKUP)).to_have_count(2)  # reason and message
    expect(page.frame.locator("#markup")).to_have_count(0)
    expect(page.stop_button).not_to_be_visible()


def test_a_thousand_trainings_are_paged_and_cost_the_cluster_a_few_lists(
    *,
    airflow: AirflowUnderTest,
    admin: Admin,
    namespace: str,
    visit: Callable[..., Site],
    put_training: Callable[..., str],
) -> None:
    dag_id = airflow.dag_file(IDLE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: put_training(dag_id, f"run-{number}-"), range(1000)))
    with Proxy(admin.create_role_kubeconfig(namespace)) as proxy:
        asked: list[str] = []

        def count(request: Request) -> None:
            asked.append(request.path)

        proxy.before = count
        begun = time.monotonic()
        airflow.api.set_connection(build_connection(CONNECTION, proxy.kubeconfig))
        sites = [visit("viewer"), visit("user")]
        for site in sites:
            trainings = site.open_trainings()
            expect(trainings.position).to_have_text("1 to 50 of 1000")
            trainings.frame.get_by_role("button", name="Next").click()
            expect(trainings.position).to_have_text("51 to 100 of 1000")
            trainings.frame.get_by_role("searchbox").fill("run-777-")
            expect(trainings.position).to_have_text("1 to 1 of 1")
            expect(trainings.row("run-777-")).to_be_visible()
        kinds = {path.rpartition("/")[2] for path in asked}
        assert kinds == {"statefulsets", "pods", "events"}
        rounds = 1 + (time.monotonic() - begun) / 2  # however many look, one round in two seconds
        assert len(asked) <= 3 * rounds
