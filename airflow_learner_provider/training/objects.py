"""From a training's spec to all its Kubernetes objects, each built through the seed's functions."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from kubernetes.client import (
    ApiClient,
    V1Capabilities,
    V1ConfigMap,
    V1ConfigMapVolumeSource,
    V1Container,
    V1EmptyDirVolumeSource,
    V1EnvVar,
    V1ObjectMeta,
    V1ResourceRequirements,
    V1SecurityContext,
    V1ServicePort,
    V1Volume,
    V1VolumeMount,
)

from airflow_learner_provider.learner import (
    Container,
    COSVolume,
    Image,
    LearnerConfig,
    Resources,
    SSHVolumeSecret,
    VolumeMountSpec,
    Volumes,
    create_container_spec,
    create_pod_spec,
    create_service_spec,
    create_stateful_set_spec_for_learner,
    populate_learner_env_variables_and_labels,
)
from airflow_learner_provider.training.accounts import (
    NO_ACCOUNTS,
    Accounts,
    build_secrets,
    name_secrets,
)
from airflow_learner_provider.training.artifacts import PATTERNS, build_store_uri
from airflow_learner_provider.training.completion import (
    CONTAINER,
    HOLDER,
    HOLDER_SCRIPT,
    RESULT_FILE,
    WRAPPER,
    escape_expansion,
)
from airflow_learner_provider.training.launchers import (
    ORDINAL,
    Group,
    build_launcher_env,
    build_launcher_ports,
    build_ordinal_env,
)
from airflow_learner_provider.training.naming import (
    DATA_VOLUME,
    FILES,
    FILES_VOLUME,
    JOB_VOLUME,
    LEARNERS,
    RESULTS_URI,
    RESULTS_VOLUME,
    SSH_SECRET,
    Owner,
    build_annotations,
    build_labels,
    build_training_name,
)
from airflow_learner_provider.training.pod_template import fill_in, parse_pod_template
from airflow_learner_provider.training.spec import (
    DATA_ROOT,
    FILES_ROOT,
    JOB_ROOT,
    RESULTS_ROOT,
    Store,
    TrainingSpec,
)
from airflow_learner_provider.training.ssh import SSHKey, build_ssh_secret, build_ssh_volume
from airflow_learner_provider.training.staging import bucket_url, build_download, build_upload

Json = dict[str, Any]

_SHM_VOLUME = "shared-memory"


@dataclass(frozen=True)
class TrainingObjects:
    """The objects of one training, as Kubernetes JSON.

    :param stateful_set: asks for 0 replicas; it is scaled when all the others exist.
    :param owned: everything that belongs to the StatefulSet and goes with it.
    :param learners: what the StatefulSet is scaled to.
    """

    name: str
    namespace: str
    learners: int
    stateful_set: Json
    owned: tuple[Json, ...]


def build_objects(
    spec: TrainingSpec,
    owner: Owner,
    *,
    namespace: str,
    version: str,
    native: bool,
    accounts: Accounts = NO_ACCOUNTS,
    ssh_key: SSHKey | None = None,
) -> TrainingObjects:
    """Build all objects of a training; nothing is read but the arguments.

    :param namespace: used where the spec names none.
    :param version: of the provider, kept as an annotation.
    :param native: whether the cluster keeps a restart policy on a container.
    :param accounts: what the connections say that the spec names.
    :param ssh_key: what the learners of a launcher that needs ssh know each other by.
    :raises InvalidSpecError: a value cannot be built from; it names the field.
    """
    name = spec.name or build_training_name(owner)
    namespace = spec.namespace or namespace
    labels = dict(spec.labels) | build_labels(name, owner)
    config = LearnerConfig(image_pull_policy=spec.image_pull_policy, learner_namespace=namespace)
    spec_hash = spec.spec_hash()
    secrets = build_secrets(spec, accounts, name=name, config=config, labels=labels)
    spec = name_secrets(spec, accounts, name=name)
    group = Group(name, namespace, spec.learners, spec.processes_per_learner, spec.gpus)
    volumes = _build_volumes(spec)
    # The exit record lives and dies with the pod: a new training can never find an old one.
    extra = [
        (
            V1Volume(name=JOB_VOLUME, empty_dir=V1EmptyDirVolumeSource()),
            V1VolumeMount(name=JOB_VOLUME, mount_path=JOB_ROOT),
        )
    ]
    config_maps = []
    if spec.files:
        config_maps.append(_build_files(spec, name, namespace=namespace, labels=labels))
        extra.append(
            (
                V1Volume(name=FILES_VOLUME, config_map=V1ConfigMapVolumeSource(name=name + FILES)),
                V1VolumeMount(name=FILES_VOLUME, mount_path=FILES_ROOT, read_only=True),
            )
        )
    if ssh_key is not None:
        ssh = SSHVolumeSecret(id=name + SSH_SECRET, training_id=name)
        extra.append(build_ssh_volume(ssh))
        secrets.append(
            build_ssh_secret(ssh, ssh_key, group, labels=labels, ready_timeout=spec.ready_timeout)
        )
    container = create_container_spec(
        Container(
            image=Image(framework=spec.framework or "", version=spec.framework_version or ""),
            resources=Resources(cpus=spec.cpus, memory=spec.memory, gpus=str(spec.gpus)),
            volume_mounts=[
                *volumes.create_volume_mounts_for_learner(),
                *(mount for _, mount in extra),
            ],
            name=CONTAINER,
            command=escape_expansion(WRAPPER),
            env_vars=_build_env(spec, group, checkpoints=build_training_name(owner)),
        ),
        config=config,
        gpu_resource=spec.gpu_resource,
    )
    if spec.image is not None:
        container.image = spec.image
    if not isinstance(spec.command, str):
        container.command = [escape_expansion(part) for part in spec.command]
    # On failure without a result, the end of the log says why.
    container.termination_message_policy = "FallbackToLogsOnError"
    containers = [container, *build_upload(spec)]
    if native:
        container.restart_policy = "Never"
        containers.append(_build_holder(spec, image=container.image))
    template = create_pod_spec(
        containers,
        [
            *volumes.create_volume_for_learner(csi_drivers=_name_csi_drivers(spec)),
            *(volume for volume, _ in extra),
        ],
        labels,
        dict(spec.node_selector),
        spec.image_pull_secret,
        init_containers=build_download(
            spec, checkpoints=_place_in_results(spec, container, "CHECKPOINT_DIR")
        ),
    )
    stateful_set = create_stateful_set_spec_for_learner(
        name,
        name,
        0,
        template,
        pod_management_policy=spec.pod_management_policy,
        min_ready_seconds=spec.min_ready_seconds,
        namespace=namespace,
        labels=labels,
        annotations=build_annotations(owner, spec_hash=spec_hash, version=version)
        | {LEARNERS: str(spec.learners)}
        | _annotate_results(spec, container, namespace),
    )
    service = create_service_spec(
        name,
        name,
        namespace=namespace,
        labels=labels,
        extra_ports=[
            V1ServicePort(name=port, port=number, protocol="TCP")
            for port, number in build_launcher_ports(spec.launcher).items()
        ],
    )
    manifest = _to_json(stateful_set)
    pod = manifest["spec"]["template"]
    # Variables for every Service of the namespace are nothing to a learner.
    pod["spec"]["enableServiceLinks"] = False
    filled = fill_in(parse_pod_template(spec.pod_template), pod)
    filled["metadata"]["labels"] |= labels  # the selectors find the pods by them
    manifest["spec"]["template"] = _add_shared_memory(filled)
    return TrainingObjects(
        name=name,
        namespace=namespace,
        learners=spec.learners,
        stateful_set=manifest,
        owned=tuple(_to_json(model) for model in (service, *secrets, *config_maps)),
    )


def _build_env(spec: TrainingSpec, group: Group, *, checkpoints: str) -> list[V1EnvVar]:
    user = [V1EnvVar(name=key, value=escape_expansion(text)) for key, text in spec.env.items()]
    directories = {"RESULT_DIR": "" if spec.results is not None else "results"}
    if spec.training_data is not None:
        directories["DATA_DIR"] = ""
    seeded = populate_learner_env_variables_and_labels(
        [
            *(V1EnvVar(name=key, value=path) for key, path in directories.items()),
            V1EnvVar(name="GPU_COUNT", value=str(spec.gpus)),
            V1EnvVar(name="TRAINING_COMMAND", value=escape_expansion(_as_text(spec.command))),
            *user,
        ],
        group.name,
        spec.learners,
        group.name,
        spec.training_data is not None,
        spec.results is not None,
    )
    for env_var in seeded:
        if env_var.name == "CHECKPOINT_DIR" and env_var.value:
            # All tries of a task share its checkpoints, and nobody else does.
            env_var.value = f"{env_var.value}/{checkpoints}"
        env_var.value = _relocate(env_var.value, spec)
    known = {env_var.name for env_var in seeded}
    patterns = ["\n".join(spec.artifacts)]
    return [
        *seeded,
        build_ordinal_env(ORDINAL),
        V1EnvVar(name="FIRST_LEARNER", value=group.addresses[0]),
        V1EnvVar(name="LEARNER_RESULT_FILE", value=RESULT_FILE),
        V1EnvVar(name="RESULT_BUCKET_URL", value=escape_expansion(bucket_url(spec.results))),
        *(V1EnvVar(name=PATTERNS, value=escape_expansion(text)) for text in patterns if text),
        *build_launcher_env(spec.launcher, group),
        *(env_var for env_var in user if env_var.name not in known),
    ]


def _build_files(
    spec: TrainingSpec, name: str, *, namespace: str, labels: dict[str, str]
) -> V1ConfigMap:
    return V1ConfigMap(
        api_version="v1",
        kind="ConfigMap",
        metadata=V1ObjectMeta(name=name + FILES, namespace=namespace, labels=dict(labels)),
        data=dict(spec.files),
    )


def _place_in_results(spec: TrainingSpec, learner: V1Container, variable: str) -> str:
    """Where in the results' store the directory is that a learner's variable names."""
    folders = [env_var.value for env_var in learner.env or () if env_var.name == variable]
    if spec.results is None or not folders or folders[0] is None:
        return ""
    mount_path = spec.results.mount_path or RESULTS_ROOT
    return folders[0].removeprefix(mount_path.rstrip("/")).strip("/")


def _annotate_results(spec: TrainingSpec, learner: V1Container, namespace: str) -> dict[str, str]:
    """Say on the StatefulSet where the artifacts are, for whoever waits for the training."""
    if spec.results is None or not spec.artifacts:
        return {}
    path = _place_in_results(spec, learner, "RESULT_DIR")
    uri = build_store_uri(spec.results.model_dump(), namespace=namespace, path=path)
    return {RESULTS_URI: uri}


def _as_text(command: str | list[str]) -> str:
    return command if isinstance(command, str) else shlex.join(command)


def _build_holder(spec: TrainingSpec, *, image: str | None) -> V1Container:
    """Build the container that keeps a pod from ending with its learner.

    Requests equal limits, so that the pod stays in the Guaranteed class.
    """
    resources = {"cpu": "10m", "memory": "16Mi"}
    return V1Container(
        name=HOLDER,
        image=spec.holder_image or image,
        image_pull_policy=spec.image_pull_policy,
        command=["sh" if spec.holder_image else "bash", "-c", HOLDER_SCRIPT],
        resources=V1ResourceRequirements(requests=resources, limits=dict(resources)),
        security_context=V1SecurityContext(
            allow_privilege_escalation=False, capabilities=V1Capabilities(drop=["ALL"])
        ),
    )


def _relocate(value: str | None, spec: TrainingSpec) -> str | None:
    """Move a path from where the seed mounts a store to where the user wants it."""
    for root, store in ((DATA_ROOT, spec.training_data), (RESULTS_ROOT, spec.results)):
        if value is None or store is None or store.mount_path is None:
            continue
        if value == root or value.startswith(f"{root}/"):
            return store.mount_path.rstrip("/") + value.removeprefix(root)
    return value


def _build_volumes(spec: TrainingSpec) -> Volumes:
    return Volumes(
        training_data=_build_volume(spec.training_data, DATA_VOLUME, DATA_ROOT),
        results_dir=_build_volume(spec.results, RESULTS_VOLUME, RESULTS_ROOT),
    )


def _name_csi_drivers(spec: TrainingSpec) -> dict[str, str]:
    stores = {DATA_VOLUME: spec.training_data, RESULTS_VOLUME: spec.results}
    return {
        volume: store.csi_driver for volume, store in stores.items() if store and store.csi_driver
    }


def _build_volume(store: Store | None, volume: str, root: str) -> COSVolume | None:
    if store is None:
        return None
    return COSVolume(
        volume_type=store.type,
        id=volume,
        region=store.region or "",
        bucket=store.bucket or "",
        endpoint=store.endpoint or "",
        secret_ref=store.secret or "",
        cache_size=store.cache_size or "0",
        disk_free=store.disk_free or "0",
        host_path=store.host_path or "",
        mount_spec=VolumeMountSpec(
            mount_path=store.mount_path or root,
            # Of a bucket that is copied, only what is in the path is there.
            sub_path="" if bucket_url(store) else store.sub_path,
            name=store.claim or volume,
        ),
    )


def _add_shared_memory(pod: Json) -> Json:
    """Give learners a /dev/shm larger than the runtime's 64 MiB.

    Data loaders pass batches through it. It counts as the container's memory, so its limit holds.
    A volume that the user mounts there wins.
    """
    learner = next(c for c in pod["spec"]["containers"] if c["name"] == CONTAINER)
    mounts = learner.setdefault("volumeMounts", [])
    if all(mount["mountPath"].rstrip("/") != "/dev/shm" for mount in mounts):  # noqa: S108 - not ours to write
        mounts.append({"name": _SHM_VOLUME, "mountPath": "/dev/shm"})  # noqa: S108
        volumes = pod["spec"].setdefault("volumes", [])
        if all(volume["name"] != _SHM_VOLUME for volume in volumes):
            volumes.append({"name": _SHM_VOLUME, "emptyDir": {"medium": "Memory"}})
    return pod


def _to_json(model: Any) -> Json:
    manifest: Json = ApiClient().sanitize_for_serialization(model)
    return manifest
