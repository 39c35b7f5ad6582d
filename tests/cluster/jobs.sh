# Cases of tools/e2e about jobs without faults.

case_train() {
  say "a job on two nodes trains to completion, and kubectl get -w shows it"
  local began watch used steps
  began=$(milliseconds)
  job trains 's/steps: 3000/steps: 2500/'
  "$kubectl" get trainingjob trains -w >build/e2e-watch.log 2>&1 &
  watch=$!
  await_step trains 0
  say "first step seen $(($(milliseconds) - began)) ms after kubectl apply"
  used=$(pods_of trains '{.spec.nodeName}')
  [ "$(tr ' ' '\n' <<<"$used" | sed '/^$/d' | sort -u | wc -l)" = 2 ] || fails "expected two nodes, found $used"
  "$kubectl" logs trains-worker-0-1 | grep -c training >/dev/null || fails "expected training in kubectl logs"
  await_complete trains
  eventually "expected kubectl get -w to show Complete" grep -q Complete build/e2e-watch.log
  kill "$watch"
  steps=$(awk '$2 == "Running" { print $4 }' build/e2e-watch.log | sort -u | wc -l)
  [ "$steps" -gt 5 ] || fails "kubectl get -w showed $steps different steps: build/e2e-watch.log"
  [ "$(field trains .status.progress.step)" = 2500 ] || fails "expected step 2500"
  [ "$(field trains .status.restarts)" = 0 ] || fails "expected no restarts"
  "$kubectl" get trainingjob trains
  forget trains
}

case_example() {
  say "the cluster examples complete unchanged"
  "$kubectl" apply -f examples/cluster/first.yaml >/dev/null
  await_complete first
  forget first
  empty_volume
  "$kubectl" apply -f examples/cluster/checkpoints.yaml -f examples/cluster/kjv-gpt.yaml >/dev/null
  await_complete kjv-gpt
  "$kubectl" get trainingjob kjv-gpt
  [ -n "$(find "$state/volume" -name '*.safetensors' | head -n 1)" ] || fails "expected a checkpoint on the volume"
  forget kjv-gpt
}

start_prometheus() {
  local port
  port=$(free_ports 1)
  "$kubectl" get pods --all-namespaces -o json | python3 tests/cluster/scrape_config.py >build/e2e-prometheus.yaml
  rm -rf build/e2e-prometheus
  prometheus --config.file build/e2e-prometheus.yaml --storage.tsdb.path build/e2e-prometheus \
    --web.listen-address "127.0.0.1:$port" >build/e2e-prometheus.log 2>&1 </dev/null &
  prometheus=$!
  prometheus_url=http://127.0.0.1:$port
  eventually "Prometheus did not become ready: build/e2e-prometheus.log" \
    curl -fsS -o /dev/null "$prometheus_url/-/ready" 2>/dev/null
}

case_dashboard() {
  say "the dashboard and the alerts work on a Prometheus that scrapes a job"
  local status=0
  job seen "$endless"
  await_step seen 0
  kill -9 "$(processes_of node-1 lockstep-worker | head -n 1)"
  await_field seen .status.round 2
  await_step seen "$(field seen .status.progress.step)"
  start_prometheus
  python3 tests/cluster/panels.py "$prometheus_url" default seen || status=1
  kill "$prometheus"
  [ "$status" = 0 ] || fails "some panels of the dashboard show no data"
  forget seen
}

case_fails() {
  say "a job that can't succeed fails with a reason, and is deleted after its ttl"
  local message
  job fails 's/kjv.txt/missing.txt/' '/^  checkpoint/i\  failure: {maxRestarts: 0}'
  "$kubectl" wait --for=condition=Failed trainingjob/fails --timeout=60s >/dev/null || fails "expected the job to fail"
  message=$(field fails '.status.conditions[?(@.type=="Failed")].message')
  for word in 'exit code' 'the end of its log:' /data/missing.txt; do
    grep -qF "$word" <<<"$message" || fails "expected $word in the condition, found $message"
  done
  "$kubectl" patch trainingjob fails --type=merge -p '{"spec":{"ttlSecondsAfterFinished":1}}' >/dev/null
  # Kubelets before 1.22 keep the job's pods for up to a minute, and the job is deleted after them.
  "$kubectl" wait --for=delete trainingjob/fails --timeout=150s >/dev/null || fails "expected the job to be deleted after its ttl"
}

says_image() { field nowhere '.status.conditions[*].message' | grep -q registry.invalid/none:1; }

case_no_image() {
  say "a job whose image can't be pulled names the image in a condition"
  job nowhere '/^  checkpoint/i\  image: registry.invalid/none:1'
  eventually "expected the image in a condition" says_image
  forget nowhere
}

