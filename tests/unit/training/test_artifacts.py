"""Artifacts: what a learner tells of its files, and what is made of it."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.artifacts import (
    LIST_ARTIFACTS,
    Artifact,
    Listing,
    build_store_uri,
    explain_missing,
    list_artifact_events,
    merge_artifacts,
    split_message,
)
from airflow_learner_provider.training.spec import parse_training_spec

MODEL = Artifact("model", 5, hashlib.sha256(b"model").hexdigest())
DEEP = Artifact("a/b/deep file", 0, hashlib.sha256(b"").hexdigest())
NEW = Artifact("model", 3, hashlib.sha256(b"new").hexdigest())
TOO_LONG = (
    "the list of artifacts is longer than what Kubernetes keeps of a learner's end, "
    "together with its result"
)
STORES: dict[str, dict[str, Any]] = {
    "host_mount": {"host_path": "/srv/ml/"},
    "mount_volume": {"claim": "experiments"},
    "mount_cos": {"bucket": "runs", "secret": "s", "endpoint": "http://s3.test"},
    "s3_datastore": {"bucket": "runs", "secret": "s"},
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A learner's results: a file, one in a folder, a link, a name that cannot be told."""
    folder = tmp_path / "results"
    (folder / "a/b").mkdir(parents=True)
    (folder / "model").write_bytes(b"model")
    (folder / "link").symlink_to("model")
    (folder / "a/b/deep file").touch()
    return folder


def tell(results: Path, *patterns: str, result: str = "", bucket: str = "") -> str:
    """Run the wrapper's shell on a folder and return the termination message."""
    message = results.parent / "termination-log"
    message.write_text(result)
    subprocess.run(
        ["bash", "-c", f'{LIST_ARTIFACTS}\nlist_artifacts > "$state.artifacts"\ntell_artifacts'],
        env={
            "PATH": "/usr/bin:/bin",
            "state": str(results.parent / "learner"),
            "LEARNER_ARTIFACTS": "\n".join(patterns),
            "LEARNER_RESULT_FILE": str(message),
            "RESULT_BUCKET_URL": bucket,
            "RESULT_DIR": str(results),
        },
        check=True,
    )
    return message.read_text()


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["model"], Listing((MODEL,))),
        (["m*", "mod[e]l", "model"], Listing((MODEL,))),
        (["**/deep file"], Listing((DEEP,))),
        (["*"], Listing((Artifact("link", 5, MODEL.sha256), MODEL))),
        (["none", "model", "no*e", "a"], Listing((MODEL,), ("none", "no*e", "a"))),
        (["$(touch x)", "`touch x`; *"], Listing((), ("$(touch x)", "`touch x`; *"))),
    ],
)
def test_learner_tells_the_files_that_match(
    results: Path, patterns: list[str], expected: Listing
) -> None:
    assert split_message(tell(results, *patterns, result='{"loss": 1}\n')) == (
        '{"loss": 1}\n',
        expected,
    )
    assert sorted(path.name for path in results.iterdir()) == ["a", "link", "model"]


def test_link_is_not_told_where_it_does_not_get_to_the_bucket(results: Path) -> None:
    told = tell(results, "*", bucket="s3://runs")
    assert split_message(told) == ("", Listing((MODEL,)))


def test_list_that_is_too_long_is_not_told_at_all(results: Path) -> None:
    for number in range(60):
        (results / f"part-{number}").touch()
    message, listing = split_message(tell(results, "part-*", result="result"))
    assert (message, listing) == ("result", Listing(is_whole=False))


@pytest.mark.parametrize("cut", [1, 2, 10])
def test_list_that_kubelet_has_cut_is_known(results: Path, cut: int) -> None:
    assert split_message(tell(results, "*")[:-cut]) == ("", Listing(is_whole=False))


def test_message_without_a_list_is_the_result() -> None:
    assert split_message("7") == ("7", None)


@pytest.mark.parametrize(
    ("listings", "expected"),
    [
        ([], None),
        ([Listing((MODEL,))], None),
        ([Listing((MODEL,), ("b",)), Listing((DEEP,), ("a",))], None),
        (
            [Listing((), ("a", "b", "c")), Listing((MODEL,), ("c", "b"))],
            "the results have no file 'b', 'c', which artifacts= names",
        ),
        (
            [Listing((MODEL,)), Listing(is_whole=False)],
            TOO_LONG,
        ),
    ],
)
def test_pattern_is_missing_when_no_learner_has_a_file(
    listings: list[Listing], expected: str | None
) -> None:
    assert explain_missing(listings) == expected


def test_last_learner_to_end_knows_a_file_best() -> None:
    listings = [Listing((MODEL, DEEP)), Listing((NEW,))]
    rows = merge_artifacts(listings, results_uri="s3://runs/digits")
    assert rows == [
        {"name": DEEP.name, "size": 0, "sha256": DEEP.sha256}
        | {"uri": "s3://runs/digits/a/b/deep%20file"},
        {"name": "model", "size": 3, "sha256": NEW.sha256, "uri": "s3://runs/digits/model"},
    ]
    assert list_artifact_events({"artifacts": rows})[1] == (
        "s3://runs/digits/model",
        {"name": "model", "size": 3, "sha256": NEW.sha256},
    )
    assert list_artifact_events({"artifacts": []}) == []


@pytest.mark.parametrize(
    ("kind", "sub_path", "expected"),
    [
        ("host_mount", "x/", "file:///srv/ml/x/digits"),
        ("mount_volume", "", "pvc://ml/experiments/digits"),
        ("mount_cos", "lr=0.1 #2", "s3://runs/lr=0.1%20%232/digits"),
        ("s3_datastore", "", "s3://runs/digits"),
    ],
)
def test_results_have_a_uri_in_every_store(kind: str, sub_path: str, expected: str) -> None:
    store = {"type": kind, "sub_path": sub_path} | STORES[kind]
    spec = parse_training_spec({"learners": 1, "command": "true", "image": "i", "results": store})
    assert spec.results is not None
    assert build_store_uri(spec.results.model_dump(), namespace="ml", path="digits") == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"results": None}, "artifacts: they are files in the results' store; name it in results"),
        ({"command": ["true"], "holder_image": "busybox"}, "artifacts: nobody lists them when"),
        ({"artifacts": ["/mnt/results/x"]}, "artifacts.0: should be a relative path or pattern"),
        ({"artifacts": ["a", "b/../../c"]}, "artifacts.1: should be a relative path or pattern"),
        ({"artifacts": ["a\nb"]}, "artifacts.0: should be a relative path or pattern"),
        ({"artifacts": "model"}, "artifacts: should be a valid list"),
        ({"env": {"RESULT_DIR": "/x"}}, "env: RESULT_DIR is set by the provider when there are"),
        ({"env": {"LEARNER_ARTIFACTS": "x"}}, "LEARNER_ARTIFACTS is set by the provider"),
    ],
)
def test_what_cannot_be_told_is_refused(arguments: dict[str, Any], words: str) -> None:
    store = {"type": "mount_volume", "claim": "c"}
    values = {"learners": 1, "command": "true", "image": "i", "results": store, "artifacts": ["m"]}
    with pytest.raises(InvalidSpecError) as refused:
        parse_training_spec(values | arguments)
    assert words in str(refused.value)
