"""How learners find each other: what each framework expects for its rendezvous.

Pure functions from the training to environment variables and ports. What depends on the learner's
ordinal comes from the label that the StatefulSet controller puts on each pod, through the downward
API.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from kubernetes.client import V1EnvVar, V1EnvVarSource, V1ObjectFieldSelector

from airflow_learner_provider.training.naming import POD_INDEX

JAX_COORDINATOR_PORT = 1234
# Where learner 0 says that its command has begun.
JAX_START_PORT = 1235
TORCH_PORT = 29500
# The seed's port for TensorFlow, which its Service and its container declare.
TENSORFLOW_PORT = 2222
ORDINAL = "LEARNER_ORDINAL"
# What is run around the user's command, for launchers that need it.
LAUNCH_COMMAND = "LAUNCH_COMMAND"

# Where the files of the mpi launcher are mounted, and where its script puts them to work.
SSH_MOUNT = "/etc/learner-ssh"
SSH_DIR = "/job/ssh"

# Runs around the user's command: the others begin with learner 0, whose image may still be pulled
# when its name resolves. JAX itself tries to reach it ever more seldom. (To wait for the
# coordinator's own port would make the others import JAX only when learner 0 has done so.)
_JAX_LAUNCH = rf"""
begin='
import os, socket, sys, time
port, begun = {JAX_START_PORT}, time.monotonic()
if os.environ["LEARNER_ORDINAL"] == "0":
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    others = set()
    with socket.create_server(("", port), family=family, dualstack_ipv6=both) as server:
        while len(others) < int(os.environ["NUM_LEARNERS"]) - 1:
            connection, address = server.accept()
            connection.close()
            others.add(address[0])
    sys.exit()
patience = 60
while time.monotonic() - begun <= patience:
    try:
        socket.create_connection((os.environ["FIRST_LEARNER"], port), timeout=2).close()
        sys.exit()
    except ConnectionRefusedError: # it is there, but has not begun
        patience = 600
    except OSError: # perhaps nothing gets through to this port
        patience = 60
    time.sleep(0.2)
print(f"learner: learner 0 has not begun after {{patience}} s; starting all the same", flush=True)
'
if [ "$NUM_LEARNERS" -gt 1 ] && command -v python3 > /dev/null; then
  if [ "$LEARNER_ORDINAL" -eq 0 ]; then
    (python3 -c "$begin" &) # nobody's child: the command may wait for its own
  else
    python3 -c "$begin"
  fi
fi
exec bash -c "$TRAINING_COMMAND"
"""


@dataclass(frozen=True)
class Group:
    """The learners of a training, as far as they have to know each other.

    :param name: name of the training.
    :param learners: how many there are.
    :param processes: how many processes train in each of them.
    :param gpus: GPUs of each of them.
    """

    name: str
    namespace: str
    learners: int
    processes: int = 1
    gpus: int = 0

    @property
    def addresses(self) -> list[str]:
        """DNS names of the learners, by ordinal."""
        return [
            learner_address(self.name, ordinal=ordinal, namespace=self.namespace)
            for ordinal in range(self.learners)
        ]


def learner_address(name: str, *, ordinal: int, namespace: str) -> str:
    """DNS name of a learner: the governing Service of the StatefulSet has the set's own name.

    https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#stable-network-id
    """
    return f"{name}-{ordinal}.{name}.{namespace}.svc"


def build_ordinal_env(variable: str) -> V1EnvVar:
    """A variable that holds the ordinal of the learner it is in."""
    field = V1ObjectFieldSelector(field_path=f"metadata.labels['{POD_INDEX}']")
    return V1EnvVar(name=variable, value_from=V1EnvVarSource(field_ref=field))


def build_launcher_env(launcher: str, group: Group) -> list[V1EnvVar]:
    """Environment of the rendezvous; it follows LEARNER_ORDINAL, which some of it refers to."""
    return _BUILDERS[launcher](group)


def build_launcher_ports(launcher: str) -> dict[str, int]:
    """Ports of the rendezvous by name, beside those that the seed's Service has."""
    return _PORTS.get(launcher, {})


