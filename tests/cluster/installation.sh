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

case_upgrade() {
  say "an upgrade of the chart leaves a running job alone"
  local before round
  job stays "$endless"
  await_step stays 0
  before=$(pods_of stays '{.metadata.uid}')
  round=$(field stays .status.round)
  render_chart "controller: {verbose: true}" | "$kubectl" apply -f - >build/e2e-upgrade.log || fails "build/e2e-upgrade.log"
  "$kubectl" -n "$system" rollout status deployment/lockstep-controller --timeout=120s >/dev/null || fails "no rollout"
  await_step stays "$(field stays .status.progress.step)"
  [ "$(pods_of stays '{.metadata.uid}')" = "$before" ] || fails "expected the same pods"
  [ "$(field stays .status.round)" = "$round" ] || fails "expected round $round, found $(field stays .status.round)"
  forget stays
}

case_permissions() {
  say "what the controller asked for, beside what it may"
  "$kubectl" get clusterrole/lockstep-controller role/lockstep-controller-lease -n "$system" -o json |
    python3 tests/cluster/permissions.py "$folder/audit.log" "$account" || fails "its roles are not what it needs"
}
