"""From a spec to the objects of a training."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_learner_provider.training.completion import HOLDER_SCRIPT, WRAPPER, escape_expansion
from airflow_learner_provider.training.launchers import learner_address
from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.objects import TrainingObjects, build_objects
from airflow_learner_provider.training.spec import parse_training_spec

OWNER = Owner("digits", "train", "run", -1, 1, "uid-of-the-try", durable=True)
VALID = {"learners": 2, "command": "train", "image": "digits:1"}


def build(*, owner: Owner = OWNER, native: bool = False, **values: Any) -> TrainingObjects:
    spec = parse_training_spec(VALID | values)
    return build_objects(spec, owner, namespace="ml", version="1.0", native=native)


def pod_of(objects: TrainingObjects) -> dict[str, Any]:
    pod: dict[str, Any] = objects.stateful_set["spec"]["template"]["spec"]
    return pod


def learner_of(objects: TrainingObjects) -> dict[str, Any]:
    [learner] = [c for c in pod_of(objects)["containers"] if c["name"] == "learner"]
    return dict(learner)


def expand(text: str, env: dict[str, str]) -> str:
    """Expand variables as kubelet does (k8s.io/kubernetes/third_party/forked/golang/expansion)."""
    expanded, i = "", 0
    while i < len(text):
        end = text.find(")", i)
        if text[i] != "$" or i + 1 == len(text):
            expanded, i = expanded + text[i], i + 1
        elif text[i + 1] == "$":
            expanded, i = expanded + "$", i + 2
        elif text[i + 1] == "(" and end > 0:
            name = text[i + 2 : end]
            expanded, i = expanded + env.get(name, f"$({name})"), end + 1
        else:
            expanded, i = expanded + text[i : i + 2], i + 2
    return expanded


@given(st.text(st.sampled_from("$()Ax{ ")))
def test_value_reaches_the_container_as_it_is(text: str) -> None:
    assert expand(escape_expansion(text), {"A": "expanded"}) == text


LABELS = {
    "team": "vision",
    "training_id": "digits",
    "app.kubernetes.io/managed-by": "airflow-learner-provider",
    "airflow-learner-provider/dag-id": "digits",
    "airflow-learner-provider/task-id": "train",
    "airflow-learner-provider/run-id": "run",
    "airflow-learner-provider/map-index": "1-1bad6b8c",
    "airflow-learner-provider/try-number": "1",
}


def from_pod(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}


INDEX = from_pod("metadata.labels['apps.kubernetes.io/pod-index']")
RESOURCES = {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "1"}


def test_objects_of_a_training_as_a_whole() -> None:
    spec = parse_training_spec(
        {
            "learners": 2,
            "command": "python train.py --lr $LR",
            "image": "registry.example.com/ml/digits:1",
            "cpus": "500m",
            "memory": "2Gi",
            "gpus": 1,
            "env": {"LR": 0.1, "PRICE": "$(LR) $$"},
            "training_data": {
                "type": "host_mount",
                "host_path": "/srv/data",
                "mount_path": "/data",
            },
            "results": {"type": "mount_volume", "claim": "results-of-all"},
            "name": "digits",
            "labels": {"team": "vision"},
            "image_pull_secret": "pull",
            "node_selector": {"gpu": "a100"},
            "min_ready_seconds": 3,
        }
    )
    objects = build_objects(spec, OWNER, namespace="ml", version="1.0", native=False)
    assert objects == TrainingObjects(
        name="digits",
        namespace="ml",
        learners=2,
        stateful_set={
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": "digits",
                "namespace": "ml",
                "labels": LABELS | {"service": "dlaas-learner"},
                "annotations": {
                    "airflow-learner-provider/dag-id": "digits",
                    "airflow-learner-provider/task-id": "train",
                    "airflow-learner-provider/run-id": "run",
                    "airflow-learner-provider/map-index": "-1",
                    "airflow-learner-provider/try-number": "1",
                    "airflow-learner-provider/task-instance-id": "uid-of-the-try",
                    "airflow-learner-provider/durable": "true",
                    "airflow-learner-provider/spec-hash": spec.spec_hash(),
                    "airflow-learner-provider/provider-version": "1.0",
                    "airflow-learner-provider/learners": "2",
                },
            },
            "spec": {
                "replicas": 0,
                "serviceName": "digits",
                "selector": {"matchLabels": {"training_id": "digits"}},
                "podManagementPolicy": "Parallel",
                "minReadySeconds": 3,
                "revisionHistoryLimit": 0,
                "template": {
                    "metadata": {
                        "labels": LABELS | {"service": "dlaas-learner"},
                        "annotations": {
                            "scheduler.alpha.kubernetes.io/nvidiaGPU": (
                                '{ "AllocationPriority": "Dense" }'
                            ),
                            "scheduler.alpha.kubernetes.io/tolerations": (
                                '[ { "key": "dedicated", "operator": "Equal", '
                                '"value": "gpu-task" } ]'
                            ),
                        },
                    },
                    "spec": {
                        "automountServiceAccountToken": False,
                        "enableServiceLinks": False,
                        "imagePullSecrets": [{"name": "pull"}],
                        "nodeSelector": {"gpu": "a100"},
                        "tolerations": [
                            {
                                "key": "dedicated",
                                "operator": "Equal",
                                "value": "gpu-task",
                                "effect": "NoSchedule",
                            }
                        ],
                        "containers": [
                            {
                                "name": "learner",
                                "image": "registry.example.com/ml/digits:1",
                                "imagePullPolicy": "IfNotPresent",
                                "command": ["bash", "-c", escape_expansion(WRAPPER)],
                                "terminationMessagePolicy": "FallbackToLogsOnError",
                                "resources": {"requests": RESOURCES, "limits": RESOURCES},
                                "ports": [
                                    {"containerPort": 22, "protocol": "TCP"},
                                    {"containerPort": 2222, "protocol": "TCP"},
                                ],
                                "securityContext": {
                                    "capabilities": {
                                        "drop": [
                                            *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL"),
                                            *("SETPCAP", "NET_RAW", "MKNOD", "SETFCAP"),
                                        ]
                                    }
                                },
                                "env": [
                                    {"name": "RESULT_DIR", "value": "/mnt/results/digits"},
                                    {"name": "DATA_DIR", "value": "/data"},
                                    {"name": "GPU_COUNT", "value": "1"},
                                    {
                                        "name": "TRAINING_COMMAND",
                                        "value": "python train.py --lr $LR",
                                    },
                                    {
                                        "name": "DOWNWARD_API_POD_NAME",
                                        "valueFrom": from_pod("metadata.name"),
                                    },
                                    {
                                        "name": "DOWNWARD_API_POD_NAMESPACE",
                                        "valueFrom": from_pod("metadata.namespace"),
                                    },
                                    {"name": "LEARNER_NAME_PREFIX", "value": "digits"},
                                    {"name": "TRAINING_ID", "value": "digits"},
                                    {"name": "NUM_LEARNERS", "value": "2"},
                                    {"name": "JOB_STATE_DIR", "value": "/job"},
                                    {
                                        "name": "CHECKPOINT_DIR",
                                        "value": "/mnt/results/_wml_checkpoints/"
                                        "digits-train-ba4d78ddf1",
                                    },
                                    {"name": "RESULT_BUCKET_DIR", "value": "/mnt/results"},
                                    {"name": "LEARNER_ORDINAL", "valueFrom": INDEX},
                                    {"name": "FIRST_LEARNER", "value": "digits-0.digits.ml.svc"},
                                    {
                                        "name": "LEARNER_RESULT_FILE",
                                        "value": "/dev/termination-log",
                                    },
                                    {"name": "RESULT_BUCKET_URL", "value": ""},
                                    {"name": "LR", "value": "0.1"},
                                    {"name": "PRICE", "value": "$$(LR) $$$"},
                                ],
                                "volumeMounts": [
                                    {"name": "training-data", "mountPath": "/data"},
                                    {"name": "results", "mountPath": "/mnt/results"},
                                    {"name": "job", "mountPath": "/job"},
                                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                                ],
                            }
                        ],
                        "volumes": [
                            {"name": "training-data", "hostPath": {"path": "/srv/data"}},
                            {
                                "name": "results",
                                "persistentVolumeClaim": {"claimName": "results-of-all"},
                            },
                            {"name": "job", "emptyDir": {}},
                            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
                        ],
                    },
                },
            },
        },
        owned=(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "digits", "namespace": "ml", "labels": LABELS},
                "spec": {
                    "clusterIP": "None",
                    "publishNotReadyAddresses": True,
                    "selector": {"training_id": "digits"},
                    "ports": [
                        {"name": "ssh", "port": 22, "protocol": "TCP"},
                        {"name": "tf-distributed", "port": 2222, "protocol": "TCP"},
                    ],
                },
            },
        ),
    )


def test_native_completion_adds_a_holder_and_never_restarts_the_learner() -> None:
    plain, native = build(), build(native=True)
    [learner, holder] = pod_of(native)["containers"]
    assert learner == learner_of(plain) | {"restartPolicy": "Never"}
    small = {"cpu": "10m", "memory": "16Mi"}
    assert holder == {
        "name": "holder",
        "image": "digits:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["bash", "-c", HOLDER_SCRIPT],
        "resources": {"requests": small, "limits": small},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def test_command_without_a_shell_runs_as_it_is() -> None:
    objects = build(native=True, command=["train", "$(LR)"], holder_image="busybox:1")
    assert learner_of(objects)["command"] == ["train", "$$(LR)"]
    holder = pod_of(objects)["containers"][1]
    assert (holder["image"], holder["command"][0]) == ("busybox:1", "sh")


def test_shared_memory_is_in_memory_unless_the_user_mounts_something_there() -> None:
    pod = pod_of(build())
    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    mounted = {"name": "learner", "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm/"}]}
    template = {"spec": {"containers": [mounted], "volumes": [{"name": "mine", "emptyDir": {}}]}}
    pod = pod_of(build(pod_template=template))
    assert {"name": "mine", "emptyDir": {}} in pod["volumes"]
    assert "shared-memory" not in {volume["name"] for volume in pod["volumes"]}
    # A size of the user's own needs only the volume.
    sized = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    pod = pod_of(build(pod_template={"spec": {"volumes": [sized]}}))
    assert [v for v in pod["volumes"] if v["name"] == "shared-memory"] == [sized]


def test_labels_that_selectors_need_cannot_be_taken_away() -> None:
    template = {"metadata": {"labels": {"training_id": "other", "team": "vision"}}}
    objects = build(labels={"training_id": "other"}, pod_template=template)
    labels = objects.stateful_set["spec"]["template"]["metadata"]["labels"]
    assert labels["training_id"] == objects.name
    assert labels["team"] == "vision"


def test_variable_of_the_user_that_the_provider_needs_itself_is_ours() -> None:
    names = [entry["name"] for entry in learner_of(build(env={"DATA_DIR": "/mine"}))["env"]]
    assert len(set(names)) == len(names)


PATHS = st.sampled_from(["/data", "/data/", "/results", "/dev/shm", "/mnt/data"])
STORES = st.none() | st.fixed_dictionaries(
    {"type": st.just("host_mount"), "host_path": st.just("/srv")},
    optional={"mount_path": PATHS, "sub_path": st.just("digits")},
)
CLAIMS = st.none() | st.fixed_dictionaries(
    {"type": st.just("mount_volume"), "claim": st.sampled_from(["training-data", "job"])}
)
TEMPLATES = st.sampled_from(
    [
        {},
        {"spec": {"volumes": [{"name": "shared-memory", "emptyDir": {}}]}},
        {"spec": {"containers": [{"name": "aaa", "image": "proxy:1"}]}},
        {"spec": {"initContainers": [{"name": "prepare", "image": "tiny:1"}]}},
        {
            "spec": {
                "volumes": [{"name": "mine", "emptyDir": {}}],
                "containers": [
                    {
                        "name": "learner",
                        "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}],
                    }
                ],
            }
        },
    ]
)
OWNERS = st.builds(
    Owner,
    dag_id=st.text(min_size=1, max_size=80),
    task_id=st.text(min_size=1, max_size=80),
    run_id=st.text(min_size=1, max_size=80),
    map_index=st.integers(-1, 1000),
    try_number=st.integers(1, 9),
    task_instance_id=st.text(max_size=9),
    durable=st.booleans(),
)
ENV = st.dictionaries(
    st.sampled_from(["LR", "DATA_DIR", "RESULT_DIR", "CHECKPOINT_DIR", "GPU_COUNT", "LOG_DIR"]),
    st.text(max_size=5),
    max_size=3,
)


SPECS = st.fixed_dictionaries(
    {
        "learners": st.integers(1, 20),
        "launcher": st.sampled_from(["none", "torchrun", "jax", "tensorflow", "mpi"]),
        "training_data": STORES,
        "results": CLAIMS,
        "pod_template": TEMPLATES,
        "env": ENV,
    }
)


@given(OWNERS, st.booleans(), SPECS)
def test_objects_of_a_training_agree(owner: Owner, native: bool, values: dict[str, Any]) -> None:
    objects = build(owner=owner, native=native, **values)
    learners = values["learners"]
    spec = objects.stateful_set["spec"]
    [service] = [manifest for manifest in objects.owned if manifest["kind"] == "Service"]
    labels = spec["template"]["metadata"]["labels"]
    # kubernetes-sigs/jobset#45: one source for the names.
    assert spec["serviceName"] == service["metadata"]["name"] == objects.name
    assert spec["selector"]["matchLabels"] == service["spec"]["selector"]
    assert spec["selector"]["matchLabels"] == {"training_id": objects.name}
    assert labels.items() >= service["spec"]["selector"].items()
    pod = spec["template"]["spec"]
    for container in pod["containers"]:
        for key, part in {"volumeMounts": "mountPath", "env": "name"}.items():
            found = [entry[part].rstrip("/") for entry in container.get(key, ())]
            assert len(set(found)) == len(found)
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert len(set(volumes)) == len(volumes)
    mounted = {m["name"] for c in pod["containers"] for m in c.get("volumeMounts", ())}
    assert mounted <= set(volumes)
    names = [container["name"] for container in pod["containers"]]
    assert len(set(names)) == len(names)
    environment = {entry["name"]: entry for entry in learner_of(objects)["env"]}
    first = f"{objects.name}-0.{objects.name}.ml.svc"
    assert environment["FIRST_LEARNER"]["value"] == first
    assert environment["NUM_LEARNERS"]["value"] == str(learners)


def test_address_of_a_learner_is_in_the_service_of_the_set_s_name() -> None:
    address = learner_address("digits", ordinal=10, namespace="ml")
    assert address == "digits-10.digits.ml.svc"
