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

# apply_chart [VALUE]: until its controllers are the ones that run.
apply_chart() {
  render_chart "$@" | "$kubectl" apply -f - >build/e2e-upgrade.log || fails "build/e2e-upgrade.log"
  "$kubectl" -n "$system" rollout status deployment/lockstep-controller --timeout=120s >/dev/null || fails "no rollout"
}

# check_undisturbed JOB UIDS: it goes on, in its first round and with those pods.
check_undisturbed() {
  await_step "$1" "$(field "$1" .status.progress.step)"
  [ "$(pods_of "$1" '{.metadata.uid}')" = "$2" ] || fails "expected the same pods"
  [ "$(field "$1" .status.round)" = 1 ] || fails "expected round 1, found $(field "$1" .status.round)"
}

case_upgrade() {
  say "an upgrade of the chart and its rollback leave a running job alone"
  local before
  job stays "$endless"
  await_step stays 0
  before=$(pods_of stays '{.metadata.uid}')
  apply_chart "controller: {verbose: true}"
  check_undisturbed stays "$before"
  apply_chart
  check_undisturbed stays "$before"
  forget stays
}

# What helm leaves where it uninstalls: the definition and the controller's key.
without_kept() { awk -v RS='\n---\n' '!/resource-policy: keep/ { print "---"; print }'; }

no_controllers() { [ -z "$("$kubectl" -n "$system" get pods -o name)" ]; }

case_uninstall() {
  say "a running job outlives the chart, and is led on once that is installed again"
  local before
  job outlives "$endless"
  await_step outlives 0
  before=$(pods_of outlives '{.metadata.uid}')
  render_chart | without_kept | "$kubectl" delete -f - >build/e2e-uninstall.log
  eventually "controllers are left" no_controllers
  "$kubectl" get trainingjob outlives >/dev/null || fails "the job is gone"
  apply_chart
  check_undisturbed outlives "$before"
  forget outlives
}

case_permissions() {
  say "what the controller asked for, beside what it may"
  "$kubectl" get clusterrole/lockstep-controller role/lockstep-controller-lease -n "$system" -o json |
    python3 tests/cluster/permissions.py "$folder/audit.log" "$account" || fails "its roles are not what it needs"
}
