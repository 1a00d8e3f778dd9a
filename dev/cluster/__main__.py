"""`python -m dev.cluster`: a real Kubernetes on this machine."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable

from dev.cluster import build, cluster, containerd, images, processes, settings, simulated
from dev.cluster.components import build_components
from dev.cluster.progress import say
from dev.cluster.settings import ClusterError

_FAULTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")


def main() -> int:
    """Run one command and return the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was begun is undone
    # All that follows `kubectl` is for kubectl, `--` too, which argparse would take out.
    own = 2 if sys.argv[1:2] == ["kubectl"] else None
    arguments = _build_parser().parse_args(sys.argv[1:own])
    command: Callable[[argparse.Namespace], int | None] = arguments.run
    try:
        return command(arguments) or 0
    except ClusterError as e:
        say(f"error: {e}")
        return 1
    except KeyboardInterrupt:
        return 130


def _up(arguments: argparse.Namespace) -> None:
    extra = [images.find_image(name) for name in arguments.images]
    cluster.up(restart_rules=arguments.restart_rules, extra_images=extra)
    print(settings.KUBECONFIG)


def _down(arguments: argparse.Namespace) -> None:
    cluster.down(purge=arguments.purge)


def _simulate(_: argparse.Namespace) -> None:
    with simulated.control_plane():
        print(settings.KUBECONFIG, flush=True)
        sys.stdin.read()


def _build(arguments: argparse.Namespace) -> None:
    extra = tuple(module for module in build.EXTRA_MODULES if module.name in arguments.extra)
    modules = (*build.MODULES, *extra)
    build.build(modules)
    for module in modules:
        for program in module.packages:
            print(build.find_binary(program))


def _images(arguments: argparse.Namespace) -> None:
    wanted = [*images.ALWAYS, *(images.find_image(name) for name in arguments.names)]
    for image in wanted:
        images.build_image(image)
        if containerd.is_healthy():
            containerd.import_image(image)
        print(image.reference)


def _kubeconfig(_: argparse.Namespace) -> None:
    if not settings.KUBECONFIG.exists():
        raise ClusterError("the cluster is not up: python -m dev.cluster up")
    print(settings.KUBECONFIG)


def _kubectl(_: argparse.Namespace) -> int:
    command = [str(build.find_binary("kubectl")), *sys.argv[2:]]
    environment = os.environ | {"KUBECONFIG": str(settings.KUBECONFIG)}
    return subprocess.run(command, env=environment, check=False).returncode


def _status(_: argparse.Namespace) -> int:
    if kubeconfig := os.environ.get("KUBECONFIG"):
        print(f"KUBECONFIG is set: tests and demo use the cluster of {kubeconfig}")
    working = True
    for component in build_components(restart_rules=True).values():
        process = processes.find(component.name)
        if process is None or not process.is_running:
            state = "not running"
        elif process.is_stopped:
            state = f"pid {process.pid}, suspended"
        else:
            state = f"pid {process.pid}, {'healthy' if component.is_healthy() else 'unhealthy'}"
        working = working and state.endswith(", healthy")
        print(f"{component.name:24} {state}")
    if containerd.is_healthy():
        print(f"{'images':24} {', '.join(containerd.list_images())}")
    print(f"{'kubeconfig':24} {settings.KUBECONFIG if working else 'none'}")
    print(f"{'logs':24} {settings.LOGS}")
    return 0 if working else 1


def _stop_component(arguments: argparse.Namespace) -> None:
    cluster.stop(arguments.name)


def _start_component(arguments: argparse.Namespace) -> None:
    process = processes.find(arguments.name)
    if process is None:
        raise ClusterError("the cluster is not up: python -m dev.cluster up")
    if not process.is_running:
        processes.restart(process)
    components = build_components(restart_rules=True)
    cluster.wait_until_healthy(components[arguments.name])


def _signal(arguments: argparse.Namespace) -> None:
    process = processes.find(arguments.name)
    if process is None or not process.is_running:
        raise ClusterError(f"{arguments.name} is not running")
    process.send_signal(signal.Signals[arguments.signal])


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[[argparse.Namespace], int | None], text: str, *aliases: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, aliases=aliases)
        command.set_defaults(run=run)
        return command

    up = add("up", _up, "start the cluster; prints the kubeconfig's path last")
    up.add_argument(
        "--without-restart-rules",
        dest="restart_rules",
        action="store_false",
        default=os.environ.get(settings.RESTART_RULES_VARIABLE) != "off",
        help="turn the feature gate ContainerRestartRules off, as it is before Kubernetes 1.35 "
        f"({settings.RESTART_RULES_VARIABLE}=off does the same)",
    )
    up.add_argument("--images", nargs="+", default=[], choices=images.ON_REQUEST)
    down = add("down", _down, "end the cluster")
    down.add_argument("--purge", action="store_true", help="delete imported images and logs too")
    text = "run a control plane with one simulated node until the input ends, beside any cluster"
    add("simulate", _simulate, text)
    add("status", _status, "say how each part is")
    builder = add("build", _build, "build the programs and print where they are")
    builder.add_argument(
        "--with",
        dest="extra",
        nargs="+",
        default=[],
        choices=[module.name for module in build.EXTRA_MODULES],
    )
    image = add("images", _images, "make images, and import them if the cluster is up")
    image.add_argument("names", nargs="*", metavar="NAME", help=", ".join(images.ON_REQUEST))
    add("kubeconfig", _kubeconfig, "print the kubeconfig's path", "kubectl-config")
    add("kubectl", _kubectl, "run kubectl against the cluster")
    for name, run, text in (
        ("stop-component", _stop_component, "stop one part, for fault tests"),
        ("start-component", _start_component, "start a stopped part and wait until it works"),
        ("signal", _signal, "suspend a part, or let it go on"),
    ):
        add(name, run, text).add_argument("name", choices=_FAULTS, metavar="NAME")
    commands.choices["signal"].add_argument("signal", choices=["SIGSTOP", "SIGCONT"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
