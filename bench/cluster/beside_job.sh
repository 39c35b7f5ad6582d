# Measurements, as cases of tools/e2e that run only when named: a TrainingJob compared with a plain
# Job that runs torchrun. Both run the same program (examples/ddp.py, 2 pods of 2 ranks) on the same
# cluster. They measure the time to the next step:
#   tools/e2e beside_job          after apply, a killed rank and a deleted pod; the two take turns
#   tools/e2e beside_job_loses_lockstep, tools/e2e beside_job_loses_plain
#                                 after a lost node, each on its own cluster
# A step counts once its line is in the program's log, by the container runtime's time stamp.

turns=${LOCKSTEP_TURNS:-3}

# start_measured lockstep|plain INTERVAL: starts an endless job; INTERVAL is torchrun's monitor
# interval.
start_measured() {
  empty_volume
  if [ "$1" = plain ]; then
    sed "s/INTERVAL/$2/" bench/cluster/plain-job.yaml
  else
    sed -e 's/torch-ddp/measured/' -e 's/--steps, "300", --every, "20"/--steps, "1000000", --every, "1"/' \
      tests/cluster/torch-ddp.yaml
  fi | "$kubectl" apply -f - >/dev/null
}

end_measured() {
  if [ "$1" = plain ]; then "$kubectl" delete job plain --timeout=90s >/dev/null; else forget measured; fi
  eventually "pods are left" none_measured "$1"
}

selector_of() { if [ "$1" = plain ]; then echo bench=plain; else echo lockstep.dev/job-name=measured; fi; }

none_measured() { [ -z "$("$kubectl" get pods -l "$(selector_of "$1")" -o name)" ]; }

# time_stamp MILLISECONDS: prints it in the format of the logs.
time_stamp() { date -u -d "@$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" +%Y-%m-%dT%H:%M:%S.%3N; }

# step_after KIND BEGAN: prints two time stamps, of the first step by ranks that started after
# BEGAN, and of when those ranks started. Prints nothing if there is no such step yet.
step_after() {
  local pod since
  since=$(time_stamp "$2")
  for pod in $("$kubectl" get pods -l "$(selector_of "$1")" -o 'jsonpath={.items[*].metadata.name}'); do
    "$kubectl" logs "$pod" --timestamps --since-time="${since%.*}Z" 2>/dev/null |
      awk -v since="$since" '$1 >= since && /ranks begin after step/ { begun = $1 }
        begun && /step [0-9]+ loss/ { print $1, begun; exit }' || true
  done | sort | head -n 1
}

# pods_started KIND: prints when its newest container started; kubelets report whole seconds.
pods_started() {
  "$kubectl" get pods -l "$(selector_of "$1")" \
    -o 'jsonpath={range .items[*].status.containerStatuses[*]}{.state.running.startedAt}{"\n"}{end}' | sort | tail -n 1
}

# since BEGAN TIME_STAMP: prints the milliseconds between the two; 0 if TIME_STAMP is earlier.
since() {
  local passed=$(($(date -d "$2" +%s%3N) - $1))
  echo $((passed > 0 ? passed : 0))
}

# measure KIND INTERVAL BEGAN CAUSE: waits for the next step. Prints the time until all containers
# had started, until all ranks had met, and until they had done a step.
measure() {
  local found
  for _ in $(seq 3000); do
    found=$(step_after "$1" "$3")
    if [ -n "$found" ]; then
      echo "measured: $1 $2 $4 $(since "$3" "${found% *}") ms, of it until containers began" \
        "$(since "$3" "$(pods_started "$1")"), until ranks had met $(since "$3" "${found#* }")"
      return
    fi
    sleep 0.2
  done
  fails "$1: no step after $4"
}

# second_pod KIND: prints a pod that is not the first one, which hosts the plain Job's rendezvous.
second_pod() {
  if [ "$1" = lockstep ]; then
    "$kubectl" get pods -l "$(selector_of "$1"),lockstep.dev/node-index=1" -o 'jsonpath={.items[-1:].metadata.name}'
  else
    "$kubectl" get pods -l "$(selector_of "$1")" -o 'jsonpath={range .items[*]}{.status.podIP} {.metadata.name}{"\n"}{end}' |
      grep -v "^$(cat "$state/volume/address") " | tail -n 1 | cut -d' ' -f2
  fi
}

node_of() { "$kubectl" get pod "$1" -o 'jsonpath={.spec.nodeName}'; }

# rank_on NODE: prints the process id of a rank of the program on that node.
rank_on() {
  local id
  for id in $(processes_of "$1" python3); do
    ! tr '\0' ' ' <"/proc/$id/cmdline" | grep -q ' /ddp.py ' ||
      tr '\0' ' ' <"/proc/$id/cmdline" | grep -q torch.distributed.run || { echo "$id" && return; }
  done
}

one_turn() {
  local began
  began=$(milliseconds)
  start_measured "$1" "$2"
  measure "$1" "$2" "$began" apply
  sleep 3
  began=$(milliseconds)
  kill -9 "$(rank_on "$(node_of "$(second_pod "$1")")")"
  measure "$1" "$2" "$began" rank-killed
  sleep 3
  began=$(milliseconds)
  "$kubectl" delete pod "$(second_pod "$1")" --wait=false >/dev/null
  measure "$1" "$2" "$began" pod-deleted
  end_measured "$1"
}

case_beside_job() {
  say "a TrainingJob beside a plain Job with torchrun"
  local turn
  make_torch_image
  for turn in $(seq "$turns"); do
    one_turn lockstep -
    one_turn plain 5
    one_turn plain 0.1
  done
}

lose_node() {
  local began victim
  began=$(milliseconds)
  start_measured "$1" "$2"
  measure "$1" "$2" "$began" apply
  victim=$(node_of "$(second_pod "$1")")
  sleep 3
  began=$(milliseconds)
  tools/cluster stop-node "${victim#node-}"
  measure "$1" "$2" "$began" node-lost
}

case_beside_job_loses_lockstep() { make_torch_image && lose_node lockstep -; }
case_beside_job_loses_plain() { make_torch_image && lose_node plain 5; }