case_suspend() {
  say "suspend ends the pods; resume continues from the checkpoint on the volume"
  local step
  job pauses "$endless"
  await_step pauses 200
  "$kubectl" patch trainingjob pauses --type=merge -p '{"spec":{"suspend":true}}' >/dev/null
  await_field pauses .status.state Suspended
  eventually "pauses: expected all pods to end" no_pods pauses
  step=$(field pauses .status.lastCheckpoint.step)
  [ "${step:-0}" -ge 200 ] || fails "expected a checkpoint of step 200 or later, found ${step:-none}"
  "$kubectl" patch trainingjob pauses --type=merge -p '{"spec":{"suspend":false}}' >/dev/null
  await_field pauses .status.state Running
  "$kubectl" wait --for=condition=Ready pod -l lockstep.dev/job-name=pauses --timeout=60s >/dev/null
  eventually "expected to resume from step $step or later" resumed_at pauses "$step"
  forget pauses
}

# Kubelets before 1.22 remove a pod when they collect its containers, once a minute.
no_pods() { [ -z "$(pods_of "$1" '{.metadata.name}')" ]; }

# resumed_at JOB STEP: succeeds if the first worker's last message about a checkpoint names that
# step or a later one.
resumed_at() {
  local name found
  name=$("$kubectl" get pods -l "lockstep.dev/job-name=$1,lockstep.dev/node-index=0" -o 'jsonpath={.items[-1:].metadata.name}')
  found=$("$kubectl" logs "$name" 2>/dev/null | sed -n 's/.*resuming.* step=\([0-9]*\).*/\1/p' | tail -n 1)
  [ "${found:-0}" -ge "$2" ]
}

case_one_port() {
  say "two jobs run at the same time with the same port number"
  local name
  for name in left right; do job "$name" "$endless"; done
  for name in left right; do await_step "$name" 0; done
  [ "$(field left .status.rendezvous.port)" = "$(field right .status.rendezvous.port)" ] || fails "expected the same port"
  [ "$(pods_of left '{.spec.nodeName}' | tr ' ' '\n' | sort)" = "$(pods_of right '{.spec.nodeName}' | tr ' ' '\n' | sort)" ] ||
    fails "expected the same nodes"
  for name in left right left right; do await_step "$name" "$(field "$name" .status.progress.step)"; done
  for name in left right; do
    [ "$(field "$name" .status.round)" = 1 ] || fails "$name: expected round 1, found $(field "$name" .status.round)"
  done
  forget left right
}

waits_for_room() {
  "$kubectl" get pods -o 'jsonpath={range .items[*]}{.metadata.name} {.status.conditions[*].reason}{"\n"}{end}' |
    grep -c '^queue-.*Unschedulable' >/dev/null
}

case_queue() {
  say "20 small jobs, of which only a few fit at a time"
  local names began cores
  mapfile -t names < <(printf 'queue-%s\n' {1..20})
  # Each job requests two fifths of a node, so that four run at the same time.
  cores=$("$kubectl" get node node-1 -o 'jsonpath={.status.allocatable.cpu}')
  began=$(milliseconds)
  for name in "${names[@]}"; do
    job "$name" "$one_node" 's/steps: 3000/steps: 20/' "s/- name: node/&\n        resources: {requests: {cpu: $((cores * 400))m}}/"
  done
  eventually "expected some jobs to wait for room" waits_for_room
  await_complete "${names[@]}"
  say "20 jobs complete $(($(milliseconds) - began)) ms after the first kubectl apply"
  forget "${names[@]}"
}

# policies_of JOB [JSONPATH]: prints its NetworkPolicies, or this part of them.
policies_of() { "$kubectl" get networkpolicies -l "lockstep.dev/job-name=$1" -o "jsonpath={.items[*]${2:-.metadata.name}}"; }
has_policy() { [ "$(policies_of "$1" ".spec.ingress[*].ports[*].port")" = 29400 ]; }
has_no_policy() { [ -z "$(policies_of "$1")" ]; }

case_network_policy() {
  say "a job's NetworkPolicy is made, restored and deleted, without a new round"
  local name
  job closed "$endless"
  await_step closed 0
  has_policy closed || fails "expected a NetworkPolicy, found: $(policies_of closed .spec)"
  name=$(policies_of closed)
  "$kubectl" delete networkpolicy "$name" >/dev/null
  eventually "expected the controller to recreate the NetworkPolicy" has_policy closed
  "$kubectl" patch networkpolicy "$name" --type=merge -p '{"spec": {"ingress": []}}' >/dev/null
  eventually "expected the controller to restore the NetworkPolicy" has_policy closed
  "$kubectl" patch trainingjob closed --type=merge -p '{"spec": {"security": {"networkPolicy": "none"}}}' >/dev/null
  eventually "expected the controller to delete the NetworkPolicy" has_no_policy closed
  [ "$(field closed .status.round)" = 1 ] || fails "expected round 1, found $(field closed .status.round)"
  forget closed
}

case_delete() {
  say "deleting a running job leaves no objects behind"
  job deleted "$endless"
  await_step deleted 0
  forget deleted
  eventually "expected all pods, secrets and NetworkPolicies to be deleted" nothing_left deleted
}

nothing_left() { [ -z "$("$kubectl" get pods,secrets,networkpolicies -l "lockstep.dev/job-name=$1" -o name)" ]; }
