"""Quantities as the API server understands them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity  # type: ignore[import-untyped]

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.learner import Container, Resources, create_container_spec
from airflow_learner_provider.learner.quantity import format_quantity

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "e3", "E-2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "0"),
        (0, "0"),
        (2, "2"),
        (0.5, "0.5"),
        (1e-7, "0.0000001"),
        (Decimal("1E+3"), "1000"),
        *((text, text) for text in ("500m", "8Gi", "5.", ".5", "00", "+1", "-1", "1E", "1E3")),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("0.00000000001", "1n"),
        ("1.0000000001", "1000000001n"),
        ("10Ei", "9223372036854775807"),
        ("-10Ei", "-9223372036854775807"),
        ("12345678901234567890123", "12345678901234567890123"),
    ],
)
def test_a_quantity_is_spelt_as_given_unless_the_server_changes_it(
    value: str | float | Decimal | None, text: str
) -> None:
    assert format_quantity(value, field="cpus") == text


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "1 ", "1\n", ".", "-", "1e", "1Zi", "1mi", "1ki", "1_000", "one", "1e9999"),
        *("\u0663", float("nan"), float("inf"), True),
    ],
)
@pytest.mark.parametrize("field", ["cpus", "memory", "gpus"])
def test_what_is_not_a_quantity_is_refused_by_field(value: str | float, field: str) -> None:
    container = Container(resources=Resources(**{field: value}))
    with pytest.raises(InvalidSpecError, match=f"^{field}: should be a Kubernetes quantity"):
        create_container_spec(container)


@given(st.integers(-(10**9), 10**9), st.integers(0, 9), st.sampled_from(SUFFIXES))
def test_the_value_stays_but_for_what_is_finer_than_a_billionth(
    digits: int, places: int, suffix: str
) -> None:
    text = f"{Decimal(digits).scaleb(-places):f}{suffix}"
    built = format_quantity(text, field="cpus")
    assert abs(parse_quantity(built) - parse_quantity(text)) < Decimal("1e-9")
    assert format_quantity(built, field="cpus") == built
