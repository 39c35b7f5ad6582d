# Functions that the tools share: packages, the cache folder, builds and tests. Sourced, not run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Prints the comment at the top of a tool, which is its help text.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "tools/${0##*/}"; }
case ${1:-} in -h | --help) usage && exit ;; esac

# The only folder outside the checkout that the tools write: the compiler cache, and a kubectl for the tests.
cache=${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep}
export CCACHE_DIR="$cache/ccache" CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=2G

jobs=${LOCKSTEP_JOBS:-$(nproc)}

say() { printf '==> %s\n' "$*" >&2; }

build_packages=(g++ cmake ninja-build ccache nlohmann-json3-dev libcpprest-dev libyaml-cpp-dev
  prometheus-cpp-dev libcli11-dev libdnnl-dev libboost-dev libssl-dev libre2-dev
  libsentencepiece-dev googletest)
text_packages=(bible-kjv bible-kjv-text)
test_packages=(python3 python3-torch patchelf binutils clang libclang-rt-14-dev clang-format lld procps zsh fish)
go_packages=(golang-go golang-github-masterminds-sprig-dev
  golang-github-xeipuuv-gojsonschema-dev golang-k8s-sigs-yaml-dev golang-gopkg-yaml.v3-dev)
check_packages=(git python3 clang clang-format clang-tidy)

# locked FILE COMMAND...: runs COMMAND while holding a lock on FILE. Processes that COMMAND leaves running do not
# hold the lock.
locked() {
  local file=$1 status
  shift
  exec 9>"$file"
  flock 9
  "$@" 9>&-
  status=$?
  exec 9>&-
  return "$status"
}

# install PACKAGE...: installs the missing packages and says which. Never removes others: containerd's package
# would replace Docker's.
install() {
  mkdir -p "$cache"
  locked "$cache/apt.lock" install_unlocked "$@"
}

install_unlocked() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing from Debian: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      echo "not root and no sudo here; as root run: apt-get install ${missing[*]}" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  (
    "${as_root[@]}" apt-get update -qq
    forbid_services
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-remove --no-install-recommends "${missing[@]}"
  ) >build/apt.log 2>&1 </dev/null || {
    tail -n 20 build/apt.log >&2
    echo "installing ${missing[*]} failed; all of it in build/apt.log" >&2
    exit 1
  }
  disable_services
}

# Packages of servers start them, now and at each boot, reachable by anyone; the tools start their own. Both
# functions use as_root and missing of install_unlocked. The first one lasts until its shell ends.
policy=/usr/sbin/policy-rc.d
forbid_services() {
  [ ! -e "$policy" ] || return 0
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod +x "$policy"
}

disable_services() {
  ! command -v systemctl >/dev/null || dpkg -L "${missing[@]}" 2>/dev/null |
    sed -n 's|.*/systemd/system/\([^/@]*\.service\)$|\1|p' |
    xargs -r "${as_root[@]}" systemctl disable --quiet >>build/apt.log 2>&1 || true
}

# fetch_kubectl: unpacks Debian's kubectl into the cache, one tool at a time. It is not installed, since
# /usr/bin/kubectl may belong to another package. False if it can't be fetched.
fetch_kubectl() {
  mkdir -p "$cache"
  locked "$cache/apt.lock" fetch_kubectl_unlocked
}

fetch_kubectl_unlocked() {
  local folder="$cache/kubectl-debian" new
  [ ! -x "$folder/usr/bin/kubectl" ] || return 0
  say "fetching Debian's kubectl (kubernetes-client)"
  mkdir -p "$cache"
  new=$(mktemp -d "$cache/kubectl-debian.XXXXXX")
  (
    chmod 755 "$new"
    cd "$new"
    { apt-get download kubernetes-client || { apt-get update && apt-get download kubernetes-client; }; } &&
      dpkg-deb -x kubernetes-client_*.deb . && rm kubernetes-client_*.deb
  ) >build/kubectl.log 2>&1 </dev/null || true
  if [ ! -x "$new/usr/bin/kubectl" ]; then
    rm -rf "$new"
    say "Debian's kubectl can't be fetched; the reason is in build/kubectl.log"
    return 1
  fi
  rm -rf "$folder"
  mv "$new" "$folder"
}

# newest_kubectl: prints the newest installed kubectl: the one on the PATH or, if that only chooses among several
# kubectl.1.NN in its folder, the highest of those.
newest_kubectl() {
  local program beside
  program=$(command -v kubectl) || return 0
  program=$(readlink -f "$program")
  beside=$(find "$(dirname "$program")" -maxdepth 1 -name 'kubectl.1.*' -perm -u+x | sort -V | tail -n 1)
  echo "${beside:-$program}"
}

