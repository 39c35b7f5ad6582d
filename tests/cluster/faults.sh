# Cases of tools/e2e about jobs that are hit by faults.

case_worker_killed() {
  say "a worker is killed: the next round, in the same pods"
  local before worker began
  job hurt "$endless"
  await_step hurt 100
  before=$(pods_of hurt '{.metadata.uid}')
  worker=$(processes_of node-1 lockstep-worker | head -n 1)
  [ -n "$worker" ] || fails "expected a lockstep-worker on node-1, found none"
  began=$(milliseconds)
  kill -9 "$worker"
  await_running_again hurt 2 "$began" "the kill"
  [ "$(pods_of hurt '{.metadata.uid}')" = "$before" ] || fails "expected the same pods"
  forget hurt
}

is_labelled() {
  [ "$("$kubectl" get pod bare-worker-1-1 -o 'jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}')" = lockstep ]
}

case_label_lost() {
  say "a pod loses the label that the controller watches: the controller restores it"
  local before
  job bare "$endless"
  await_step bare 100
  before=$(pods_of bare '{.metadata.uid}')
  "$kubectl" label pod bare-worker-1-1 app.kubernetes.io/managed-by- >/dev/null
  eventually "expected the controller to restore the pod's label" is_labelled
  await_step bare "$(field bare .status.progress.step)"
  [ "$(pods_of bare '{.metadata.uid}')" = "$before" ] || fails "expected the same pods"
  forget bare
}

# of_first UIDS: prints the UID of node 0's pod.
of_first() { echo "${1%% *}"; }

case_pod_deleted() {
  say "a pod is deleted: only that pod is recreated"
  local before began
  job robbed "$endless"
  await_step robbed 100
  before=$(pods_of robbed '{.metadata.uid}')
  began=$(milliseconds)
  "$kubectl" delete pod robbed-worker-1-1 --wait=false >/dev/null
  await_drained robbed 2 "$began" "the deletion"
  [ "$(of_first "$(pods_of robbed '{.metadata.uid}')")" = "$(of_first "$before")" ] || fails "the other pod was replaced as well"
  forget robbed
}

case_evicted() {
  say "a pod is evicted by the API: only that pod is recreated"
  local before began
  job moved "$endless"
  await_step moved 100
  before=$(pods_of moved '{.metadata.uid}')
  began=$(milliseconds)
  echo '{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"moved-worker-1-1","namespace":"default"}}' |
    "$kubectl" create --raw /api/v1/namespaces/default/pods/moved-worker-1-1/eviction -f - >/dev/null ||
    fails "the eviction was refused"
  await_drained moved 2 "$began" "the eviction"
  [ "$(of_first "$(pods_of moved '{.metadata.uid}')")" = "$(of_first "$before")" ] || fails "the other pod was replaced as well"
  forget moved
}

case_elastic() {
  say "an elastic job trains on while a failed pod has no room, from memory, and grows again"
  local node began
  job shrinks "$endless" 's/^  threadsPerProcess: 1/&\n  elastic: {min: 1}/' \
    's/everySteps: 50}/everySteps: 500000, memory: {copies: 1}}/'
  await_step shrinks 100
  node=$("$kubectl" get pod shrinks-worker-1-1 -o 'jsonpath={.spec.nodeName}')
  "$kubectl" cordon "$node" >/dev/null
  began=$(milliseconds)
  kill -9 "$(processes_of "$node" lockstep-agent | head -n 1)"
  await_field shrinks .status.rendezvous.worldSize 1
  await_running_again shrinks "" "$began" "the loss"
  [ "$(field shrinks .status.lastFailure.resumedFrom)" = memory ] ||
    fails "expected to resume from memory, found $(field shrinks .status.lastFailure)"
  began=$(milliseconds)
  "$kubectl" uncordon "$node" >/dev/null
  await_field shrinks .status.rendezvous.worldSize 2
  await_field shrinks .status.state Running
  await_step shrinks "$(field shrinks .status.progress.step)"
  say "training on two nodes again $(($(milliseconds) - began)) ms after there was room"
  [ "$(field shrinks .status.restarts)" = 1 ] || fails "expected one restart, found $(field shrinks .status.restarts)"
  forget shrinks
}

leader() { "$kubectl" -n "$system" get lease lockstep-controller -o 'jsonpath={.spec.holderIdentity}'; }

case_leader_killed() {
  say "the leading controller is killed: the other replica takes over, and the job continues"
  local before
  job led 's/steps: 3000/steps: 1500/'
  await_step led 0
  before=$(leader)
  "$kubectl" -n "$system" delete pod "${before%%_*}" --grace-period=0 --force >/dev/null 2>&1
  await_complete led
  [ "$before" != "$(leader)" ] || fails "$before still leads"
  [ "$(field led .status.round)" = 1 ] || fails "expected round 1, found $(field led .status.round)"
  forget led
  "$kubectl" -n "$system" rollout status deployment/lockstep-controller --timeout=120s >/dev/null
}

node_of_leader() {
  local holder
  holder=$(leader)
  "$kubectl" -n "$system" get pod "${holder%%_*}" -o 'jsonpath={.spec.nodeName}'
}

has_pod() { "$kubectl" get pod "$1" >/dev/null 2>&1; }

# Keeps the new pod off the lost node, which the scheduler regards as ready for another 40 s.
off_bad_nodes='s/^  threadsPerProcess: 1/&\n  failure: {avoidNodes: 1}/'

case_node_lost() {
  say "a node is lost: its pod is replaced on the other node, and the job continues from its checkpoint on the volume"
  local victim began step led=
  job lost "$endless" "$on_any_node" "$off_bad_nodes"
  await_step lost 200
  victim=$("$kubectl" get pod lost-worker-1-1 -o 'jsonpath={.spec.nodeName}')
  [ "$(node_of_leader)" != "$victim" ] || led=" together with the leading controller"
  began=$(milliseconds)
  step=$(field lost .status.lastCheckpoint.step)
  [ "${step:-0}" -gt 0 ] || fails "expected a checkpoint"
  tools/cluster stop-node "${victim#node-}"
  eventually "expected a new pod in place of the lost one" has_pod lost-worker-1-2
  await_running_again lost "" "$began" "the loss$led"
  [ "$("$kubectl" get pod lost-worker-1-2 -o 'jsonpath={.spec.nodeName}')" != "$victim" ] ||
    fails "the new pod is on the lost node"
  eventually "expected to resume from step $step or later" resumed_at lost "$step"
  "$kubectl" get trainingjob lost
  forget lost
}
