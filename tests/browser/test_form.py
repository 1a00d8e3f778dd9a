"""People start a training from Airflow's form, and see in Airflow what came of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.pages import Site
from tests.cluster.fixtures import AirflowUnderTest

DAG = Path(__file__).parents[2] / "dags" / "train_from_form.py"


def test_a_training_is_started_from_the_form_and_goes_green(
    airflow: AirflowUnderTest, visit: Callable[..., Site]
) -> None:
    dag_id = airflow.copy_dag_file(DAG)
    earlier = airflow.api.list_runs(dag_id)
    site = visit(None)
    site.log_in("user")
    form = site.open_form(dag_id)

    cluster = form.open_section("Cluster")
    learners = form.field(cluster, "Learners")
    expect(learners).to_contain_text("How many learners train together.")
    number = learners.get_by_role("spinbutton", name="Learners")
    expect(number).to_have_value("2")
    expect(number).to_have_attribute("aria-valuemin", "1")
    expect(number).to_have_attribute("aria-valuemax", "8")
    memory = form.field(cluster, "Memory")
    expect(memory).to_contain_text("Memory of each learner, such as 512Mi or 2Gi.")

    number.fill("9")
    number.blur()
    expect(number).to_have_value("8")  # the form keeps to the bounds
    number.fill("2")
    memory.get_by_role("textbox").fill("much")
    form.submit()
    refusal = form.dialog.get_by_text("Invalid input for param memory: 'much'")
    expect(refusal).to_be_visible()
    assert airflow.api.list_runs(dag_id) == earlier

    memory.get_by_role("textbox").fill("768Mi")
    epochs = form.field(form.open_section("Training"), "Epochs").get_by_role("spinbutton")
    epochs.fill("1")
    form.submit()
    expect(form.dialog).not_to_be_visible()

    run = airflow.wait_for_run(dag_id, beside=earlier)
    airflow.runs.append(run)
    site.page.goto(run.page)
    run.wait_for("success", timeout=400)
    expect(site.page.get_by_test_id("state-badge").first).to_have_text("Success")
    xcom = site.open_xcom(dag_id, run.run_id, "train")
    expect(xcom).to_contain_text("return_value")
    expect(xcom).to_contain_text(re.compile(r"accuracy\D+0\.[0-9]+"))
