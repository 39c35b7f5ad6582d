#!/bin/sh
# bundle_test.sh PROGRAMS FOLDER: the bundle that tools/bundle makes of the programs runs in a
# chroot that contains nothing else. Exits with 77 if that can't be tested.
command -v patchelf >/dev/null || { echo "skipped: patchelf isn't installed; tools/test installs it"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "skipped: chroot needs root"; exit 77; }

tools=$(dirname "$0")/../../tools
rm -rf "$2"
failed=0
# A library that is loaded at run time is found by its path; one that doesn't exist is reported.
mkdir -p "$2.given"
echo 'int answer(void) { return 42; }' |
  gcc -shared -fPIC -Wl,-soname,libgiven.so.3,--no-as-needed -x c - -o "$2.given/libgiven.so" -ldl -lrt -lpthread -lm
patchelf --add-needed libdl.so.2 --add-needed librt.so.1 --add-needed libpthread.so.0 "$2.given/libgiven.so"
if "$tools/bundle" "$1" "$2" libnowhere.so 2>"$2.given/errors"; then echo "expected an error about the missing libnowhere.so"; failed=1; fi
grep -q '^libnowhere.so: neither' "$2.given/errors" || { cat "$2.given/errors"; failed=1; }
"$tools/bundle" "$1" "$2" "$2.given/libgiven.so" || exit 1
cmp "$2.given/libgiven.so" "$2/opt/lockstep/lib/libgiven.so.3" || failed=1
rm -rf "$2.given"
missing=$(chroot "$2" /opt/lockstep/lib/ld-linux-x86-64.so.2 --inhibit-cache --library-path /opt/lockstep/lib \
  --list /opt/lockstep/lib/libgiven.so.3 2>&1 | grep -v ' (0x')
[ -z "$missing" ] || { echo "libgiven.so.3: libraries not found: $missing"; failed=1; }
for program in controller agent worker; do
  file=/opt/lockstep/bin/lockstep-$program
  # LD_LIBRARY_PATH comes from the user's image and must have no effect.
  found=$(LD_LIBRARY_PATH=/nowhere chroot "$2" "$file" --help 2>&1)
  case $found in
  *lockstep-"$program"*) echo "$file runs" ;;
  *) echo "$file: expected its usage, found: $found"; failed=1 ;;
  esac
done
for file in "$2"/opt/lockstep/bin/*; do
  needed=$(readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
  for library in $needed; do
    [ -f "$2/opt/lockstep/lib/$library" ] || { echo "$file needs $library, which isn't in the bundle"; failed=1; }
  done
done
python3 "$tools/../tests/spdx_test.py" "$2" || { echo "the bundle's list of parts is wrong"; failed=1; }
# The programs are still hardened after strip and patchelf.
python3 "$(dirname "$0")/../hardening_test.py" "$2"/opt/lockstep/bin/* || failed=1
# Does what the init container of a pod with another image does. Runs outside the chroot because
# the agent finds itself through /proc.
mkdir "$2/copy"
lib=$2/opt/lockstep/lib
"$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$2/opt/lockstep/bin/lockstep-agent" --install "$2/copy" || { echo "--install failed"; failed=1; }
diff -r "$2/opt/lockstep" "$2/copy" || { echo "expected --install to copy the bundle unchanged"; failed=1; }
rm -rf "$2"
exit $failed
