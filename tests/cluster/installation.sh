# Cases of tools/e2e about what the chart installs.

account=system:serviceaccount:$system:lockstep-controller

case_secrets() {
  say "the controller may not read secrets"
  local verb
  for verb in get list watch update patch delete; do
    [ "$("$kubectl" auth can-i "$verb" secrets --as "$account" --all-namespaces 2>/dev/null)" = no ] ||
      fails "the controller may $verb secrets"
  done
}

case_accepted() {
  say "the server accepts the chart rendered with each set of values, and deploy/'s overlay"
  tools/chart accepted "$KUBECONFIG" || fails "the server rejected objects of the chart"
  "$kubectl" apply --dry-run=server -k deploy/overlays/kubernetes-1.20 >build/e2e-overlay.log || fails "the server rejected the overlay: see build/e2e-overlay.log"
  "$kubectl" delete namespace lockstep-accepted team-a training --ignore-not-found --timeout=120s >/dev/null
}

# may USER VERB RESOURCE...: prints yes or no.
may() { "$kubectl" -n default auth can-i "${@:2}" --as "$1" 2>/dev/null || true; }

aggregates() { [ "$(may ann create trainingjobs.lockstep.dev)" = yes ]; }

case_roles() {
  say "editors may edit jobs, and so may users with the chart's editor role; viewers may only read them"
  local verb
  "$kubectl" delete rolebinding ann ben eve --ignore-not-found >/dev/null
  "$kubectl" create rolebinding ann --clusterrole=edit --user=ann >/dev/null
  "$kubectl" create rolebinding ben --clusterrole=lockstep-editor --user=ben >/dev/null
  "$kubectl" create rolebinding eve --clusterrole=lockstep-viewer --user=eve >/dev/null
  eventually "expected the role edit to include TrainingJobs" aggregates
  for verb in get list watch create patch delete; do
    [ "$(may ann $verb trainingjobs.lockstep.dev)/$(may ben $verb trainingjobs.lockstep.dev)" = yes/yes ] ||
      fails "expected editors to be allowed to $verb jobs"
  done
  [ "$(may eve watch trainingjobs.lockstep.dev)/$(may eve create trainingjobs.lockstep.dev)" = yes/no ] ||
    fails "expected viewers to have read access only"
  [ "$(may ben get secrets)/$(may ben patch trainingjobs.lockstep.dev --subresource status)" = no/no ] ||
    fails "expected editors of jobs to have no other permissions"
  "$kubectl" delete rolebinding ann ben eve >/dev/null
}

# apply_chart [FOLDER]: applies the chart and waits until its controllers run. FOLDER is as for
# render_chart.
apply_chart() {
  render_chart "$@" | "$kubectl" apply -f - >build/e2e-upgrade.log || fails "the chart could not be applied: see build/e2e-upgrade.log"
  "$kubectl" -n "$system" rollout status deployment/lockstep-controller --timeout=120s >/dev/null || fails "the rollout did not finish in time"
}

# check_undisturbed JOB UIDS: the job continues, in its first round and with those pods.
check_undisturbed() {
  await_step "$1" "$(field "$1" .status.progress.step)"
  [ "$(pods_of "$1" '{.metadata.uid}')" = "$2" ] || fails "expected the same pods"
  [ "$(field "$1" .status.round)" = 1 ] || fails "expected round 1, found $(field "$1" .status.round)"
}

