"""What each launcher tells the learners: whole environments."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.launchers import (
    JAX_START_PORT,
    Group,
    build_launcher_env,
    build_launcher_ports,
)
from airflow_learner_provider.training.naming import Owner, build_training_name
from airflow_learner_provider.training.objects import TrainingObjects, build_objects
from airflow_learner_provider.training.spec import parse_training_spec
from airflow_learner_provider.training.ssh import SSHKey

GROUP = Group("fit", "ml", learners=2)
ADDRESSES = ["fit-0.fit.ml.svc", "fit-1.fit.ml.svc"]
ORDINAL = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
OWNER = Owner("dag", "task", "run", -1, 1, "id", durable=False)
KEY = SSHKey("PRIVATE", "ssh-ed25519 PUBLIC")


def read_env(env: list[Any]) -> dict[str, Any]:
    """Variables by name: their text, or where it comes from."""
    listed = ApiClient().sanitize_for_serialization(env)
    assert len({entry["name"] for entry in listed}) == len(listed)
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in listed}


def build(**spec: Any) -> TrainingObjects:
    """All objects of a training of two learners."""
    values = {"learners": 2, "image": "x", "command": "train", "name": "fit"} | spec
    key = KEY if values.get("launcher") == "mpi" else None
    return build_objects(
        parse_training_spec(values),
        OWNER,
        namespace="ml",
        version="1",
        native=False,
        ssh_key=key,
    )


def container_of(objects: TrainingObjects) -> dict[str, Any]:
    """The learner's container."""
    pod = objects.stateful_set["spec"]["template"]["spec"]
    container: dict[str, Any] = pod["containers"][0]
    return container


