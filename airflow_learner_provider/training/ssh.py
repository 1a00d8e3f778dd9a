"""ssh between the learners of one training, by which mpirun starts its processes.

One key pair a training lies in its Secret. It names every learner to every other one: as a user who
may log in, and as a host. All of them hold it, so one of their own is all that a learner trusts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubernetes.client import V1ObjectMeta, V1Secret, V1SecretVolumeSource, V1Volume, V1VolumeMount

from airflow_learner_provider.learner import SSHVolumeSecret
from airflow_learner_provider.training.launchers import SSH_DIR, SSH_MOUNT, Group

_VOLUME = "ssh"
# Above 1023, so that learners need not be root; the seed's container declares it.
PORT = 2222
_SPARE_SECONDS = 60

# Runs around the user's command, after a line that sets `ssh`, `mount` and `limit`. Learner 0 runs
# the command once it reaches all others; they serve until it tells them that it is done, and end
# well: how it went is told by learner 0.
_LAUNCH = r"""
client=$(command -v ssh)
server=$(PATH="$PATH:/usr/sbin:/usr/local/sbin:/sbin"; command -v sshd)
if [ -z "$client" ] || [ -z "$server" ]; then
  echo "learner: the mpi launcher needs ssh and sshd in the image" >&2
  exit 127
fi
mask=$(umask)
umask 077
mkdir -p "$ssh/bin" && cp "$mount"/* "$ssh/" && mkfifo "$ssh/end" || exit 1
# Comes first in PATH: whatever starts processes by ssh finds keys, port and host names so.
printf '#!/usr/bin/env bash\nexec %s -F %s/ssh_config "$@"\n' "$client" "$ssh" > "$ssh/bin/ssh"
chmod 500 "$ssh/bin/ssh"
[ "$(id -u)" -ne 0 ] || mkdir -p -m 755 /run/sshd
export PATH="$ssh/bin:$PATH"
export -p > "$ssh/environment"
umask "$mask"

if [ "$LEARNER_ORDINAL" -ne 0 ]; then
  "$server" -D -e -f "$ssh/sshd_config" &
  { read -r _ < "$ssh/end"; sleep 0.5; } & # the session that tells it may end first
  wait -n && exit
  echo "learner: sshd has ended by itself" >&2
  exit 1
fi

for_others() { # FUNCTION: for every other learner, 32 at a time
  local host running=0 failed=0
  while read -r host _; do
    [ "$host" != "$FIRST_LEARNER" ] || continue
    [ "$running" -lt 32 ] || { wait -n || failed=1; running=$((running - 1)); }
    "$1" "$host" &
    running=$((running + 1))
  done < "$ssh/hostfile"
  for ((; running > 0; running--)); do wait -n || failed=1; done
  return "$failed"
}
reach() {
  local said
  until said=$(ssh -n "$1" true 2>&1); do
    if [ "$SECONDS" -ge "$limit" ]; then
      echo "learner: no ssh to $1 after $limit s: $said" >&2
      return 1
    fi
    sleep 0.2
  done
}
tell_end() {
  local i
  for i in 1 2 3; do ssh -n "$1" "echo > $ssh/end" 2> /dev/null && return; done
}

"$server" -e -f "$ssh/sshd_config" || exit 1
for_others reach || exit 1
bash -c "$TRAINING_COMMAND"
code=$?
for_others tell_end
exit "$code"
"""
# An ssh session has nothing of the container's environment, and begins in the home directory.
_ENTER = f"""\
. {SSH_DIR}/environment
cd "$PWD"
exec bash -c "$SSH_ORIGINAL_COMMAND"
"""
_SSH_CONFIG = f"""\
Port {PORT}
IdentityFile {SSH_DIR}/ssh-privatekey
IdentitiesOnly yes
UserKnownHostsFile {SSH_DIR}/known_hosts
GlobalKnownHostsFile /dev/null
HostKeyAlias learner
StrictHostKeyChecking yes
BatchMode yes
ConnectTimeout 10
LogLevel ERROR
"""
_SSHD_CONFIG = f"""\
Port {PORT}
HostKey {SSH_DIR}/ssh-privatekey
AuthorizedKeysFile {SSH_DIR}/ssh-publickey
AuthenticationMethods publickey
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
ForceCommand bash {SSH_DIR}/enter
MaxStartups 1000
DisableForwarding yes
PidFile none
LogLevel ERROR
"""


@dataclass(frozen=True)
class SSHKey:
    """A key pair in OpenSSH's own format; the private one does not show in `repr`."""

    private: str = field(repr=False)
    public: str


def build_ssh_secret(
    secret: SSHVolumeSecret,
    key: SSHKey,
    group: Group,
    *,
    labels: Mapping[str, str],
    ready_timeout: float,
) -> V1Secret:
    """Build the Secret with the key pair, and beside it all files that ssh needs.

    :param ready_timeout: seconds in which all learners have to be up. Learner 0 tries to reach the
        others a little longer: names of late ones may take their time to resolve.
    """
    limit = int(ready_timeout) + _SPARE_SECONDS
    settings = f"ssh={SSH_DIR} mount={SSH_MOUNT} limit={limit}\n"
    hosts = [f"{address} slots={group.processes}\n" for address in group.addresses]
    return V1Secret(
        api_version="v1",
        kind="Secret",
        metadata=V1ObjectMeta(
            name=secret.id,
            namespace=group.namespace,
            labels={**labels, "training_id": secret.training_id},
        ),
        type="kubernetes.io/ssh-auth",
        string_data={
            "ssh-privatekey": key.private,
            "ssh-publickey": f"{key.public}\n",
            "known_hosts": f"learner {key.public}\n",
            "hostfile": "".join(hosts),
            "launch": settings + _LAUNCH,
            "enter": _ENTER,
            "ssh_config": _SSH_CONFIG,
            "sshd_config": _SSHD_CONFIG,
        },
    )


def build_ssh_volume(secret: SSHVolumeSecret) -> tuple[V1Volume, V1VolumeMount]:
    """Build the volume of the Secret and its mount; nobody but its owner reads the files."""
    source = V1SecretVolumeSource(secret_name=secret.id, default_mode=0o400)
    mount = V1VolumeMount(name=_VOLUME, mount_path=SSH_MOUNT, read_only=True)
    return V1Volume(name=_VOLUME, secret=source), mount
