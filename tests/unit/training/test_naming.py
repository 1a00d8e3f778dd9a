"""Names that every part of Kubernetes takes (kubernetes/kubernetes#64023)."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from airflow_learner_provider.training.naming import (
    Owner,
    build_annotations,
    build_claim,
    build_labels,
    build_training_name,
    is_learner_of,
    label_value,
    ordinal_of,
)

DNS_LABEL = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile("([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?")
# The longest that is put behind the name of a training.
SUFFIXES = ("-results", "-1234567890")

IDS = st.text(min_size=1, max_size=250) | st.from_regex(r"[-._a-zA-Z0-9]{1,250}", fullmatch=True)
RUN_IDS = IDS | st.just("manual__2026-01-01T00:00:00.123456+00:00")
OWNERS = st.builds(
    Owner,
    dag_id=IDS,
    task_id=IDS,
    run_id=RUN_IDS,
    map_index=st.integers(-1, 10**6),
    try_number=st.integers(1, 100),
    task_instance_id=st.uuids().map(str),
    durable=st.booleans(),
)


def owner(**changes: object) -> Owner:
    values: dict[str, object] = {
        "dag_id": "digits",
        "task_id": "group.train",
        "run_id": "manual__2026-01-01T00:00:00+00:00",
        "map_index": -1,
        "try_number": 1,
        "task_instance_id": "uid-of-the-try",
        "durable": False,
    }
    return Owner(**(values | changes))  # type: ignore[arg-type]


@given(OWNERS)
@example(owner(dag_id="d" * 250, task_id="t" * 250))
def test_name_is_a_dns_label_with_all_that_is_put_behind_it(owner: Owner) -> None:
    name = build_training_name(owner)
    assert DNS_LABEL.fullmatch(name)
    assert len(name) + len("-results") <= 52
    # The label controller-revision-hash, and a pod's name with a high ordinal.
    assert len(name + "-1234567890") <= 63
    assert DNS_LABEL.fullmatch(f"{name}-results")


@given(OWNERS, OWNERS)
def test_two_tasks_never_share_a_name(one: Owner, other: Owner) -> None:
    same = (one.dag_id, one.task_id, one.run_id, one.map_index) == (
        *(other.dag_id, other.task_id, other.run_id),
        other.map_index,
    )
    assert (build_training_name(one) == build_training_name(other)) is same


def test_ids_that_differ_only_at_the_end_have_two_names() -> None:
    first, second = (build_training_name(owner(dag_id="d" * 249 + end)) for end in "ab")
    assert first[:-10] == second[:-10]
    assert first != second


def test_every_try_of_a_task_has_the_same_name() -> None:
    later = owner(try_number=2, task_instance_id="another", durable=True)
    assert build_training_name(later) == build_training_name(owner())


def test_name_tells_dag_and_task() -> None:
    assert build_training_name(owner()).startswith("digits-group-train-")
    assert build_training_name(owner(dag_id="2_Ziffern")).startswith("t-2-ziffern-group-train-")


@given(OWNERS)
def test_labels_are_valid_and_short_enough(owner: Owner) -> None:
    labels = build_labels(build_training_name(owner), owner)
    assert all(len(value) <= 63 and LABEL_VALUE.fullmatch(value) for value in labels.values())


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_texts_have_two_label_values(one: str, other: str) -> None:
    assert (label_value(one) == label_value(other)) is (one == other)


def test_label_value_that_is_valid_stays_as_it_is() -> None:
    assert label_value("scheduled__2026") == "scheduled__2026"
    assert label_value("") == ""


def test_annotations_tell_the_owner_word_for_word() -> None:
    prefix = "airflow-learner-provider/"
    assert build_annotations(owner(), spec_hash="abc", version="1.0") == {
        f"{prefix}dag-id": "digits",
        f"{prefix}task-id": "group.train",
        f"{prefix}run-id": "manual__2026-01-01T00:00:00+00:00",
        f"{prefix}map-index": "-1",
        f"{prefix}try-number": "1",
        f"{prefix}task-instance-id": "uid-of-the-try",
        f"{prefix}durable": "false",
        f"{prefix}spec-hash": "abc",
        f"{prefix}provider-version": "1.0",
    }


def test_claim_tells_which_try_holds_a_training() -> None:
    prefix = "airflow-learner-provider/"
    assert build_claim(owner(try_number=3, durable=True)) == {
        f"{prefix}try-number": "3",
        f"{prefix}task-instance-id": "uid-of-the-try",
        f"{prefix}durable": "true",
    }


def test_ordinals_are_numbers() -> None:
    assert [ordinal_of(f"digits-{n}") for n in (2, 10)] == [2, 10]


def test_pods_of_similar_names_are_no_learners() -> None:
    pods = ["digits-0", "digits-12", "digits", "digits-", "digits-a-0", "my-digits-0", "digits-0-0"]
    assert [pod for pod in pods if is_learner_of("digits", pod)] == ["digits-0", "digits-12"]
