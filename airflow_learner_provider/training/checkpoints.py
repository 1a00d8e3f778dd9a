"""Checkpoints: how a learner finds the one that an earlier try of its training has left.

A checkpoint is a folder in $CHECKPOINT_DIR with a `manifest.json` that was written last:

    {"step": 1200, "files": {"model.npz": {"size": 81245, "sha256": "9f86..."}, ...}}

It is complete when the manifest is whole and every file is as the manifest says. `sha256` may be
left out. What only the learner sees, the volume, only the learner can judge; so this is shell for
the wrapper around the command, and all it needs is bash and coreutils (or busybox).
"""

from __future__ import annotations

# Exports RESUME_FROM, the folder of the complete checkpoint with the highest step, and RESUME_STEP.
FIND_CHECKPOINT = r"""
explain_checkpoint() { # MANIFEST: prints what is wrong with a checkpoint; nothing when it is whole
  local text name size sum s='[[:space:]]*'
  local is="$s:$s" more="$s,$s"
  local hash="(${more}\"sha256\"$is\"([0-9a-f]{64})\")?"
  local file="\"([^\"/]+)\"$is\{$s\"size\"$is([0-9]+)$hash$s\}"
  local files="\{$s($file($more$file)*)?$s\}"
  text=$(< "$1")
  if ! [[ $text =~ ^$s\{$s\"step\"$is[0-9]+$more\"files\"$is$files$s\}$s$ ]]; then
    echo "manifest.json is not whole"
    return
  fi
  text=${text#*\"files\"}
  while [[ $text =~ $file ]]; do
    text=${text#*"${BASH_REMATCH[0]}"}
    name=${BASH_REMATCH[1]} size=${BASH_REMATCH[2]} sum=${BASH_REMATCH[4]}
    if ! [ -f "${1%/*}/$name" ]; then
      echo "$name is missing"
    elif [ "$(wc -c < "${1%/*}/$name")" -ne "$size" ]; then
      echo "$name does not have $size bytes"
    elif [ -n "$sum" ] && [ "$(sha256sum < "${1%/*}/$name")" != "$sum  -" ]; then
      echo "$name does not have its checksum"
    fi
  done
}
find_checkpoint() {
  local manifest step wrong i steps=()
  for manifest in "$CHECKPOINT_DIR"/*/manifest.json; do
    [ -f "$manifest" ] || continue
    [[ $(< "$manifest") =~ \"step\"[[:space:]]*:[[:space:]]*0*([0-9]+) ]] || continue
    steps[BASH_REMATCH[1]]=$manifest # an array's indices are in order
  done
  steps=("${steps[@]}")
  for ((i = ${#steps[@]} - 1; i >= 0; i--)); do
    manifest=${steps[i]}
    wrong=$(explain_checkpoint "$manifest")
    if [ -n "$wrong" ]; then
      echo "learner: passing over the checkpoint ${manifest%/*}: $wrong" >&2
      continue
    fi
    [[ $(< "$manifest") =~ [0-9]+ ]]
    export RESUME_FROM=${manifest%/*} RESUME_STEP=${BASH_REMATCH[0]}
    echo "learner: resuming from step $RESUME_STEP ($RESUME_FROM)"
    return
  done
}
[ -z "$CHECKPOINT_DIR" ] || find_checkpoint
"""
