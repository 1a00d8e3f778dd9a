"""The volumes that a learner reads its training data from and writes its results to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kubernetes.client import (
    V1CSIVolumeSource,
    V1EmptyDirVolumeSource,
    V1FlexVolumeSource,
    V1HostPathVolumeSource,
    V1LocalObjectReference,
    V1PersistentVolumeClaimVolumeSource,
    V1Volume,
    V1VolumeMount,
)

from airflow_learner_provider.exceptions import InvalidSpecError

DATA_STORE_TYPE_MOUNT_VOLUME = "mount_volume"
DATA_STORE_HOST_MOUNT_VOLUME = "host_mount"
DATA_STORE_TYPE_MOUNT_COS_S3 = "mount_cos"
DATA_STORE_TYPE_S3 = "s3_datastore"

COS_DRIVER = "ibm/ibmc-s3fs"
_COS_OPTIONS = {
    "chunk-size-mb": "52",
    "curl-debug": "false",
    "debug-level": "warn",
    "multireq-max": "20",
    "s3fs-fuse-retry-count": "30",
    "stat-cache-size": "100000",
    "tls-cipher-suite": "DEFAULT",
}
# Training data is read in parallel and often, results are written once.
_COS_TRAINING_DATA_OPTIONS = {"kernel-cache": "true", "parallel-count": "5"}
_COS_RESULTS_OPTIONS = {"kernel-cache": "false", "parallel-count": "2"}


@dataclass(frozen=True)
class VolumeMountSpec:
    """Where a volume is mounted.

    :param mount_path: path in the container.
    :param sub_path: path in the volume; empty is its root.
    :param name: of a ``mount_volume``, the persistent volume claim; the volume's id if empty.
    """

    mount_path: str = ""
    sub_path: str = ""
    name: str = ""


@dataclass(frozen=True)
class COSVolume:
    """A data store.

    :param volume_type: one of the ``DATA_STORE_...`` constants.
    :param id: name of the volume in the pod.
    :param region: region of the object store (``mount_cos``).
    :param bucket: bucket in the object store (``mount_cos``).
    :param endpoint: URL of the object store (``mount_cos``).
    :param secret_ref: name of the Secret with the object store's keys (``mount_cos``).
    :param cache_size: memory for the cache in GB, as text (``mount_cos``).
    :param disk_free: disk to leave free in MB, as text (``mount_cos``).
    :param host_path: path on the node (``host_mount``).
    :param mount_spec: where the volume is mounted.
    """

    volume_type: str = ""
    id: str = ""
    region: str = ""
    bucket: str = ""
    endpoint: str = ""
    secret_ref: str = ""
    cache_size: str = ""
    disk_free: str = ""
    host_path: str = ""
    mount_spec: VolumeMountSpec = VolumeMountSpec()


@dataclass(frozen=True)
class Volumes:
    """The data stores of a learner; one that is None is not there.

    :param training_data: where the training data is.
    :param results_dir: where the results go.
    """

    training_data: COSVolume | None = None
    results_dir: COSVolume | None = None

    def create_volume_for_learner(
        self, *, csi_drivers: Mapping[str, str] = MappingProxyType({})
    ) -> list[V1Volume]:
        """Build the volumes of the pod: training data first, then results.

        ``mount_cos`` is mounted by the driver ``ibm/ibmc-s3fs`` on the node, ``host_mount`` is a
        folder of the node, ``mount_volume`` an existing persistent volume claim, and
        ``s3_datastore`` an empty folder that is filled before the training and emptied into the
        store afterwards.

        :param csi_drivers: by volume id, the CSI driver that mounts a ``mount_cos`` instead: as an
            ephemeral inline volume, with the same options as attributes.
        :raises InvalidSpecError: a volume is of no known type.
        """
        volumes = [
            _VOLUME_BUILDERS[store.volume_type](store, options) for store, options in self._stores()
        ]
        return [
            _mount_by_csi(volume, csi_drivers[volume.name])
            if volume.name in csi_drivers
            else volume
            for volume in volumes
        ]

    def create_volume_mounts_for_learner(self) -> list[V1VolumeMount]:
        """Build the mounts of the container: training data first, then results.

        :raises InvalidSpecError: a volume is of no known type.
        """
        return [
            V1VolumeMount(
                name=store.id,
                mount_path=store.mount_spec.mount_path,
                sub_path=store.mount_spec.sub_path or None,
            )
            for store, _ in self._stores()
        ]

    def _stores(self) -> Iterator[tuple[COSVolume, Mapping[str, str]]]:
        """Yield the stores that are there, each with the tuning of its use."""
        for field, store, options in (
            ("training_data", self.training_data, _COS_TRAINING_DATA_OPTIONS),
            ("results_dir", self.results_dir, _COS_RESULTS_OPTIONS),
        ):
            if store is None:
                continue
            if store.volume_type not in _VOLUME_BUILDERS:
                raise InvalidSpecError(
                    f"{field}.volume_type: should be one of {', '.join(_VOLUME_BUILDERS)}"
                )
            yield store, options


def _cos_volume(store: COSVolume, options: Mapping[str, str]) -> V1Volume:
    return V1Volume(
        name=store.id,
        flex_volume=V1FlexVolumeSource(
            driver=COS_DRIVER,
            secret_ref=V1LocalObjectReference(name=store.secret_ref or None),
            options={
                **_COS_OPTIONS,
                **options,
                "bucket": store.bucket,
                "endpoint": store.endpoint,
                "region": store.region,
                "cache-size-gb": store.cache_size,
                "ensure-disk-free": store.disk_free,
            },
        ),
    )


def _mount_by_csi(volume: V1Volume, driver: str) -> V1Volume:
    # https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#csi-ephemeral-volumes
    flex = volume.flex_volume
    if flex is None:
        raise InvalidSpecError(
            f"csi_drivers: the volume {volume.name} is no {DATA_STORE_TYPE_MOUNT_COS_S3}"
        )
    csi = V1CSIVolumeSource(
        driver=driver, node_publish_secret_ref=flex.secret_ref, volume_attributes=flex.options
    )
    return V1Volume(name=volume.name, csi=csi)


def _host_volume(store: COSVolume, _: Mapping[str, str]) -> V1Volume:
    return V1Volume(name=store.id, host_path=V1HostPathVolumeSource(path=store.host_path))


def _claim_volume(store: COSVolume, _: Mapping[str, str]) -> V1Volume:
    claim = V1PersistentVolumeClaimVolumeSource(claim_name=store.mount_spec.name or store.id)
    return V1Volume(name=store.id, persistent_volume_claim=claim)


def _staged_volume(store: COSVolume, _: Mapping[str, str]) -> V1Volume:
    return V1Volume(name=store.id, empty_dir=V1EmptyDirVolumeSource())


_VOLUME_BUILDERS: Mapping[str, Callable[[COSVolume, Mapping[str, str]], V1Volume]] = {
    DATA_STORE_TYPE_MOUNT_VOLUME: _claim_volume,
    DATA_STORE_HOST_MOUNT_VOLUME: _host_volume,
    DATA_STORE_TYPE_MOUNT_COS_S3: _cos_volume,
    DATA_STORE_TYPE_S3: _staged_volume,
}
