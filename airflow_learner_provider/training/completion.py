"""The end of a learner: how it leaves an exit record, and how the record is read.

A StatefulSet restarts whatever exits, so "the container ended" does not mean "the training ended".

Where the API server keeps a `restartPolicy` on a container, the learner's is Never, and a holder
beside it keeps the pod from ending (native completion; KEP-5307). The record is the end of the
learner's container.

Elsewhere a wrapper around the command does the same. It is container start number 1, 2, 3 ... in
the life of one pod, counted in the pod's own emptyDir:

- start 1 runs the command and exits with its code: the exit record;
- even starts hold the pod, idle, so that the record stays readable in `lastState`;
- later odd starts (somebody killed the holder) tell the same record again.

So the record is what ended an odd start, and `restartCount` says which start that was. A command
that was killed before it could leave a code counts as failed; it is never run a second time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONTAINER = "learner"
HOLDER = "holder"
# Where kubelet reads the termination message: at most 4096 bytes.
RESULT_FILE = "/dev/termination-log"

WRAPPER = r"""
state=/job/learner
starts=0
[ -r "$state.starts" ] && read -r starts < "$state.starts"
starts=$((starts + 1))
echo "$starts" > "$state.starts"
if [ "$starts" -gt 1 ]; then
  if [ $((starts % 2)) -eq 1 ]; then
    code=137
    [ -r "$state.exit" ] && read -r code < "$state.exit"
    [ -r "$state.result" ] && printf '%s' "$(< "$state.result")" > "$LEARNER_RESULT_FILE"
    exit "$code"
  fi
  trap 'exit 0' TERM INT
  while :; do sleep 3600 & wait "$!"; done
fi
export LEARNER_ID=$((LEARNER_ORDINAL + 1))
for dir in "$RESULT_DIR" "$CHECKPOINT_DIR"; do
  [ -z "$dir" ] || [ -d "$dir" ] || mkdir -p "$dir"
done
resolves() {
  if command -v getent; then getent hosts "$1"
  elif command -v python3; then python3 -c "import socket; socket.gethostbyname('$1')"
  elif command -v nslookup; then
    # Some do not look into the search domains by themselves.
    while read -r key domains; do
      [ "$key" = search ] || continue
      for domain in $domains; do nslookup "$1.$domain" && return; done
    done < /etc/resolv.conf
    return 1
  fi > /dev/null 2>&1
}
if [ "$NUM_LEARNERS" -gt 1 ]; then
  until resolves "$FIRST_LEARNER"; do
    if [ "$SECONDS" -ge 60 ]; then
      echo "learner: $FIRST_LEARNER does not resolve after 60 s; starting all the same" >&2
      break
    fi
    sleep 0.2
  done
fi
set -m # a process group of its own, so that a signal reaches all of it
bash -c "$TRAINING_COMMAND" < /dev/null &
child=$!
set +m
trap 'kill -TERM -- "-$child"; stopped=1' TERM INT
{ # without the shell's own words about jobs that were killed
  wait "$child"; code=$?
  if [ -n "${stopped-}" ]; then
    wait "$child"; code=$?
    while kill -0 -- "-$child"; do sleep 0.1; done
  fi
} 2> /dev/null
echo "$code" > "$state.exit"
printf '%s' "$(< "$LEARNER_RESULT_FILE")" > "$state.result"
exit "$code"
"""

HOLDER_SCRIPT = """trap 'exit 0' TERM INT; while :; do sleep 3600 & wait "$!"; done"""


@dataclass(frozen=True)
class ExitRecord:
    """How a learner's command ended.

    :param exit_code: 0 to 255.
    :param reason: the runtime's own word: "Completed", "Error", "OOMKilled", "StartError" ...
    :param message: what the learner wrote to its result file, or the last of its log on failure.
    :param started: RFC 3339 time.
    :param finished: RFC 3339 time.
    """

    exit_code: int
    reason: str
    message: str
    started: str | None
    finished: str | None


def escape_expansion(text: str) -> str:
    """Let a value reach the container as it is: kubelet would expand `$(NAME)` and halve `$$`.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def parse_exit_record(container_status: Mapping[str, Any]) -> ExitRecord | None:
    """Read the exit record from a container status (JSON); None while there is none."""
    restarts = container_status.get("restartCount", 0)
    current = container_status.get("state", {}).get("terminated")
    # restartCount 0 is start 1: even counts are odd starts, which end with the record.
    state = (
        current if restarts % 2 == 0 else container_status.get("lastState", {}).get("terminated")
    )
    if not state:
        return None
    return ExitRecord(
        exit_code=state["exitCode"],
        reason=state.get("reason", ""),
        message=state.get("message", ""),
        started=state.get("startedAt"),
        finished=state.get("finishedAt"),
    )
