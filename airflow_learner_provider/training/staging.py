"""Copies between a bucket and the learner's folders: before the training, and after it.

An object store of type `s3_datastore` is not mounted. The init container `download` fills the
folder of the training data, and the container `upload` copies the results to the bucket when the
learner's command has ended. Both run `rclone` from an image of their own, because nothing is
known of the learner's; only they see the keys. The learner's exit record waits for the upload (see
`completion`), so a training whose results did not arrive has not succeeded.

A copy passes over what is there already with the same checksum, so one that is tried again only
copies the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubernetes.client import (
    V1Capabilities,
    V1Container,
    V1EnvVar,
    V1EnvVarSource,
    V1ResourceRequirements,
    V1SecretKeySelector,
    V1SecurityContext,
    V1VolumeMount,
)

from airflow_learner_provider.learner import DATA_STORE_TYPE_S3
from airflow_learner_provider.training.completion import escape_expansion
from airflow_learner_provider.training.naming import DATA_VOLUME, JOB_VOLUME, RESULTS_VOLUME
from airflow_learner_provider.training.spec import (
    DATA_ROOT,
    JOB_ROOT,
    RESULTS_ROOT,
    Store,
    TrainingSpec,
)

DOWNLOAD = "download"
UPLOAD = "upload"

_VOLUMES = {"DATA": DATA_VOLUME, "RESULTS": RESULTS_VOLUME}
_ROOTS = {"DATA": DATA_ROOT, "RESULTS": RESULTS_ROOT}
# rclone holds at most 4 files of 4 parts of 5 MiB in memory.
_RESOURCES = {"cpu": "250m", "memory": "256Mi"}

_COMMON = r"""
run() { # bucket's URL, then a command of rclone
  url=$1; shift
  {
    rclone "$@" --config '' --log-format '' --contimeout 10s 2>&1 > "$state.out"
    echo "$?" > "$state.code"
  } | tee "$state.log" | while read -r line; do echo "${line#NOTICE: }"; done
  read -r code < "$state.code"
  [ "$code" -ne 137 ] || fail "$url" "rclone was killed: perhaps ${state##*/} has too little memory"
  [ "$code" -eq 0 ] || fail "$url" "$(sed -n -e '/Attempt/d' -e 's/^ERROR : //p' \
    -e 's/.*Failed to/Failed to/p' "$state.log" |
    sed -n -e 's/operation error.*\(api error\|send failed,\) //' \
      -e 's/.*directory not found/there is no such bucket/' -e 1p)"
}
copy() { # bucket's URL, from, to
  run "$1" copy "$2" "$3" --checksum --retries-sleep 5s \
    --stats 10s --stats-one-line --stats-log-level NOTICE
}
"""

_DOWNLOAD_SCRIPT = (
    r"""
state=/job/download
fail() {
  echo "$1: $2" | tee /dev/termination-log
  exit 1
}
"""
    + _COMMON
    + r"""
download() {
  if [ -n "$RESULTS_URL" ]; then # now, and not when the training has cost its time
    run "$RESULTS_URL" lsf --max-depth 1 "$RESULTS_REMOTE" --low-level-retries 3
    run "$RESULTS_URL" lsf --max-depth 1 "$RESULTS_REMOTE/$CHECKPOINTS" --low-level-retries 3
    if [ -s "$state.out" ]; then
      echo "copying checkpoints from $RESULTS_URL/$CHECKPOINTS"
      copy "$RESULTS_URL" "$RESULTS_REMOTE/$CHECKPOINTS" "$RESULTS_FOLDER/$CHECKPOINTS"
    fi
  fi
  [ -n "$DATA_URL" ] || return 0
  run "$DATA_URL" size --json "$DATA_REMOTE" --low-level-retries 3
  files=$(sed -n 's/.*"count":\([0-9]*\).*/\1/p' "$state.out")
  bytes=$(sed -n 's/.*"bytes":\([0-9]*\).*/\1/p' "$state.out")
  [ "$files" -gt 0 ] || fail "$DATA_URL" "there are no files"
  set -- $(df -Pk "$DATA_FOLDER" | tail -n 1) $(du -sk "$DATA_FOLDER")
  room=$((($4 + $7) * 1024 - DATA_DISK_FREE * 1000000))
  [ "$room" -gt 0 ] || room=0
  [ "$bytes" -le "$room" ] ||
    fail "$DATA_URL" "$files files of $bytes bytes do not fit on the node, which has $room"
  echo "copying $files files of $bytes bytes from $DATA_URL to $DATA_FOLDER"
  copy "$DATA_URL" "$DATA_REMOTE" "$DATA_FOLDER"
}
trap 'exit 143' TERM INT # and with the first process ends all it has begun
download & wait "$!"
"""
)

_UPLOAD_SCRIPT = (
    r"""
state=/job/upload
if [ -r "$state.exit" ]; then
  trap 'exit 0' TERM INT
  while :; do sleep 3600 & wait "$!"; done