TORCH = {
    "MASTER_ADDR": ADDRESSES[0],
    "MASTER_PORT": "29500",
    "PET_NNODES": "2",
    "PET_NODE_RANK": ORDINAL,
    "PET_MASTER_ADDR": ADDRESSES[0],
    "PET_MASTER_PORT": "29500",
}
JAX = {
    "JAX_COORDINATOR_ADDRESS": f"{ADDRESSES[0]}:1234",
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": ORDINAL,
    "SLURM_JOB_ID": "0",
    "SLURM_STEP_NODELIST": ADDRESSES[0],
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": ORDINAL,
    "SLURM_LOCALID": "0",
}
MPI = {
    "LAUNCH_COMMAND": "exec bash /etc/learner-ssh/launch",
    "LEARNER_HOSTFILE": "/job/ssh/hostfile",
    "OMPI_MCA_orte_default_hostfile": "/job/ssh/hostfile",
    "PRTE_MCA_prte_default_hostfile": "/job/ssh/hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


@pytest.mark.parametrize(
    ("launcher", "processes", "expected"),
    [
        pytest.param("none", 1, {}, id="none"),
        pytest.param(
            "torchrun",
            1,
            TORCH
            | {
                "WORLD_SIZE": "2",
                "RANK": ORDINAL,
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "PET_NPROC_PER_NODE": "1",
            },
            id="torchrun or plain python",
        ),
        pytest.param(
            "torchrun", 4, TORCH | {"PET_NPROC_PER_NODE": "4"}, id="torchrun gives the ranks"
        ),
        pytest.param(
            "jax",
            1,
            JAX,
            id="jax",
        ),
        pytest.param(
            "tensorflow",
            1,
            {
                "TF_CONFIG": '{"cluster": {"worker": ["fit-0.fit.ml.svc:2222",'
                ' "fit-1.fit.ml.svc:2222"]}, "task": {"type": "worker",'
                ' "index": $(LEARNER_ORDINAL)}}'
            },
            id="tensorflow",
        ),
        pytest.param("mpi", 1, MPI, id="mpi"),
        pytest.param("mpi", 4, MPI, id="mpi tells the processes in its host file"),
    ],
)
def test_a_launcher_sets_exactly_this(
    launcher: str, processes: int, expected: dict[str, Any]
) -> None:
    group = Group("fit", "ml", learners=2, processes=processes)
    env = read_env(build_launcher_env(launcher, group))
    if launcher == "jax":
        assert env.pop("LAUNCH_COMMAND").rstrip().endswith('exec bash -c "$TRAINING_COMMAND"')
    assert env == expected


def test_jax_learners_begin_with_the_first(tmp_path: Path) -> None:
    variables = build_launcher_env("jax", GROUP)
    (launch,) = (each.value or "" for each in variables if each.name == "LAUNCH_COMMAND")
    with socket.create_server(("", 0)) as server:  # others may test here at this time
        launch = launch.replace(str(JAX_START_PORT), str(server.getsockname()[1]))

    def start(ordinal: int) -> subprocess.Popen[bytes]:
        command = f"date +%s%N > {tmp_path}/{ordinal}"
        env = {"LEARNER_ORDINAL": str(ordinal), "TRAINING_COMMAND": command}
        known = {"PATH": os.environ["PATH"], "NUM_LEARNERS": "2", "FIRST_LEARNER": "localhost"}
        return subprocess.Popen(["bash", "-c", launch], env=known | env, start_new_session=True)

    with start(1) as other:
        time.sleep(0.5)
        with start(0) as first:
            try:
                assert (first.wait(20), other.wait(20)) == (0, 0)
            finally:
                with suppress(ProcessLookupError):  # what tells the other has ended with it
                    os.killpg(first.pid, signal.SIGKILL)
    begun = [int((tmp_path / str(ordinal)).read_text()) for ordinal in (0, 1)]
    assert begun[0] < begun[1]


def test_a_jax_process_has_all_gpus_of_its_learner() -> None:
    group = Group("fit", "ml", learners=2, gpus=4)
    env = read_env(build_launcher_env("jax", group))
    del env["LAUNCH_COMMAND"]
    assert env == JAX | {"JAX_LOCAL_DEVICE_IDS": "0,1,2,3"}


def test_tf_config_is_json_once_kubelet_has_put_the_ordinal_in() -> None:
    (variable,) = build_launcher_env("tensorflow", GROUP)
    config = json.loads((variable.value or "").replace("$(LEARNER_ORDINAL)", "1"))
    workers = [f"{address}:2222" for address in ADDRESSES]
    assert config == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize("launcher", ["none", "torchrun", "jax", "tensorflow", "mpi"])
def test_the_seeds_variables_are_there_whatever_the_launcher(launcher: str) -> None:
    store = {"type": "host_mount", "host_path": "/a"}
    container = container_of(build(launcher=launcher, training_data=store, results=store))
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    seeded = {
        "TRAINING_ID": "fit",
        "NUM_LEARNERS": "2",
        "LEARNER_NAME_PREFIX": "fit",
        "TRAINING_COMMAND": "train",
        "GPU_COUNT": "0",
        "DATA_DIR": "/mnt/data",
        "RESULT_DIR": "/mnt/results/fit",
        "RESULT_BUCKET_DIR": "/mnt/results",
        "JOB_STATE_DIR": "/job",
    }
    assert env.items() >= seeded.items()
    # The wrapper adds 1 and exports it.
    assert "export LEARNER_ID=$((LEARNER_ORDINAL + 1))" in container["command"][-1].replace(
        "$$", "$"
    )
    names = list(env)
    if launcher == "tensorflow":  # kubelet expands references to variables that come before
        assert names.index("LEARNER_ORDINAL") < names.index("TF_CONFIG")


@pytest.mark.parametrize(
    ("launcher", "ports"),
    [("none", {}), ("torchrun", {"torchrun": 29500}), ("jax", {"jax": 1234}), ("mpi", {})],
)
def test_the_service_names_the_ports_of_the_rendezvous(
    launcher: str, ports: dict[str, int]
) -> None:
    assert build_launcher_ports(launcher) == ports
    (service, *_) = build(launcher=launcher).owned
    listed = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert listed == {"ssh": 22, "tf-distributed": 2222} | ports


def test_mpi_learners_get_a_secret_that_only_its_owner_reads() -> None:
    objects = build(launcher="mpi", processes_per_learner=4)
    (_, secret) = objects.owned
    assert secret["metadata"]["name"] == "fit-ssh"
    assert secret["metadata"]["labels"]["training_id"] == "fit"
    assert secret["type"] == "kubernetes.io/ssh-auth"
    files = secret["stringData"]
    assert files["ssh-privatekey"] == "PRIVATE"
    assert files["ssh-publickey"] == "ssh-ed25519 PUBLIC\n"
    assert files["known_hosts"] == "learner ssh-ed25519 PUBLIC\n"
    assert files["hostfile"] == "".join(f"{address} slots=4\n" for address in ADDRESSES)
    pod = objects.stateful_set["spec"]["template"]["spec"]
    assert {"name": "ssh", "secret": {"secretName": "fit-ssh", "defaultMode": 0o400}} in pod[
        "volumes"
    ]
    mount = {"name": "ssh", "mountPath": "/etc/learner-ssh", "readOnly": True}
    assert mount in container_of(objects)["volumeMounts"]


def test_a_key_pair_does_not_show_its_private_half() -> None:
    assert repr(KEY) == "SSHKey(public='ssh-ed25519 PUBLIC')"


def test_only_mpi_has_a_secret() -> None:
    assert [manifest["kind"] for manifest in build(launcher="torchrun").owned] == ["Service"]


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "nvidia.com/mig-1g.5gb"]
)
def test_gpus_are_requested_by_the_name_that_is_given(resource: str) -> None:
    resources = container_of(build(gpus=2, gpu_resource=resource))["resources"]
    wanted = {"cpu": "1", "memory": "1Gi", resource: "2"}
    assert resources == {"requests": wanted, "limits": wanted}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"gpu_resource": "gpu"}, "gpu_resource: should be a resource name with its domain"),
        (
            {"processes_per_learner": 0},
            "processes_per_learner: should be greater than or equal to 1",
        ),
        ({"launcher": "jax", "processes_per_learner": 2}, "torchrun and mpi start processes"),
        (
            {"launcher": "mpi", "command": ["mpirun", "x"], "holder_image": "busybox"},
            "the mpi launcher needs a shell",
        ),
        ({"env": {"LAUNCH_COMMAND": "x"}}, "LAUNCH_COMMAND is set by the provider"),
        ({"launcher": "horovod"}, "launcher: should be 'none', 'torchrun'"),
    ],
)
def test_what_a_launcher_cannot_do_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpecError, match=message):
        build(**spec)


def test_checkpoints_are_of_one_task_even_when_trainings_share_a_name() -> None:
    store = {"type": "host_mount", "host_path": "/a", "mount_path": "/out"}
    env = {entry["name"]: entry.get("value") for entry in container_of(build(results=store))["env"]}
    assert env["CHECKPOINT_DIR"] == f"/out/_wml_checkpoints/{build_training_name(OWNER)}"
