# Functions for the cases of tools/e2e, which sources this file.

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# fails WORDS: prints what helps to find the cause, then exits.
fails() {
  {
    "$kubectl" get pods --all-namespaces -o wide
    "$kubectl" get trainingjobs -o yaml
    "$kubectl" get events --sort-by=.metadata.creationTimestamp | tail -n 20
    "$kubectl" -n "$system" logs deployment/lockstep-controller | tail -n 20
  } >&2 2>&1 || true
  echo "e2e: $*" >&2
  exit 1
}

# eventually WORDS COMMAND...: retries the command until it succeeds, for two minutes.
eventually() {
  local words=$1
  shift
  for _ in $(seq 600); do
    ! "$@" || return 0
    sleep 0.2
  done
  fails "$words"
}

field() { "$kubectl" get trainingjob "$1" -o "jsonpath={$2}"; }

# await_field JOB PATH VALUE: waits until the field has the value, for two minutes.
await_field() {
  local found=
  for _ in $(seq 600); do
    found=$(field "$1" "$2")
    [ "$found" != "$3" ] || return 0
    sleep 0.2
  done
  fails "$1: $2: expected $3, found $found"
}

# await_step JOB NUMBER: waits until the job has done more steps than that, for two minutes.
await_step() {
  local found
  for _ in $(seq 600); do
    found=$(field "$1" .status.progress.step)
    [ "${found:-0}" -le "$2" ] || return 0
    [ "$(field "$1" .status.state)" != Failed ] || fails "$1 failed"
    sleep 0.2
  done
  fails "$1: expected a step after $2, found ${found:-none}"
}

# await_complete JOB...
await_complete() {
  "$kubectl" wait --for=condition=Complete "${@/#/trainingjob/}" --timeout=300s >/dev/null || fails "expected these jobs to complete: $*"
}

# await_running_again JOB ROUND BEGAN CAUSE: waits until the job runs again in ROUND (empty: any),
# and prints the time since BEGAN.
await_running_again() {
  [ -z "$2" ] || await_field "$1" .status.round "$2"
  await_field "$1" .status.state Running
  await_step "$1" "$(field "$1" .status.progress.step)"
  [ -n "$(field "$1" .status.lastFailure.recovery)" ] || fails "expected the parts of the recovery in status.lastFailure"
  say "training again $(($(milliseconds) - $3)) ms after $4; seconds by part: $(field "$1" .status.lastFailure.recovery)"
}

# await_drained JOB ROUND BEGAN CAUSE: waits until the job runs again in ROUND after one of its pods was stopped and
# all ranks saved, which is no failure; prints the time since BEGAN.
await_drained() {
  await_field "$1" .status.round "$2"
  await_field "$1" .status.state Running
  await_step "$1" "$(field "$1" .status.progress.step)"
  await_field "$1" '.status.conditions[?(@.type=="Draining")].reason' Saved
  [ -z "$(field "$1" .status.lastFailure)" ] || fails "expected no failure, found $(field "$1" .status.lastFailure)"
  say "training again $(($(milliseconds) - $3)) ms after $4; lost: $(field "$1" .status.lost)"
}

# job NAME SED...: applies tests/cluster/kjv-gpt.yaml under another name, changed by the sed scripts, without
# checkpoints of an earlier job of that name.
job() {
  local scripts=() each
  for each in "${@:2}"; do scripts+=(-e "$each"); done
  rm -rf "${state:?}/volume/$1"
  sed -e "s/kjv-gpt/$1/" "${scripts[@]}" tests/cluster/kjv-gpt.yaml | "$kubectl" apply -f - >/dev/null
}

# Scripts for job().
endless='s/steps: 3000/steps: 1000000/'
one_node='s/^  nodes: 2/  nodes: 1/'
on_any_node='s/DoNotSchedule/ScheduleAnyway/'

# forget JOB...
forget() { "$kubectl" delete trainingjob "$@" --timeout=60s >/dev/null || fails "expected to delete within 60 s: $*"; }

empty_volume() { find "$state/volume" -mindepth 1 -delete; }

# pods_of JOB PATH: prints the field of each of the job's pods, sorted by the pods' names.
pods_of() {
  "$kubectl" get pods -l "lockstep.dev/job-name=$1" --sort-by=.metadata.name \
    -o "jsonpath={range .items[*]}$2{\" \"}{end}"
}

# processes_of NODE NAME: prints the IDs of the processes of that name in the node's containers.
processes_of() {
  local mount id
  mount=$(cgroup_mounts | grep -E '/pids$|/cgroup$|/unified$' | head -n 1)
  find "$mount/lockstep-$1" -name cgroup.procs -exec cat {} + | sort -u | while read -r id; do
    [ "$(cat "/proc/$id/comm" 2>/dev/null)" != "$2" ] || echo "$id"
  done
}
