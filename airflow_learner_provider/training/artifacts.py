"""Artifacts: files of the results that a task names, told with their sizes and checksums.

What is in the results' store only the learners see, so the wrapper around the command looks, when
the command has ended well. Its list follows the result in the termination message, of which
Kubernetes keeps little:

    result RS sha256 SP size SP name LF ... - SP pattern-without-a-file LF ... RS

RS is the record separator of ASCII. Without the second one the list was cut.

Every learner tells what it sees. Where all have one store they tell the same; where each has its
own copy of a bucket they tell each its part. So a pattern is without a file when none has one, and
of a file that two know the list of the learner that ended last holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from airflow_learner_provider.training.naming import RESULTS_URI

PATTERNS = "LEARNER_ARTIFACTS"
SEPARATOR = "\x1e"

# Needs `state`, the beginning of a name for files of the wrapper's own.
LIST_ARTIFACTS = r"""
list_artifacts() ( # to stdout: what is told of $LEARNER_ARTIFACTS, one pattern a line
  cd "$RESULT_DIR" || exit
  shopt -s nullglob globstar
  declare -A told
  IFS= # a pattern with spaces is one
  while read -r pattern; do
    found=
    for file in $pattern; do
      [ -f "$file" ] || continue
      # Symbolic links are not copied to a bucket.
      [ -n "$RESULT_BUCKET_URL" ] && [ -L "$file" ] && continue
      found=1
      [ -z "${told[$file]}" ] || continue
      told[$file]=1
      sum=$(sha256sum < "$file")
      echo "${sum%% *} $(wc -c < "$file") $file"
    done
    [ -n "$found" ] || echo "- $pattern"
  done <<< "$LEARNER_ARTIFACTS"
)
tell_artifacts() { # behind the result, if Kubernetes keeps so much
  if [ $(($(wc -c < "$LEARNER_RESULT_FILE") + $(wc -c < "$state.artifacts") + 2)) -le 4096 ]; then
    printf '\036%s\n\036' "$(< "$state.artifacts")"
  else
    printf '\036'
  fi >> "$LEARNER_RESULT_FILE"
}
if [ -n "$LEARNER_ARTIFACTS" ] && ! command -v sha256sum > /dev/null; then
  echo "learner: artifacts need sha256sum in the image" >&2
  exit 127
fi
"""


@dataclass(frozen=True)
class Artifact:
    """A file of the results.

    :param name: path in the directory of the training's results.
    :param size: in bytes.
    :param sha256: 64 hexadecimal digits.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Listing:
    """What one learner told.

    :param unmatched: patterns for which it saw no file.
    :param is_whole: whether all of it arrived.
    """

    artifacts: tuple[Artifact, ...] = ()
    unmatched: tuple[str, ...] = ()
    is_whole: bool = True


def split_message(message: str) -> tuple[str, Listing | None]:
    """Part a learner's termination message into its result and its list, if it told one."""
    result, separator, rest = message.partition(SEPARATOR)
    if not separator:
        return result, None
    if not rest.endswith(SEPARATOR):
        return result, Listing(is_whole=False)
    artifacts, unmatched = [], []
    for line in rest.removesuffix(SEPARATOR).strip("\n").split("\n"):
        if line.startswith("- "):
            unmatched.append(line.removeprefix("- "))
        elif line:
            sha256, size, name = line.split(" ", 2)
            artifacts.append(Artifact(name, int(size), sha256))
    return result, Listing(tuple(artifacts), tuple(unmatched))


def explain_missing(listings: Iterable[Listing]) -> str | None:
    """Say what is not told that was asked for; None when all is there.

    :param listings: of learners that all ended well.
    """
    listings = list(listings)
    if not all(listing.is_whole for listing in listings):
        return (
            "the list of artifacts is longer than what Kubernetes keeps of a learner's end, "
            "together with its result"
        )
    missing = [
        pattern
        for pattern in (listings[0].unmatched if listings else ())
        if all(pattern in listing.unmatched for listing in listings)
    ]
    if not missing:
        return None
    return f"the results have no file {', '.join(map(repr, missing))}, which artifacts= names"


def merge_artifacts(listings: Iterable[Listing], *, results_uri: str) -> list[dict[str, Any]]:
    """One row a file, by name, with its URI.

    :param listings: in the order in which the learners ended.
    :param results_uri: of the directory of the training's results.
    """
    artifacts = {each.name: each for listing in listings for each in listing.artifacts}
    return [
        asdict(artifact) | {"uri": f"{results_uri}/{_quote(name)}"}
        for name, artifact in sorted(artifacts.items())
    ]


def build_store_uri(store: Mapping[str, Any], *, namespace: str, path: str) -> str:
    """Name a directory in a store, wherever it is.

    :param store: fields of the store.
    :param namespace: of the learners, and so of a claim.
    :param path: of the directory in the store.
    """
    roots = {
        "host_mount": "file://{host_path}",
        "mount_volume": "pvc://{namespace}/{claim}",
        "mount_cos": "s3://{bucket}",
        "s3_datastore": "s3://{bucket}",
    }
    root = roots[store["type"]].format_map({**store, "namespace": namespace})
    parts = [root.rstrip("/"), *(part.strip("/") for part in (store["sub_path"], path))]
    scheme, _, rest = "/".join(part for part in parts if part).partition("://")
    return f"{scheme}://{_quote(rest)}"


def read_results_uri(stateful_set: Mapping[str, Any] | None) -> str:
    """Read where a training's results are from its StatefulSet; empty when it has no artifacts."""
    metadata = (stateful_set or {}).get("metadata", {})
    uri: str = (metadata.get("annotations") or {}).get(RESULTS_URI, "")
    return uri


def list_artifact_events(outcome: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What an outcome says about assets: the URI of each artifact, and the extra of its event."""
    rows: Sequence[Mapping[str, Any]] = outcome.get("artifacts") or ()
    return [(row["uri"], {key: row[key] for key in ("name", "size", "sha256")}) for row in rows]


def _quote(path: str) -> str:
    """Keep a path in a URI one: what would begin a query or a fragment is written as %xx."""
    return quote(path, safe="/=@:+,~!$&'()*;")
