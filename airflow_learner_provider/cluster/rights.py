"""Whether the connection's account may do all that a training needs, asked before anything is made.

Otherwise a missing right shows when it is needed first: `delete` when the training is over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from airflow_learner_provider.cluster.api import Api, Json, resource_of
from airflow_learner_provider.exceptions import ApiError

log = logging.getLogger(__name__)

_ALWAYS = {
    "StatefulSet": ("create", "get", "list", "watch", "patch", "delete"),
    "Pod": ("list", "watch"),
    "Event": ("list", "watch"),
}
# Of each kind of object that a StatefulSet owns. `get` tells whether one that exists is ours.
_OWNED = ("create", "get")


async def check_rights(api: Api, namespace: str, owned: Iterable[str]) -> None:
    """Check every right that a training needs; reading logs is not one of them.

    :param owned: kinds of the objects that its StatefulSet owns.
    :raises ApiError: rights are missing; it names each verb and resource, and the namespace.
    """
    # https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {"namespace": namespace},
    }
    try:
        status = (await api.create(review))["status"]
    except ApiError as e:
        if e.is_passing:
            raise
        log.info("Rights could not be checked: %s", e)
        return
    if status.get("incomplete"):
        return  # an authorizer that cannot list what it allows: each request shows
    missing = find_missing(status["resourceRules"], owned)
    if missing:
        raise ApiError(
            f"the account of the Kubernetes connection cannot {', '.join(missing)} "
            f"in namespace {namespace} (see deploy/rbac.yaml for the rights that are needed)",
            status=403,
            reason="Forbidden",
        )


def find_missing(rules: list[Json], owned: Iterable[str]) -> list[str]:
    """List the verbs and resources that a training needs and no rule allows.

    :param rules: as in a Role, or in the answer to a SelfSubjectRulesReview.
    :param owned: kinds of the objects that its StatefulSet owns.
    """
    needed = _ALWAYS | dict.fromkeys(sorted(owned), _OWNED)
    return [
        f"{verb} {resource_of(kind)[1]}"
        for kind, verbs in needed.items()
        for verb in verbs
        if not _is_allowed(rules, verb, *resource_of(kind))
    ]


def _is_allowed(rules: list[Json], verb: str, group: str, resource: str) -> bool:
    return any(
        {verb, "*"} & set(rule["verbs"])
        and {group, "*"} & set(rule["apiGroups"])
        and {resource, "*"} & set(rule["resources"])
        and not rule.get("resourceNames")
        for rule in rules
    )