def _build_torchrun(group: Group) -> list[V1EnvVar]:
    """Variables that stand for the arguments of `torchrun`, and what `init_process_group` reads.

    With one process in each learner `python train.py` does as well. With more, torchrun starts
    them and tells each its rank, so there is no rank to set here.
    https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    first, port = group.addresses[0], str(TORCH_PORT)
    alone = [
        V1EnvVar(name="WORLD_SIZE", value=str(group.learners)),
        build_ordinal_env("RANK"),
        V1EnvVar(name="LOCAL_RANK", value="0"),
        V1EnvVar(name="LOCAL_WORLD_SIZE", value="1"),
    ]
    return [
        V1EnvVar(name="MASTER_ADDR", value=first),
        V1EnvVar(name="MASTER_PORT", value=port),
        *(alone if group.processes == 1 else ()),
        V1EnvVar(name="PET_NNODES", value=str(group.learners)),
        V1EnvVar(name="PET_NPROC_PER_NODE", value=str(group.processes)),
        build_ordinal_env("PET_NODE_RANK"),
        V1EnvVar(name="PET_MASTER_ADDR", value=first),
        V1EnvVar(name="PET_MASTER_PORT", value=port),
    ]


def _build_jax(group: Group) -> list[V1EnvVar]:
    """What `jax.distributed.initialize()` reads; one process has all devices of its learner.

    JAX reads the coordinator's address itself. For how many processes there are, and which one this
    is, it has no variables of its own but knows Slurm's; all of these make it look at them. JAX
    would give each process one device then, so that the devices have to be named.
    https://docs.jax.dev/en/latest/multi_process.html
    """
    first = group.addresses[0]
    variables = {
        LAUNCH_COMMAND: _JAX_LAUNCH,
        "JAX_COORDINATOR_ADDRESS": f"{first}:{JAX_COORDINATOR_PORT}",
    }
    if group.gpus:
        variables["JAX_LOCAL_DEVICE_IDS"] = ",".join(str(gpu) for gpu in range(group.gpus))
    variables |= {
        "JAX_NUM_PROCESSES": str(group.learners),  # for training code
        "SLURM_JOB_ID": "0",
        "SLURM_STEP_NODELIST": first,
        "SLURM_NTASKS": str(group.learners),
        "SLURM_LOCALID": "0",
    }
    return [
        *(V1EnvVar(name=name, value=value) for name, value in variables.items()),
        build_ordinal_env("JAX_PROCESS_ID"),
        build_ordinal_env("SLURM_PROCID"),
    ]


def _build_tensorflow(group: Group) -> list[V1EnvVar]:
    """TF_CONFIG, in which kubelet puts the ordinal: it expands references to earlier variables.

    https://www.tensorflow.org/guide/distributed_training#set_up_tf_config_environment_variable
    """
    workers = [f"{address}:{TENSORFLOW_PORT}" for address in group.addresses]
    config = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": "ORDINAL"}}
    )
    return [V1EnvVar(name="TF_CONFIG", value=config.replace('"ORDINAL"', f"$({ORDINAL})"))]


def _build_mpi(group: Group) -> list[V1EnvVar]:
    """Let a plain `mpirun python train.py` start its processes in all learners.

    Open MPI 4 reads OMPI_*, its runtime from version 5 on PRTE_*.
    """
    hostfile = f"{SSH_DIR}/hostfile"
    variables = {
        LAUNCH_COMMAND: f"exec bash {SSH_MOUNT}/launch",
        "LEARNER_HOSTFILE": hostfile,
        "OMPI_MCA_orte_default_hostfile": hostfile,
        "PRTE_MCA_prte_default_hostfile": hostfile,
        # Else only the first part of a learner's name is kept, which does not resolve.
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
        # Each learner would bind its first process to the node's first core.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    # In a container root has no rights that mpirun could warn of.
    for runtime in ("OMPI", "PRTE"):
        variables |= {f"{runtime}_ALLOW_RUN_AS_ROOT{more}": "1" for more in ("", "_CONFIRM")}
    return [V1EnvVar(name=name, value=value) for name, value in variables.items()]


_BUILDERS: dict[str, Callable[[Group], list[V1EnvVar]]] = {
    "none": lambda _: [],
    "torchrun": _build_torchrun,
    "jax": _build_jax,
    "tensorflow": _build_tensorflow,
    "mpi": _build_mpi,
}
_PORTS = {"torchrun": {"torchrun": TORCH_PORT}, "jax": {"jax": JAX_COORDINATOR_PORT}}