fi
leave() { # the exit code, in one piece for who waits for it
  echo "$1" > "$state.exit.part"
  mv "$state.exit.part" "$state.exit"
  exit 0
}
fail() {
  echo "the results did not get to $1: $2" | tee "$state.error"
  leave 1
}
"""
    + _COMMON
    + r"""
# A pod that is deleted has some time for the copy. The learner is asked to end as well; one that
# does not say so soon was killed.
patience=
trap '[ -e /job/learner.starts ] || exit 0; patience=${patience:-20}' TERM INT
until [ -r /job/learner.ended ] || [ "$patience" = 0 ]; do
  sleep 0.5 & wait "$!"
  patience=${patience:+$((patience - 1))}
done
starts=0
[ -r "$state.starts" ] && read -r starts < "$state.starts"
starts=$((starts + 1))
echo "$starts" > "$state.starts"
[ "$starts" -le 3 ] || fail "$RESULTS_URL" "the copy was killed three times"
echo "copying $RESULTS_FOLDER to $RESULTS_URL"
copy "$RESULTS_URL" "$RESULTS_FOLDER" "$RESULTS_REMOTE"
leave 0
"""
)


def bucket_url(store: Store | None) -> str:
    """Name the place of a staged store, `s3://bucket/path`; empty for any other store."""
    if store is None or store.type != DATA_STORE_TYPE_S3:
        return ""
    return f"s3://{_path(store)}"


def build_download(spec: TrainingSpec, *, checkpoints: str) -> list[V1Container]:
    """Build the init container that fills the training data in, if there is anything to stage.

    It also looks for the results' bucket, before the training has cost its time, and brings the
    checkpoints that an earlier try has left there.

    :param spec: with Secrets named.
    :param checkpoints: folder in the results' store.
    """
    stores = {"DATA": spec.training_data, "RESULTS": spec.results}
    containers = _build_containers(spec, DOWNLOAD, _DOWNLOAD_SCRIPT, stores)
    for container in containers:
        container.env = [*(container.env or []), V1EnvVar(name="CHECKPOINTS", value=checkpoints)]
    return containers


def build_upload(spec: TrainingSpec) -> list[V1Container]:
    """Build the container that copies the results, if they are staged.

    :param spec: with Secrets named.
    """
    return _build_containers(spec, UPLOAD, _UPLOAD_SCRIPT, {"RESULTS": spec.results})


def _build_containers(
    spec: TrainingSpec, name: str, script: str, stores: Mapping[str, Store | None]
) -> list[V1Container]:
    staged = {use: store for use, store in stores.items() if store and bucket_url(store)}
    if not staged:
        return []
    container = V1Container(
        name=name,
        image=spec.staging_image,
        image_pull_policy="IfNotPresent",
        command=["sh", "-c", escape_expansion(script)],
        env=[env_var for use, store in staged.items() for env_var in _build_env(use, store)],
        volume_mounts=[
            V1VolumeMount(name=JOB_VOLUME, mount_path=JOB_ROOT),
            *(
                V1VolumeMount(name=_VOLUMES[use], mount_path=store.mount_path or _ROOTS[use])
                for use, store in staged.items()
            ),
        ],
        # Requests equal limits, so that the pod stays in the class that is evicted last.
        resources=V1ResourceRequirements(requests=_RESOURCES, limits=dict(_RESOURCES)),
        security_context=V1SecurityContext(
            allow_privilege_escalation=False, capabilities=V1Capabilities(drop=["ALL"])
        ),
    )
    return [container]


def _build_env(use: str, store: Store) -> list[V1EnvVar]:
    """Describe a store to the scripts and to rclone.

    Its remote `data` is configured by variables: https://rclone.org/docs/#config-file
    """
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other" if store.endpoint else "AWS",
        "ENDPOINT": store.endpoint,
        "REGION": store.region,
        "NO_CHECK_BUCKET": "true",  # a bucket that is not there is not to be created
    }
    values = {
        f"{use}_URL": bucket_url(store),
        f"{use}_REMOTE": f"{use.lower()}:{_path(store)}",
        f"{use}_FOLDER": store.mount_path or _ROOTS[use],
        f"{use}_DISK_FREE": store.disk_free,
        **{f"RCLONE_CONFIG_{use}_{key}": value for key, value in remote.items()},
    }
    keys = {"ACCESS_KEY_ID": "access-key", "SECRET_ACCESS_KEY": "secret-key"}
    return [
        *(V1EnvVar(name=key, value=escape_expansion(text)) for key, text in values.items() if text),
        *(
            V1EnvVar(
                name=f"RCLONE_CONFIG_{use}_{name}",
                value_from=V1EnvVarSource(
                    secret_key_ref=V1SecretKeySelector(name=store.secret, key=key)
                ),
            )
            for name, key in keys.items()
        ),
    ]


def _path(store: Store) -> str:
    return f"{store.bucket}/{store.sub_path}".rstrip("/")
