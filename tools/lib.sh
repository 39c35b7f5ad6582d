# Shared by the tools: packages, the cache folder, and how a build is made. Sourced, not run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# The one folder outside the checkout that the tools write: the compiler cache.
cache=${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep}
export CCACHE_DIR="$cache/ccache" CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=2G

jobs=${LOCKSTEP_JOBS:-$(nproc)}

say() { printf '==> %s\n' "$*" >&2; }

build_packages=(g++ cmake ninja-build ccache nlohmann-json3-dev libcpprest-dev libyaml-cpp-dev
  prometheus-cpp-dev libcli11-dev libdnnl-dev libboost-dev libssl-dev libre2-dev
  googletest)
text_packages=(bible-kjv bible-kjv-text)
test_packages=(python3 python3-torch clang libclang-rt-14-dev clang-format procps)
check_packages=(git python3 clang clang-format clang-tidy)

# install PACKAGE...: those that are missing, and says which.
install() {
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
  {
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "${missing[@]}"
  } >build/apt.log 2>&1 </dev/null || {
    tail -n 20 build/apt.log >&2
    echo "installing ${missing[*]} failed; all of it in build/apt.log" >&2
    exit 1
  }
}

# build PRESET FOLDER [TARGET...]: configures if needed and builds; quiet unless it fails.
build() {
  local preset=$1 folder=$2
  shift 2
  mkdir -p "$folder"
  if [ ! -f "$folder/CMakeCache.txt" ]; then
    say "configuring ($preset)"
    cmake --preset "$preset" >"$folder/configure.log" 2>&1 || {
      tail -n 30 "$folder/configure.log" >&2
      echo "configuring failed; all of it in $folder/configure.log" >&2
      exit 1
    }
  fi
  say "building ($preset, $jobs jobs; log in $folder/build.log)"
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --build "$folder" -j "$jobs" "${targets[@]}" >"$folder/build.log" 2>&1 || {
    grep -E -A 12 'FAILED|error:' "$folder/build.log" | head -n 60 >&2
    echo "building failed; all of it in $folder/build.log" >&2
    exit 1
  }
}

# What tests and compilers put into the temporary folder goes below the build folder.
mkdir -p build/tmp
export TMPDIR="$root/build/tmp" TEST_TMPDIR="$root/build/tmp"
