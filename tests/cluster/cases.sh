# What tools/e2e does on the cluster, and has to see there; sourced by it.

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# The processes of that name in containers of the node.
processes_of() {
  local mount id
  mount=$(cgroup_mounts | grep -E '/pids$|/cgroup$|/unified$' | head -n 1)
  find "$mount/lockstep-$1" -name cgroup.procs -exec cat {} + | sort -u | while read -r id; do
    [ "$(cat "/proc/$id/comm" 2>/dev/null)" != "$2" ] || echo "$id"
  done
}

pods_of() {
  "$kubectl" get pods -l "lockstep.dev/job-name=$1" --sort-by=.metadata.name \
    -o "jsonpath={range .items[*]}$2{\" \"}{end}"
}

# await_step JOB NUMBER: until it has done more steps than that.
await_step() {
  local found
  for _ in $(seq 600); do
    found=$(field "$1" .status.progress.step)
    [ "${found:-0}" -le "$2" ] || return 0
    [ "$(field "$1" .status.state)" != Failed ] || fails "$1 failed"
    sleep 0.2
  done
  fails "$1: no step after $2"
}

# A Prometheus as Debian has it scrapes controller and agents where the chart's monitors would have it.
start_prometheus() {
  local targets port each
  port=$(free_ports 1)
  targets=$(for each in $(pods_of kjv-gpt '{.status.podIP}:29400') \
    $("$kubectl" -n "$system" get pods -o 'jsonpath={range .items[*]}{.status.podIP}:8080{" "}{end}'); do
    echo "\"$each\","
  done)
  cat >build/e2e-prometheus.yaml <<YAML
global: {scrape_interval: 2s}
scrape_configs:
- job_name: lockstep
  honor_labels: true
  static_configs: [{targets: [$targets]}]
YAML
  rm -rf build/e2e-prometheus
  prometheus --config.file build/e2e-prometheus.yaml --storage.tsdb.path build/e2e-prometheus \
    --web.listen-address "127.0.0.1:$port" >build/e2e-prometheus.log 2>&1 </dev/null &
  prometheus_id=$!
  prometheus_url=http://127.0.0.1:$port
  for _ in $(seq 150); do
    ! curl -fsS -o /dev/null "$prometheus_url/-/ready" 2>/dev/null || return 0
    sleep 0.2
  done
  fails "Prometheus did not become ready: build/e2e-prometheus.log"
}

say "what the controller may do"
account=system:serviceaccount:$system:lockstep-controller
for verb in get list watch update patch delete; do
  [ "$("$kubectl" auth can-i "$verb" secrets --as "$account" --all-namespaces 2>/dev/null)" = no ] ||
    fails "the controller may $verb secrets"
done
passed=1

say "a job on two nodes"
bible gen1:1-rev22:21 >build/e2e-kjv.txt
truncate -s 400000 build/e2e-kjv.txt
"$kubectl" create configmap kjv --from-file=kjv.txt=build/e2e-kjv.txt >/dev/null
began=$(milliseconds)
"$kubectl" apply -f tests/cluster/kjv-gpt.yaml >/dev/null
await_step kjv-gpt 0
say "first step seen $(($(milliseconds) - began)) ms after kubectl apply"
used=$(pods_of kjv-gpt '{.spec.nodeName}')
[ "$(tr ' ' '\n' <<<"$used" | sed '/^$/d' | sort -u | wc -l)" = 2 ] || fails "expected two nodes, found $used"
"$kubectl" get trainingjobs
passed=$((passed + 1))

say "dashboard and alerts on a Prometheus that scrapes it"
start_prometheus
python3 tests/cluster/panels.py "$prometheus_url" default kjv-gpt || failed=1
kill "$prometheus_id"
[ "${failed:-0}" = 0 ] || fails "panels of the dashboard show nothing"
passed=$((passed + 1))

say "a worker is killed: the next round, in the same pods"
before=$(pods_of kjv-gpt '{.metadata.uid}')
step=$(field kjv-gpt .status.progress.step)
worker=$(processes_of node-1 lockstep-worker | head -n 1)
[ -n "$worker" ] || fails "no lockstep-worker runs on node-1"
began=$(milliseconds)
kill -9 "$worker"
await_field kjv-gpt .status.round 2
await_field kjv-gpt .status.state Running
say "running again $(($(milliseconds) - began)) ms after the kill; $(field kjv-gpt .status.lastFailure)"
[ "$(pods_of kjv-gpt '{.metadata.uid}')" = "$before" ] || fails "expected the same pods"
passed=$((passed + 1))

say "a pod is deleted: only that pod is made anew"
began=$(milliseconds)
"$kubectl" delete pod kjv-gpt-worker-1-1 --wait=false >/dev/null
await_field kjv-gpt .status.round 3
await_field kjv-gpt .status.state Running
say "running again $(($(milliseconds) - began)) ms after the deletion"
after=$(pods_of kjv-gpt '{.metadata.uid}')
[ "${after%% *}" = "${before%% *}" ] || fails "the other pod was replaced as well"
passed=$((passed + 1))

say "the leader is killed: the other replica takes over"
leader=$("$kubectl" -n "$system" get lease lockstep-controller -o 'jsonpath={.spec.holderIdentity}')
"$kubectl" -n "$system" delete pod "${leader%%_*}" --grace-period=0 --force >/dev/null 2>&1
"$kubectl" wait --for=condition=Complete trainingjob/kjv-gpt --timeout=300s >/dev/null || fails "not complete"
next=$("$kubectl" -n "$system" get lease lockstep-controller -o 'jsonpath={.spec.holderIdentity}')
[ "$leader" != "$next" ] || fails "$leader still leads"
[ "$(field kjv-gpt .status.restarts)" = 2 ] || fails "expected 2 restarts, found $(field kjv-gpt .status.restarts)"
[ "$(field kjv-gpt .status.progress.step)" = 3000 ] || fails "expected step 3000"
"$kubectl" get trainingjobs
passed=$((passed + 1))
echo "$passed passed, 0 failed"