# find_kubectls: exports LOCKSTEP_KUBECTLS, a colon-separated list of the kubectls that tests drive: Debian's and
# the newest. Empty if there is none.
find_kubectls() {
  local found=() newest
  ! fetch_kubectl || found+=("$cache/kubectl-debian/usr/bin/kubectl")
  newest=$(newest_kubectl)
  [ -z "$newest" ] || found+=("$newest")
  [ ${#found[@]} -gt 0 ] || say "no kubectl here: its sessions are skipped"
  LOCKSTEP_KUBECTLS=$(IFS=:; echo "${found[*]}")
  export LOCKSTEP_KUBECTLS
}

# configure PRESET FOLDER [OPTION...]: configures a build folder, unless that was done with the same options.
# Prints output only if it fails.
configure() {
  local preset=$1 folder=$2
  shift 2
  ! configured "$folder" "$@" || return 0
  mkdir -p "$folder"
  say "configuring ($preset)"
  cmake --preset "$preset" -B "$folder" "$@" >"$folder/configure.log" 2>&1 || {
    tail -n 30 "$folder/configure.log" >&2
    echo "configuring failed; the whole output is in $folder/configure.log" >&2
    exit 1
  }
}

# configured FOLDER -DNAME=VALUE...: whether the folder's cache exists and has these values.
configured() {
  local cache_file=$1/CMakeCache.txt option name
  shift
  [ -f "$cache_file" ] || return 1
  for option; do
    name=${option#-D}
    grep -q "^${name%%=*}:[A-Z]*=${name#*=}$" "$cache_file" || return 1
  done
}

# The build that quickstart, tests and e2e share. quickstart compiles CUDA code for the installed card alone, and
# none without a card; the tests compile it for all architectures.
build_for_running() {
  if [ -f build/CMakeCache.txt ]; then build dev build "$@"; else cuda=CARD build dev build "$@"; fi
}
build_for_tests() { cuda=AUTO build dev build "$@"; }

# build PRESET FOLDER [TARGET...]: configures if needed, with $cuda as LOCKSTEP_CUDA if it is set, and builds.
# Shows progress; prints the compiler's output only if it fails.
build() {
  mkdir -p "$2"
  locked "$2/build.lock" build_unlocked "$@"
}

build_unlocked() {
  local preset=$1 folder=$2
  shift 2
  configure "$preset" "$folder" ${cuda:+"-DLOCKSTEP_CUDA=$cuda"}
  say "building ($preset, $jobs jobs; log in $folder/build.log)"
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --build "$folder" -j "$jobs" "${targets[@]}" 2>&1 | tee "$folder/build.log" | show_progress || {
    grep -E -A 12 'FAILED|error:' "$folder/build.log" | head -n 60 >&2
    echo "building failed; the whole output is in $folder/build.log" >&2
    exit 1
  }
}

# Reads ninja's output and prints the share that is done: one live line on a terminal, else a line per tenth.
show_progress() {
  local line done_steps steps percent shown=0 began=$SECONDS live=
  [ ! -t 2 ] || live=1
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    done_steps=${BASH_REMATCH[1]} steps=${BASH_REMATCH[2]}
    percent=$((100 * done_steps / steps))
    if [ -n "$live" ]; then
      printf '\r\033[K    %3d %% (%d of %d steps, %d s)' "$percent" "$done_steps" "$steps" $((SECONDS - began)) >&2
    elif [ $((percent / 10)) -gt $((shown / 10)) ]; then
      printf '    %3d %% (%d of %d steps, %d s)\n' "$percent" "$done_steps" "$steps" $((SECONDS - began)) >&2
      shown=$percent
    fi
  done
  [ -z "$live" ] || printf '\r\033[K' >&2
}

# run_ctest FOLDER ARGUMENT...: runs the tests of a build. A failed test is run again alone, to tell a broken
# test from an unstable one. Only a test labelled real_time may pass that way (its limits can break on a machine
# that stalls); any other failure fails the run, and the last line names the tests.
run_ctest() {
  local folder=$1 failed strict again=0
  shift
  ctest --test-dir "$folder" --output-on-failure --no-label-summary "$@" && return
  failed=$(cut -d: -f2 "$folder/Testing/Temporary/LastTestsFailed.log" | sort)
  [ -n "$failed" ] || return 1
  strict=$(ctest --test-dir "$folder" -N -L real_time | sed -n 's/.*Test *#[0-9]*: //p' | sort | comm -23 <(echo "$failed") -)
  say "running again, one after another: ${failed//$'\n'/ }"
  ctest --test-dir "$folder" --output-on-failure --no-label-summary "$@" --rerun-failed -j 1 --output-junit rerun.xml || again=$?
  if [ "$again" != 0 ]; then
    say "FAILED: $(cut -d: -f2 "$folder/Testing/Temporary/LastTestsFailed.log" | sort | tr '\n' ' ')"
    return 1
  fi
  if [ -n "$strict" ]; then
    say "UNSTABLE, failed and then passed: ${strict//$'\n'/ }"
    return 1
  fi
  say "passed only when run again (real_time): ${failed//$'\n'/ }"
}

# free_ports COUNT: prints free ports below the range that the system gives to outgoing connections. Otherwise a
# client that tries a port before its server listens could get that very port as its own, and keep it.
free_ports() {
  python3 -c 'import random, socket, sys
taken = []
while len(taken) < int(sys.argv[1]):
    one = socket.socket()
    try:
        one.bind(("127.0.0.1", random.randrange(20000, 29000)))
        taken.append(one)
    except OSError:
        pass
print(*(one.getsockname()[1] for one in taken))' "$1"
}

# Temporary files of tests and compilers go below the build folder.
mkdir -p build/tmp
export TMPDIR="$root/build/tmp" TEST_TMPDIR="$root/build/tmp"
