#!/bin/sh
# Tests the alerts with Prometheus' own rule evaluation, on the series in alerts_test.yaml. Exits
# with 77 if promtool isn't installed.
cd "$(dirname "$0")" || exit 1
if ! command -v promtool >/dev/null; then
  echo "skipped: promtool (Debian's prometheus) is needed"
  exit 77
fi
promtool check rules ../../charts/lockstep/files/alerts.yaml && promtool test rules alerts_test.yaml
