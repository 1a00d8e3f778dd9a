"""Airflow's pages, and ours, as people find their way on them: by roles and names."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from playwright.sync_api import FrameLocator, Locator, Page, expect


@dataclass
class Site:
    """An Airflow, seen in a browser.

    :param url: where it begins.
    """

    page: Page
    url: str

    def log_in(self, user: str) -> None:
        """Log in by the form, with the name as the password."""
        self.page.goto(self.url)
        self.page.get_by_role("textbox", name="Username").fill(user)
        self.page.get_by_role("textbox", name="Password").fill(user)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("heading", name="Welcome")).to_be_visible()

    def open_form(self, dag_id: str) -> TriggerForm:
        """Open the form that starts a run of a DAG."""
        self.page.goto(f"{self.url}/dags/{dag_id}")
        self.page.get_by_role("button", name="Trigger Dag").click()
        return TriggerForm(self.page.get_by_role("dialog"))

    def open_trainings(self) -> Trainings:
        """Open the list of trainings by the menu."""
        self.page.goto(self.url)
        self.page.get_by_role("button", name="Browse").click()
        self.page.get_by_role("menuitem", name="Trainings").click()
        return Trainings(self.page.frame_locator("iframe[title=Trainings]"))

    def open_xcom(self, dag_id: str, run_id: str, task_id: str) -> Locator:
        """Open what a task has left for others, unfolded."""
        self.page.goto(f"{self.url}/dags/{dag_id}/runs/{quote(run_id)}/tasks/{task_id}/xcom")
        self.page.get_by_role("button", name="Expand").first.click()
        return self.page.get_by_role("table")


@dataclass
class TriggerForm:
    """The form that starts a run."""

    dialog: Locator

    def open_section(self, name: str) -> Locator:
        """Unfold a section; Airflow folds the others."""
        self.dialog.get_by_role("button", name=name, exact=True).click()
        section = self.dialog.get_by_role("region", name=name)
        expect(section).to_be_visible()
        return section

    def field(self, section: Locator, name: str) -> Locator:
        """A field's row: its title, what is entered, and its help."""
        return section.get_by_role("group").filter(has_text=name).first

    def submit(self) -> None:
        """Start the run."""
        self.dialog.get_by_role("contentinfo").get_by_role("button", name="Trigger").click()


@dataclass
class Trainings:
    """Our list of trainings, in Airflow's frame."""

    frame: FrameLocator

    def row(self, name: str) -> Locator:
        """The row of a training, by its name or by anything else that stands in it."""
        return self.frame.get_by_role("table", name="Trainings").get_by_role("row", name=name)

    @property
    def position(self) -> Locator:
        """Which of how many trainings are shown."""
        return self.frame.get_by_role("navigation", name="Pages").get_by_role("status")

    def open(self, name: str) -> Training:
        """Open the page of a training."""
        self.frame.get_by_role("link", name=name, exact=True).click()
        return Training(self.frame)


@dataclass
class Training:
    """Our page of one training, in Airflow's frame."""

    frame: FrameLocator

    @property
    def phase(self) -> Locator:
        """Where the training stands."""
        return self.frame.get_by_role("status", name="Phase")

    def learner(self, ordinal: int) -> Locator:
        """The row of a learner."""
        rows = self.frame.get_by_role("table", name="Learners").get_by_role("row")
        return rows.nth(1 + ordinal)

    def show_log(self, ordinal: int) -> Locator:
        """Choose whose log is shown."""
        self.frame.get_by_role("button", name=f"Learner {ordinal}").click()
        return self.frame.get_by_label("Last lines")

    @property
    def stop_button(self) -> Locator:
        """What ends the training; not for everybody."""
        return self.frame.get_by_role("button", name="Stop", exact=True)

    def stop(self) -> None:
        """Stop the training, and say that this is meant."""
        self.stop_button.click()
        self.frame.get_by_role("button", name="Stop it").click()
