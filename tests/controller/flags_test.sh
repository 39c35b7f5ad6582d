#!/usr/bin/env bash
# flags_test.sh CONTROLLER: the controller rejects invalid flags at start with a clear message.
set -u
controller=$1
failed=0

refuses() { # WORDS FLAG...
  local words=$1 output code
  shift
  output=$("$controller" --key-file /dev/null "$@" 2>&1)
  code=$?
  if [ $code != 2 ] || [[ $output != *"$words"* ]]; then
    echo "$*: expected exit code 2 and \"$words\", got $code and: $output"
    failed=1
  fi
}

for seconds in 4 301 0 -1 7.5 soon; do
  refuses "--agent-silence" --agent-silence "$seconds"
done
refuses "Value 4 not in range" --agent-silence 4
# Values in range pass: the error is about the missing key instead.
for seconds in 5 15 300; do
  refuses "found an empty file" --server http://127.0.0.1:1 --agent-silence "$seconds"
done
refuses "--pod-policy" --pod-policy lax
for policy in privileged baseline restricted; do
  refuses "found an empty file" --server http://127.0.0.1:1 --pod-policy "$policy" --job-service-accounts a,team/b
done
# Peers that may scrape jobs with a NetworkPolicy.
metrics=--network-policy-metrics-from peer='{"podSelector": {"matchLabels": {"app": "prometheus"}}}'
refuses "$metrics requires --network-policies" "$metrics=[]"
key=$(mktemp)
printf '0123456789abcdef\n' > "$key"
for bad in 'soon|not valid JSON' '{}|expected a JSON list' '[{}]|peer 0: found {}' '[{"pods": {}}]|peer 0: found \"pods\"'; do
  refuses "$metrics: " --server http://127.0.0.1:1 --key-file "$key" --network-policies "$metrics=${bad%|*}"
  refuses "${bad#*|}" --server http://127.0.0.1:1 --key-file "$key" --network-policies "$metrics=${bad%|*}"
done
refuses "--network-policy-controller: peer 0: found {}" --server http://127.0.0.1:1 --key-file "$key" --network-policies \
  "$metrics=[$peer]" --network-policy-controller '{}'
if [ ! -e /var/run/secrets/kubernetes.io/serviceaccount/namespace ]; then
  refuses "--network-policy-controller: missing; it is required outside a pod" --server http://127.0.0.1:1 \
    --key-file "$key" --network-policies "$metrics=[$peer]"
fi
rm -f "$key"
# A key that can be guessed.
key=$(mktemp)
printf '0123456789abcde\n' > "$key"
refuses "the key has 15 bytes, expected at least 16" --server http://127.0.0.1:1 --key-file "$key"
rm -f "$key"
exit $failed
