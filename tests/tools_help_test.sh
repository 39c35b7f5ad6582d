#!/bin/sh
# Every tool that is for users says what it does when it is asked, from wherever, and does nothing else.
tools=$(cd "$(dirname "$0")/../tools" && pwd)
failed=0
cd /
for tool in "$tools"/*; do
  [ -x "$tool" ] || continue
  said=$(timeout 20 "$tool" --help 2>&1) || { echo "$tool --help: ended with $?"; failed=1; }
  [ "$(printf '%s\n' "$said" | wc -l)" -ge 2 ] || { echo "$tool --help: expected some lines, got: $said"; failed=1; }
done
timeout 20 "$tools/e2e" no_such_case 2>&1 | grep -q 'no case no_such_case; there are .*node_lost' ||
  { echo "tools/e2e no_such_case: expected the cases' names"; failed=1; }
exit $failed
