"""The end of a learner: how it leaves an exit record, and how the record is read.

A StatefulSet restarts whatever exits, so "the container ended" does not mean "the training ended".

Where the API server keeps a `restartPolicy` on a container, the learner's is Never, and a holder
beside it keeps the pod from ending (native completion; KEP-5307). The record is the end of the
learner's container.

Elsewhere a wrapper around the command does the same. It is container start number 1, 2, 3 ... in
the life of one pod, counted in the pod's own emptyDir:

- start 1 runs the command and exits with its code: the exit record;
- even starts hold the pod, idle, so that the record stays readable in `lastState`, and write it to
  their log: kubelet's garbage collection (seen in 1.34) can remove the container that ended before
  the status has told of it;
- later odd starts (somebody killed the holder) tell the same record again.

So the record is what ended an odd start, and `restartCount` says which start that was. A command
that was killed before it could leave a code counts as failed; it is never run a second time.
Results that are copied to a bucket are copied before the record is made: it speaks of both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_learner_provider.training.artifacts import LIST_ARTIFACTS, Listing, split_message
from airflow_learner_provider.training.checkpoints import FIND_CHECKPOINT

CONTAINER = "learner"
HOLDER = "holder"
# Where kubelet reads the termination message: at most 4096 bytes.
RESULT_FILE = "/dev/termination-log"

WRAPPER = (
    r"""
state=/job/learner
starts=0
[ -r "$state.starts" ] && read -r starts < "$state.starts"
starts=$((starts + 1))
echo "$starts" > "$state.starts"
if [ "$starts" -gt 1 ]; then
  echo killed > "$state.ended"
  code=137 result=
  [ -r "$state.exit" ] && read -r code < "$state.exit"
  [ -r "$state.result" ] && result=$(< "$state.result")
  if [ $((starts % 2)) -eq 1 ]; then
    printf '%s' "$result" > "$LEARNER_RESULT_FILE"
    exit "$code"
  fi
  printf 'learner: exit code %s\n%s\n' "$code" "$result"
  trap 'exit 0' TERM INT
  while :; do sleep 3600 & wait "$!"; done
fi
trap "exit 143" TERM INT # nothing has begun that would have to end
export LEARNER_ID=$((LEARNER_ORDINAL + 1))
for dir in "$RESULT_DIR" "$CHECKPOINT_DIR"; do
  [ -z "$dir" ] || [ -d "$dir" ] || mkdir -p "$dir"
done
"""
    + LIST_ARTIFACTS
    + FIND_CHECKPOINT
    + r"""
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
bash -c "${LAUNCH_COMMAND:-$TRAINING_COMMAND}" < /dev/null &
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
echo "$code" > "$state.ended"
if [ "$code" -eq 0 ] && [ -n "$LEARNER_ARTIFACTS" ]; then
  list_artifacts > "$state.artifacts"
fi
if [ -n "$RESULT_BUCKET_URL" ]; then # the container `upload` copies the results to it
  trap '' TERM INT
  until [ -r /job/upload.exit ]; do sleep 0.2; done
  read -r uploaded < /job/upload.exit
  if [ "$code" -eq 0 ] && [ "$uploaded" -ne 0 ]; then
    code=74 # EX_IOERR of sysexits.h
    printf '%s' "$(< /job/upload.error)" > "$LEARNER_RESULT_FILE"
  fi
fi
[ "$code" -ne 0 ] || [ ! -r "$state.artifacts" ] || tell_artifacts
echo "$code" > "$state.exit"
printf '%s' "$(< "$LEARNER_RESULT_FILE")" > "$state.result"
exit "$code"
"""
)

HOLDER_SCRIPT = """trap 'exit 0' TERM INT; while :; do sleep 3600 & wait "$!"; done"""
# Reasons of a container that never ran.
START_ERRORS = frozenset({"StartError", "ContainerCannotRun"})
_HELD_RECORD = re.compile(r"learner: exit code (\d{1,3})")


@dataclass(frozen=True)
class ExitRecord:
    """How a learner's command ended.

    :param exit_code: 0 to 255.
    :param reason: the runtime's own word: "Completed", "Error", "OOMKilled", "StartError" ...
    :param message: what the learner wrote to its result file, or the last of its log on failure.
    :param listing: what it told of the artifacts, when there are to be some.
    :param started: RFC 3339 time.
    :param finished: RFC 3339 time.
    :param held: whether the container was started again afterwards, so the pod lived on.
    :param cut_short: whether the pod was being ended by then, so that the record proves nothing:
        a learner that handles SIGTERM politely exits with 0 (kubernetes/kubernetes#118310).
    """

    exit_code: int
    reason: str
    message: str
    started: str | None
    finished: str | None
    held: bool = False
    cut_short: bool = False
    listing: Listing | None = None


def escape_expansion(text: str) -> str:
    """Let a value reach the container as it is: kubelet would expand `$(NAME)` and halve `$$`.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def parse_exit_record(container_status: Mapping[str, Any]) -> ExitRecord | None:
    """Read the exit record from a container status (JSON); None while there is none to be seen.

    `state` is about the newest start, number `restartCount` + 1, and `lastState` about the one
    before. While a container waits for its next start, `lastState` is about the newest.
    """
    newest = container_status.get("restartCount", 0) + 1
    state = container_status.get("state", {})
    last = container_status.get("lastState", {}).get("terminated")
    ends = {newest: last} if "waiting" in state else {newest: state.get("terminated")}
    ends.setdefault(newest - 1, None if "waiting" in state else last)
    for start, end in ends.items():
        # What could not be started counted no start.
        if end and (start % 2 == 1 or end.get("reason") in START_ERRORS):
            message, listing = split_message(end.get("message", ""))
            return ExitRecord(
                exit_code=end["exitCode"],
                reason=end.get("reason", ""),
                message=message,
                started=_known_time(end.get("startedAt")),
                finished=_known_time(end.get("finishedAt")),
                held=start > 1 or newest > start,
                listing=listing,
            )
    return None


def is_record_lost(container_status: Mapping[str, Any]) -> bool:
    """Tell whether the status (JSON) has only the holder left, and not how the learner ended."""
    is_held = "running" in container_status.get("state", {})
    starts = container_status.get("restartCount", 0) + 1
    return is_held and starts % 2 == 0 and parse_exit_record(container_status) is None


def parse_held_log(lines: Sequence[str], container_status: Mapping[str, Any]) -> ExitRecord | None:
    """Read the exit record from the log of an even start; None while it is not whole.

    :param lines: of the log, without line ends.
    :param container_status: of this start (JSON): it began after the learner had ended.
    """
    told = _HELD_RECORD.fullmatch(lines[0]) if lines else None
    if told is None or len(lines) == 1:
        return None
    message, listing = split_message("\n".join(lines[1:]))
    code = int(told[1])
    return ExitRecord(
        exit_code=code,
        reason="Error" if code else "Completed",
        message=message,
        started=None,
        finished=container_status["state"]["running"].get("startedAt"),
        held=True,
        listing=listing,
    )


def _known_time(time: str | None) -> str | None:
    """None for the time that a runtime gives when it knows none."""
    return None if time is None or time.startswith(("0001-", "1970-")) else time
