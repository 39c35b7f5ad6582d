#!/bin/sh
# run_tests.sh BUILD_FOLDER: runs the chart's Go tests. Exits with 77 if Go or its packages aren't
# installed; tools/test installs them.
cd "$(dirname "$0")" || exit 1
for needed in github.com/Masterminds/sprig github.com/xeipuuv/gojsonschema sigs.k8s.io/yaml; do
  if ! command -v go >/dev/null || ! [ -d "/usr/share/gocode/src/$needed" ]; then
    echo "skipped: Debian's golang-go and $needed are needed; tools/test installs them"
    exit 77
  fi
done
GO111MODULE=off GOPATH=/usr/share/gocode GOFLAGS= GOCACHE="$1/cache" exec go test -count=1 .
