"""Kubernetes quantities, such as ``500m`` of a CPU or ``8Gi`` of memory.

The rules are the API server's, see
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

from airflow_learner_provider.exceptions import InvalidSpecError

Quantity = str | int | float | Decimal

_PATTERN = re.compile(
    r"(?P<number>[+-]?([0-9]+\.?[0-9]*|\.[0-9]+))"
    r"([eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]?|[KMGTPE]i))"
)
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0} | {
    suffix: 3 * step for step, suffix in enumerate("kMGTPE", start=1)
}
_BINARY_EXPONENTS = {f"{suffix}i": 10 * step for step, suffix in enumerate("KMGTPE", start=1)}
_MAX_BINARY = 2**63 - 1


def format_quantity(value: Quantity | None, *, field: str) -> str:
    """Return a quantity as the API server will understand it.

    :param value: a number, or a number with a suffix; None counts as 0.
    :param field: the field it was given for, to be named in the error.
    :return: the value as it was spelt, unless the API server would change it: what is finer than
        10^-9 is rounded away from zero, and what has a binary suffix ends at 2^63-1.
    :raises InvalidSpecError: it is not a quantity.
    """
    text = str(value if value is not None else 0)
    if isinstance(value, float | Decimal):
        text = f"{Decimal(text):f}"  # not 1e-07
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise InvalidSpecError(
            f'{field}: should be a Kubernetes quantity such as "2", "500m" or "8Gi"'
        )
    suffix = match["suffix"]
    number = Fraction(match["number"])
    if suffix in _BINARY_EXPONENTS:
        number *= 2 ** _BINARY_EXPONENTS[suffix]
        if abs(number) > _MAX_BINARY:
            return str(_MAX_BINARY if number > 0 else -_MAX_BINARY)
    else:
        number *= Fraction(10) ** int(match["exponent"] or _DECIMAL_EXPONENTS[suffix])
    nanos = number * 10**9
    if nanos.denominator == 1:
        return text
    return f"{math.ceil(nanos) if nanos > 0 else math.floor(nanos)}n"
