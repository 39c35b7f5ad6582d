#!/usr/bin/env bash
# Checks run_ctest of tools/lib.sh: which failures a second run excuses, and what the last line says.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
errors=0

# A project with tests that fail in their first run only (flaky, timed) or always (broken).
cat >"$folder/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(tests LANGUAGES NONE)
enable_testing()
add_test(NAME sound COMMAND true)
foreach(name flaky timed)
  add_test(NAME \${name} COMMAND sh -c "mkdir $folder/\${name}.ran 2>/dev/null && exit 1 || exit 0")
endforeach()
add_test(NAME broken COMMAND false)
set_tests_properties(timed PROPERTIES LABELS real_time)
EOF
cmake -S "$folder" -B "$folder/build" >/dev/null || exit 1

# run_tests ARGUMENT...: sets code and last to the exit code and the last line of run_ctest.
run_tests() {
  rm -rf "$folder"/*.ran
  last=$(bash -c 'source "$0"; folder=$1; shift; run_ctest "$folder" "$@"' \
    "$root/tools/lib.sh" "$folder/build" "$@" 2>&1)
  code=$?
  last=${last##*$'\n'}
}

# expect CODE TEXT: fails unless the run ended with this code and a last line that has the text.
expect() {
  [ "$code" = "$1" ] && [[ $last == *"$2"* ]] && return
  echo "expected exit code $1 and a last line with '$2', got $code and '$last'"
  errors=1
}

run_tests -R 'sound'
expect 0 "Total Test time"
run_tests -R 'sound|timed'
expect 0 "passed only when run again (real_time): timed"
run_tests -R 'sound|flaky|timed'
expect 1 "UNSTABLE, failed and then passed: flaky"
run_tests -R 'sound|flaky|broken'
expect 1 "FAILED: broken"
exit "$errors"