# The next version of everything: the chart, the CRD (which has one more field and column), and the
# image, which is this one under another name.
next_version=99.0.0
make_next_version() {
  local next=build/e2e-next/charts/lockstep crd node
  rm -rf build/e2e-next
  mkdir build/e2e-next
  cp -r charts build/e2e-next/
  sed -i -E "s/^(version|appVersion): .*/\1: $next_version/" "$next/Chart.yaml"
  for crd in "$next"/files/crds*/*.yaml; do
    sed -i -E -e 's/^( *)- name: AGE$/\1- {name: NEXT, jsonPath: .spec.next, type: string}\n&/' \
      -e '0,/^ +spec:$/!{0,/^( *)properties:$/s//&\n\1  next: {type: string}/}' "$crd"
  done
  for node in "$state"/node-*; do
    ctr -a "$node/containerd.sock" -n k8s.io images tag --force "docker.io/library/$image" \
      "docker.io/library/${image%:*}:$next_version" >/dev/null
  done
}

# columns: prints the columns of the CRD on the server.
columns() { "$kubectl" get crd trainingjobs.lockstep.dev -o 'jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}'; }

# await_no_pods JOB: waits until the pods of a deleted job, which save a checkpoint first, have ended.
await_no_pods() {
  for _ in $(seq 300); do
    [ -n "$(pods_of "$1" '{.metadata.name}')" ] || return 0
    sleep 0.2
  done
  fails "expected the pods of $1 to end, found $(pods_of "$1" '{.metadata.name}')"
}

case_upgrade() {
  say "an upgrade to the next version and its rollback leave a running job alone"
  local before began images
  make_next_version
  job stays "$endless"
  await_step stays 0
  before=$(pods_of stays '{.metadata.uid}')
  apply_chart build/e2e-next
  [ "$("$kubectl" -n "$system" get deployment lockstep-controller -o 'jsonpath={.spec.template.spec.containers[0].image}')" = \
    "${image%:*}:$next_version" ] || fails "expected the next version's image"
  [[ " $(columns) " = *" NEXT "* ]] || fails "expected the next version's CRD"
  check_undisturbed stays "$before"
  began=$(milliseconds)
  "$kubectl" delete pod stays-worker-1-1 --wait=false >/dev/null
  await_drained stays 2 "$began" "the deletion of a pod"
  images=$(pods_of stays '{.spec.containers[0].image}' | tr ' ' '\n' | sort -u)
  [ "$(wc -w <<<"$images")" = 1 ] || fails "expected one image in all pods, found $images"
  forget stays
  await_no_pods stays
  job stays "$endless"
  await_step stays 0
  before=$(pods_of stays '{.metadata.uid}')
  apply_chart
  [[ " $(columns) " != *" NEXT "* ]] || fails "expected the previous version's CRD"
  check_undisturbed stays "$before"
  forget stays
}

case_namespaced() {
  say "an installation for one namespace runs that namespace's jobs"
  local team=(-n team-a)
  "$kubectl" -n "$system" scale deployment lockstep-controller --replicas=0 >/dev/null
  eventually "expected all controllers to end" no_controllers
  "$kubectl" create namespace team-a >/dev/null
  "$kubectl" "${team[@]}" create configmap kjv --from-file=kjv.txt=build/e2e-kjv.txt >/dev/null
  tools/chart render tests/cluster/namespaced.yaml | "$kubectl" apply -f - >build/e2e-namespaced.log || fails "the chart could not be applied: see build/e2e-namespaced.log"
  sed -e 's/name: kjv-gpt/name: alone, namespace: team-a/' -e "$one_node" -e 's/steps: 3000/steps: 20/' \
    -e 's/persistentVolumeClaim: {claimName: checkpoints}/emptyDir: {}/' \
    tests/cluster/kjv-gpt.yaml | "$kubectl" apply -f - >/dev/null
  "$kubectl" "${team[@]}" wait --for=condition=Complete trainingjob/alone --timeout=120s >/dev/null || {
    "$kubectl" "${team[@]}" logs deployment/team-lockstep-controller | tail -n 20 >&2
    fails "expected the job to complete"
  }
  python3 tests/cluster/permissions.py "$folder/audit.log" system:serviceaccount:team-a:team-lockstep-controller --forbidden ||
    fails "its Role does not match the requests that it sent"
  "$kubectl" delete namespace team-a >/dev/null
  "$kubectl" -n "$system" scale deployment lockstep-controller --replicas=2 >/dev/null
  "$kubectl" -n "$system" rollout status deployment/lockstep-controller --timeout=120s >/dev/null
}

# Removes from the input what helm keeps on uninstall: the CRD and the controller's key.
without_kept() { awk -v RS='\n---\n' '!/resource-policy: keep/ { print "---"; print }'; }

no_controllers() { [ -z "$("$kubectl" -n "$system" get pods -o name)" ]; }

case_uninstall() {
  say "a running job survives an uninstall of the chart, and is managed again after the next install"
  local before
  job outlives "$endless"
  await_step outlives 0
  before=$(pods_of outlives '{.metadata.uid}')
  # Deletes the Deployment before the roles, as helm does.
  "$kubectl" -n "$system" delete deployment lockstep-controller >build/e2e-uninstall.log
  eventually "expected all controllers to end" no_controllers
  render_chart | without_kept | "$kubectl" delete --ignore-not-found -f - >>build/e2e-uninstall.log
  "$kubectl" get trainingjob outlives >/dev/null || fails "the job is gone"
  apply_chart
  check_undisturbed outlives "$before"
  forget outlives
}

case_permissions() {
  say "the controller's roles match the requests that it sent"
  "$kubectl" get clusterrole/lockstep-controller role/lockstep-controller-lease -n "$system" -o json |
    python3 tests/cluster/permissions.py "$folder/audit.log" "$account" || fails "its roles do not match the requests that it sent"
}
