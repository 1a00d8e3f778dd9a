"""The four data stores, on a real cluster and with a real S3 server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import (
    ApiException,
    CoreV1Api,
    StorageV1Api,
    V1CSIDriver,
    V1CSIDriverSpec,
    V1HostPathVolumeSource,
    V1ObjectMeta,
    V1ObjectReference,
    V1PersistentVolume,
    V1PersistentVolumeClaim,
    V1PersistentVolumeClaimSpec,
    V1PersistentVolumeSpec,
    V1VolumeResourceRequirements,
)

from airflow_learner_provider.training.accounts import Account
from airflow_learner_provider.training.request import TrainingRequest
from dev.airflow.access import Admin
from dev.cluster import containerd, settings
from dev.services import S3
from tests.cluster.core import Core, Gate, meanwhile, new_owner, until
from tests.cluster.csi import DRIVER, serve_csi

# Copies what it reads, and says where.
DIGITS = {"size": 11, "sha256": hashlib.sha256(b"0123456789\n").hexdigest()}
COPY = 'cat "$DATA_DIR/digits"; mkdir -p "$RESULT_DIR"; cp "$DATA_DIR/digits" "$RESULT_DIR/model"'


@pytest.fixture
def bucket(s3: S3, namespace: str) -> Path:
    """A bucket of the test's own, as the server keeps it; it has the namespace's name."""
    folder = s3.buckets / namespace
    (folder / "in").mkdir(parents=True)
    (folder / "in/digits").write_text("0123456789\n")
    return folder


@pytest.fixture
def s3_core(core: Core, s3: S3) -> Core:
    """Trainings that may name the connections `s3`, and `wrong` with a wrong key."""
    core.accounts = {
        "s3": Account(s3.access_key, s3.secret_key, endpoint=s3.url),
        "wrong": Account(s3.access_key, "wrong", endpoint=s3.url),
    }
    return core


@pytest.fixture
def claim(core_api: CoreV1Api, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """The folder behind the claim `experiments`."""
    folder = tmp_path / "volume"
    folder.mkdir()
    core_api.create_persistent_volume(
        V1PersistentVolume(
            metadata=V1ObjectMeta(name=namespace),
            spec=V1PersistentVolumeSpec(
                access_modes=["ReadWriteMany"],
                capacity={"storage": "1Mi"},
                claim_ref=V1ObjectReference(namespace=namespace, name="experiments"),
                host_path=V1HostPathVolumeSource(path=str(folder)),
            ),
        )
    )
    core_api.create_namespaced_persistent_volume_claim(
        namespace,
        V1PersistentVolumeClaim(
            metadata=V1ObjectMeta(name="experiments"),
            spec=V1PersistentVolumeClaimSpec(
                access_modes=["ReadWriteMany"],
                resources=V1VolumeResourceRequirements(requests={"storage": "1Mi"}),
                storage_class_name="",
                volume_name=namespace,
            ),
        ),
    )
    yield folder
    core_api.delete_persistent_volume(namespace)


@pytest.fixture
def flex_driver() -> Iterator[dict[str, str]]:
    """The FlexVolume driver `ibm/ibmc-s3fs` on the node, and what a store says to use it."""
    plugins = settings.KUBELET_ROOT / "volume-plugins"
    folder = plugins / "ibm~ibmc-s3fs"
    made = plugins / ".ibmc-s3fs"  # the kubelet passes over what begins with a dot
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    shutil.copy2(Path(__file__).parent / "data/ibmc-s3fs", made)
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
    yield {}
    shutil.rmtree(folder)


@pytest.fixture
def csi_driver(admin: Admin) -> Iterator[dict[str, str]]:
    """A CSI driver on the node, and what a store says to use it."""
    api = StorageV1Api(admin.client)
    with suppress(ApiException):  # of a run that was killed
        api.delete_csi_driver(DRIVER)
    spec = V1CSIDriverSpec(attach_required=False, volume_lifecycle_modes=["Ephemeral"])
    api.create_csi_driver(V1CSIDriver(metadata=V1ObjectMeta(name=DRIVER), spec=spec))
    with serve_csi():
        yield {"csi_driver": DRIVER}
    api.delete_csi_driver(DRIVER)


async def test_a_folder_of_the_node_and_a_claim_are_mounted_with_their_sub_paths(
    core: Core, claim: Path, tmp_path: Path
) -> None:
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/digits").write_text("0123456789\n")
    mounts = core.request(
        command=f'{COPY}-"$LEARNER_ID"',
        name="mounts",
        training_data={"type": "host_mount", "host_path": str(tmp_path), "sub_path": "sets"},
        results={
            "type": "mount_volume",
            "claim": "experiments",
            "sub_path": "runs",
            "mount_path": "/out",
        },
        artifacts=["model-*"],
    )
    folder = {"type": "host_mount", "host_path": str(tmp_path / "empty")}
    nothing = core.request(
        learners=1, command="true", owner=new_owner(), results=folder, artifacts=["mod*"]
    )
    outcome, failed = await asyncio.gather(core.run(mounts), core.run(nothing))
    assert failed["reason"] == "ArtifactsMissing"
    assert "the results have no file 'mod*', which artifacts= names" in failed["message"]
    assert outcome["phase"] == "Succeeded"
    assert "[1] 0123456789" in core.log.lines
    for learner in (1, 2):  # the claim's folder is there when the training is gone
        assert (claim / f"runs/mounts/model-{learner}").read_text() == "0123456789\n"
    at = f"pvc://{core.namespace}/experiments/runs/mounts"
    assert outcome["artifacts"] == [
        DIGITS | {"name": f"model-{learner}", "uri": f"{at}/model-{learner}"} for learner in (1, 2)
    ]


@pytest.mark.parametrize("driver", ["flex_driver", "csi_driver"])
async def test_a_driver_gets_the_seeds_options_and_the_keys(
    request: pytest.FixtureRequest,
    driver: str,
    core: Core,
    tmp_path: Path,
    wait_until_empty: Callable[[], None],
) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in/digits").write_text("0123456789\n")
    core.accounts = {
        "cos": Account("AKIA1", "s3cr3t", endpoint=f"file://{tmp_path}", region="eu-de")
    }
    store = {"type": "mount_cos", "conn_id": "cos", "disk_free": 512}
    store |= request.getfixturevalue(driver)
    mounts = core.request(
        learners=1,
        command=COPY,
        name="cos",
        training_data=store | {"bucket": "in", "cache_size": 2},
        results=store | {"bucket": "out"},
        artifacts=["model"],
    )
    fails = core.request(
        owner=new_owner(),
        learners=1,
        command="true",
        training_data=store | {"bucket": "nowhere"},
        ready_timeout=10,
    )
    outcome, failed = await asyncio.gather(core.run(mounts), core.run(fails))
    await asyncio.to_thread(wait_until_empty)
    assert failed["reason"] == "VolumeUnavailable"
    assert "there is no bucket nowhere" in failed["message"]
    assert outcome["phase"] == "Succeeded"
    assert (tmp_path / "out/cos/model").read_text() == "0123456789\n"
    assert outcome["artifacts"] == [DIGITS | {"name": "model", "uri": "s3://out/cos/model"}]
    asked = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("in", "out")}
    keys = {key.rpartition("/")[2]: asked["in"][key] for key in asked["in"] if "/secret/" in key}
    assert {key: base64.b64decode(text).decode() for key, text in keys.items()} == {
        "access-key": "AKIA1",
        "secret-key": "s3cr3t",
    }
    options = {key: text for key, text in asked["in"].items() if "/" not in key}
    assert options == {
        "bucket": "in",
        "cache-size-gb": "2",
        "chunk-size-mb": "52",
        "curl-debug": "false",
        "debug-level": "warn",
        "endpoint": f"file://{tmp_path}",
        "ensure-disk-free": "512",
        "kernel-cache": "true",
        "multireq-max": "20",
        "parallel-count": "5",
        "region": "eu-de",
        "s3fs-fuse-retry-count": "30",
        "stat-cache-size": "100000",
        "tls-cipher-suite": "DEFAULT",
    }
    assert asked["out"]["kernel-cache"] == "false"


@pytest.mark.parametrize("completion", ["native", "wrapper"])
async def test_a_bucket_is_copied_to_the_learners_and_their_results_are_copied_back(
    s3_core: Core, s3: S3, bucket: Path, staging_image: str, completion: str
) -> None:
    store = {"type": "s3_datastore", "bucket": bucket.name, "conn_id": "s3"}
    outcome = await s3_core.run(
        command='cat "$DATA_DIR/digits"; mkdir -p "$RESULT_DIR"; echo > "$RESULT_DIR/$LEARNER_ID"; '
        "env",
        name="staged",
        completion=completion,
        training_data=store | {"sub_path": "in"},
        results=store | {"sub_path": "out"},
        artifacts=["?"],
        staging_image=staging_image,
    )
    assert outcome["phase"] == "Succeeded"
    at = f"s3://{bucket.name}/out/staged"
    rows = [(row["uri"], row["size"]) for row in outcome["artifacts"]]
    assert rows == [(f"{at}/1", 1), (f"{at}/2", 1)]  # each learner has its own
    for uri, size in rows:
        assert f"Artifact {uri}: {size} bytes, sha256 01ba4719c80b" in s3_core.log.text
    assert [path.name for path in sorted((bucket / "out/staged").iterdir())] == ["1", "2"]
    log = s3_core.log.text
    for ordinal in (0, 1):
        assert f"[{ordinal}] 0123456789" in log
        told = f"copying 1 files of 11 bytes from s3://{bucket.name}/in to /mnt/data"
        assert f"[{ordinal} download] {told}" in log
        assert f"[{ordinal} upload] copying /mnt/results to s3://{bucket.name}/out" in log
    assert "11 B / 11 B, 100%" in log
    assert s3.secret_key not in log  # a learner's environment has no keys
    assert s3.access_key not in log


async def test_a_retry_copies_only_what_changed_and_goes_on_where_the_first_try_was(
    s3_core: Core, bucket: Path, staging_image: str
) -> None:
    store = {"type": "s3_datastore", "bucket": bucket.name, "sub_path": "out", "conn_id": "s3"}
    written = []
    owner = new_owner()
    for number in (1, 2):
        await s3_core.run(
            s3_core.request(
                owner=owner,
                learners=1,
                command='echo same > "$RESULT_DIR/model"; '
                f'echo {number} > "$RESULT_DIR/metrics"; mkdir "$CHECKPOINT_DIR/{number}"; '
                """echo '{"step": 7, "files": {}}' > """
                f'"$CHECKPOINT_DIR/{number}/manifest.json"; exit {number}',
                name="retried",
                results=store,
                staging_image=staging_image,
            )
        )
        model, metrics = (bucket / "out/retried" / name for name in ("model", "metrics"))
        written.append((model.stat().st_ctime_ns, metrics.read_text()))
    # A training that failed has results as well.
    assert [text for _, text in written] == ["1\n", "2\n"]
    assert written[0][0] == written[1][0]
    assert s3_core.log.text.count("[0] learner: resuming from step 7") == 1


async def test_results_that_do_not_get_to_their_bucket_are_a_failure(
    *,
    s3_core: Core,
    bucket: Path,
    staging_image: str,
    gate: Gate,
    wait_until_empty: Callable[[], None],
) -> None:
    store = {"type": "s3_datastore", "bucket": bucket.name, "conn_id": "s3"}
    run = s3_core.run(
        learners=1,
        command=f'mkdir -p "$RESULT_DIR"; echo > "$RESULT_DIR/model"; echo go; {gate.wait}',
        training_data=gate.store,
        name="lost",
        results=store,
        staging_image=staging_image,
    )
    async with meanwhile(run) as task:
        await until(lambda: "[0] go" in s3_core.log.lines)
        shutil.rmtree(bucket)
        gate.open()
        outcome = await task
    assert outcome["learners"][0]["exit_code"] == 74
    told = (
        f"the results did not get to s3://{bucket.name}: lost/model: Failed to copy: NoSuchBucket"
    )
    assert told in outcome["message"]
    await asyncio.to_thread(wait_until_empty)


def kill_upload(core_api: CoreV1Api, namespace: str, pod_name: str, *, copy: int) -> bool:
    """Kill the container that copies the results in its first, second ... copy; tell if it was."""
    pods: Any = core_api.list_namespaced_pod(namespace, field_selector=f"metadata.name={pod_name}")
    for pod in pods.items:
        volumes = settings.KUBELET_ROOT / "pods" / pod.metadata.uid / "volumes"
        starts = volumes / "kubernetes.io~empty-dir/job/upload.starts"
        running = [
            status.container_id.removeprefix("containerd://")
            for status in pod.status.container_statuses or ()
            if status.name == "upload" and status.restart_count == copy - 1 and status.state.running
        ]
        if running and starts.exists() and starts.read_text() == f"{copy}\n":
            containerd.ctr("tasks", "kill", "--signal", "SIGKILL", *running)
            return True
    return False


async def test_a_copy_that_is_killed_is_done_again_and_after_three_times_told(
    *,
    s3_core: Core,
    core_api: CoreV1Api,
    bucket: Path,
    staging_image: str,
    wait_until_empty: Callable[[], None],
) -> None:
    command = 'mkdir -p "$RESULT_DIR"; dd if=/dev/zero of="$RESULT_DIR/model" bs=1k count=400'

    def request(name: str, **upload: Any) -> TrainingRequest:
        return s3_core.request(
            owner=new_owner(),
            learners=1,
            command=command,
            name=name,
            results={"type": "s3_datastore", "bucket": bucket.name, "conn_id": "s3"},
            staging_image=staging_image,
            pod_template={"spec": {"containers": [{"name": "upload"} | upload]}},
        )

    async def kill(name: str, *, times: int) -> None:
        for copy in range(1, times + 1):
            look = partial(kill_upload, core_api, s3_core.namespace, f"{name}-0", copy=copy)
            await until(look, seconds=120)

    little = {"memory": "8Mi"}
    once, thrice, starved, *_ = await asyncio.gather(
        s3_core.run(request("once", env=[{"name": "RCLONE_BWLIMIT", "value": "20k"}])),
        s3_core.run(request("thrice", env=[{"name": "RCLONE_BWLIMIT", "value": "1k"}])),
        s3_core.run(request("starved", resources={"requests": little, "limits": little})),
        kill("once", times=1),
        kill("thrice", times=3),
    )
    assert once["phase"] == "Succeeded"
    assert (bucket / "once/model").stat().st_size == 400 * 1024
    for outcome, words in ((thrice, "the copy was killed three times"), (starved, "was killed")):
        assert outcome["learners"][0]["exit_code"] == 74
        assert f"the results did not get to s3://{bucket.name}: " in outcome["message"]
        assert words in outcome["message"]
    await asyncio.to_thread(wait_until_empty)


async def test_a_deleted_training_copies_what_it_has(
    s3_core: Core, core_api: CoreV1Api, bucket: Path, staging_image: str
) -> None:
    run = s3_core.run(
        learners=1,
        command='mkdir -p "$RESULT_DIR"; echo > "$RESULT_DIR/half"; echo go; sleep 600',
        name="deleted",
        results={"type": "s3_datastore", "bucket": bucket.name, "conn_id": "s3"},
        staging_image=staging_image,
    )
    async with meanwhile(run) as task:
        await until(lambda: "[0] go" in s3_core.log.lines)
        await asyncio.to_thread(core_api.delete_namespaced_pod, "deleted-0", s3_core.namespace)
        assert (await task)["reason"] == "Deleted"
    assert (bucket / "deleted/half").exists()


async def test_a_copy_that_cannot_work_is_told_before_the_training_starts(
    s3_core: Core,
    bucket: Path,
    staging_image: str,
    wait_until_empty: Callable[[], None],
) -> None:
    store = {"type": "s3_datastore", "bucket": bucket.name, "sub_path": "in", "conn_id": "s3"}
    full = {"name": "training-data", "emptyDir": {"medium": "Memory", "sizeLimit": "4Ki"}}
    (bucket / "large").mkdir()
    (bucket / "large/file").write_bytes(bytes(8192))
    wrong: dict[str, dict[str, Any]] = {
        "s3://missing/in: there is no such bucket": {
            "training_data": store | {"bucket": "missing"}
        },
        "s3://missing: there is no such bucket": {
            "results": {"type": "s3_datastore", "bucket": "missing", "conn_id": "s3"}
        },
        f"s3://{bucket.name}/nothing: there are no files": {
            "training_data": store | {"sub_path": "nothing"}
        },
        f"s3://{bucket.name}/in: error listing: SignatureDoesNotMatch": {
            "training_data": store | {"conn_id": "wrong"}
        },
        f"s3://{bucket.name}/in: 1 files of 11 bytes do not fit on the node, which has 0": {
            "training_data": store | {"disk_free": 10**9}  # a petabyte
        },
        f"s3://{bucket.name}/large: 1 files of 8192 bytes do not fit on the node, which has 4096": {
            "training_data": store | {"sub_path": "large"},
            "pod_template": {"spec": {"volumes": [full]}},
        },
    }
    outcomes = await asyncio.gather(
        *(
            s3_core.run(
                s3_core.request(
                    owner=new_owner(task_id=str(i)),
                    learners=1,
                    command="echo trained",
                    staging_image=staging_image,
                    **arguments,
                ),
            )
            for i, arguments in enumerate(wrong.values())
        )
    )
    for words, outcome in zip(wrong, outcomes, strict=True):
        assert outcome["reason"] == "InitContainerFailed"
        assert f"learner 0 init container download: exit code 1: {words}" in outcome["message"]
    assert "trained" not in s3_core.log.text
    await asyncio.to_thread(wait_until_empty)
