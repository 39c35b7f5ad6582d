#!/bin/sh
# The alerts, by Prometheus' own evaluation of rules over series that alerts_test.yaml makes up. 77 where
# promtool isn't installed.
cd "$(dirname "$0")" || exit 1
if ! command -v promtool >/dev/null; then
  echo "skipped: promtool (Debian's prometheus) is needed"
  exit 77
fi
promtool check rules ../../charts/lockstep/files/alerts.yaml && promtool test rules alerts_test.yaml
