# Cases of tools/e2e about images that contain nothing of Lockstep: the agent is injected.

# Copies program $1 and the libraries that it is linked to below folder $2.
copy_linked() {
  local file
  mkdir -p "$2"
  cp "$1" "$2/program"
  while read -r file; do
    mkdir -p "$2${file%/*}"
    cp -L "$file" "$2$file"
  done < <(ldd "$2/program" 2>/dev/null | grep -o '/[^ ]*')
}

# load_image NAME FOLDER: loads the folder's contents as an image on every node.
load_image() {
  local name=localhost/lockstep-test-$1:1 container
  container=$("${store[@]}" from scratch)
  "${store[@]}" copy -q "$container" "$2" / >/dev/null
  "${store[@]}" commit -q --rm "$container" "$name" >/dev/null
  rm -f "build/image-$1.tar"
  "${store[@]}" push -q "$name" "docker-archive:build/image-$1.tar:$name"
  "${store[@]}" rmi --all --force >/dev/null
  tools/cluster load "build/image-$1.tar" >/dev/null
  rm "build/image-$1.tar"
}

# Builds the same program for three C libraries: Debian's glibc, musl, and none (linked
# statically).
make_test_images() {
  local work=build/e2e-images
  rm -rf "$work"
  mkdir -p "$work/empty"
  gcc -O2 -o "$work/glibc-program" tests/cluster/program.c
  musl-gcc -O2 -o "$work/musl-program" tests/cluster/program.c
  gcc -O2 -static -o "$work/empty/program" tests/cluster/program.c
  copy_linked "$work/glibc-program" "$work/glibc"
  mkdir -p "$work/musl/lib"
  cp "$work/musl-program" "$work/musl/program"
  cp -L /lib/ld-musl-x86_64.so.1 "$work/musl/lib/"
  for each in glibc musl empty; do load_image "$each" "$work/$each"; done
  rm -rf "$work"
}

# Prints the names in the program's environment that are neither in docs/trainingjob.md nor in
# every container.
undocumented() {
  "$kubectl" logs "$1" | sed -n 's/.*\] env //p' | sort -u | grep -vE '^(PATH|HOME|HOSTNAME|KUBERNETES_.*)$' |
    while read -r name; do
      grep -qw -- "$name" docs/trainingjob.md || echo "$name"
    done
}

# check_program JOB USER LOADER
check_program() {
  local pod log
  for pod in $(pods_of "$1" '{.metadata.name}'); do
    log=$("$kubectl" logs "$pod")
    [ "$(grep -c "sum 6 of 4 ranks, user $2\$" <<<"$log")" = 2 ] || fails "$pod: expected two sums of user $2: $log"
    [ "$(grep -c "loader $3" <<<"$log")" = 2 ] || fails "$pod: expected the loader $3: $log"
    [ -z "$(undocumented "$pod")" ] || fails "$pod: environment variables missing in docs/trainingjob.md: $(undocumented "$pod")"
  done
  [ "$(field "$1" .status.progress.step)" = 1 ] || fails "$1: expected the program's progress in status"
  [ "$(field "$1" .status.restarts)" = 0 ] || fails "$1: expected no restarts"
}

case_images() {
  say "a program runs in images without Lockstep: glibc, musl, nearly empty; as root and restricted"
  local each names
  make_test_images
  for each in glibc musl empty; do
    sed -e "s/NAME/$each-root/" -e "s/IMAGE/$each/" -e 's/SECURITY/{}/' tests/cluster/program.yaml
    echo ---
    sed -e "s/NAME/$each-restricted/" -e "s/IMAGE/$each/" -e 's/SECURITY/{runAsNonRoot: true, runAsUser: 1000}/' \
      tests/cluster/program.yaml
    echo ---
  done | "$kubectl" apply -f - >/dev/null
  names=({glibc,musl,empty}-{root,restricted})
  await_complete "${names[@]}"
  for each in root:0 restricted:1000; do
    check_program "glibc-${each%:*}" "${each#*:}" ld-linux
    check_program "musl-${each%:*}" "${each#*:}" ld-musl
    check_program "empty-${each%:*}" "${each#*:}" none
  done
  forget "${names[@]}"
}

# Makes an image of PyTorch's files as Debian installs them: the interpreter, its modules and the
# libraries that they link to.
make_torch_image() {
  local work=build/e2e-torch
  rm -rf "$work"
  mkdir -p "$work"
  /usr/bin/python3 - >build/e2e-torch-files <<'END'
import pathlib, subprocess, sys
import torch, torch.distributed, torch.nn.parallel

packages = pathlib.Path("/usr/lib/python3/dist-packages")
modules = {name.split(".")[0] for name, module in sys.modules.items()
           if str(packages) in (getattr(module, "__file__", None) or "")}
roots = [pathlib.Path(torch.os.__file__).parent]
roots += [path for name in modules for path in (packages / name, packages / f"{name}.py") if path.exists()]
files = [pathlib.Path(sys.executable).resolve(), pathlib.Path("/usr/bin/python3")]
for root in roots:
    files += [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
objects = [file for file in files if ".so" in file.name or file.parent.name == "bin"]
linked = subprocess.run(["ldd", *objects], capture_output=True, text=True).stdout.split()
files += [word for word in linked if word.startswith("/") and not word.endswith(":")]
print(*sorted(set(map(str, files))), sep="\n")
END
  xargs -a build/e2e-torch-files -d '\n' cp -L --parents -t "$work"
  cp examples/ddp.py "$work/"
  load_image torch "$work"
  rm -rf "$work" build/e2e-torch-files
}

case_torch() {
  say "a PyTorch job in an image of Debian's PyTorch: torchrun's script runs unchanged"
  local began
  make_torch_image
  empty_volume
  began=$(milliseconds)
  "$kubectl" apply -f tests/cluster/torch-ddp.yaml >/dev/null
  await_step torch-ddp 0
  say "first step seen $(($(milliseconds) - began)) ms after kubectl apply"
  await_complete torch-ddp
  "$kubectl" logs torch-ddp-worker-0-1 | grep -c 'step 300 loss' >/dev/null || fails "expected the last step in kubectl logs"
  [ "$(field torch-ddp .status.progress.step)" = 300 ] || fails "expected step 300"
  "$kubectl" get trainingjob torch-ddp
  forget torch-ddp
}

# Makes an image of Debian here, under the name of the registry's.
make_debian_image() {
  local base=build/e2e-debian mirror container
  mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
  [ -n "$mirror" ] || mirror=$(awk '$1 == "deb" { print $2; exit }' /etc/apt/sources.list)
  rm -rf "$base"
  debootstrap --variant=minbase bookworm "$base" "$mirror" >build/e2e-debootstrap.log || fails "debootstrap failed: see build/e2e-debootstrap.log"
  container=$("${store[@]}" from scratch)
  "${store[@]}" copy -q "$container" "$base" / >/dev/null
  "${store[@]}" commit -q --rm "$container" docker.io/library/debian:bookworm-slim >/dev/null
  rm -rf "$base"
}

# compile_image CUDA BUD...: builds the whole Dockerfile and checks that its programs start. BUD
# are options of the build.
compile_image() {
  local cuda=$1 program library
  shift
  "${store[@]}" bud -q --isolation chroot --network host --volume /etc/apt:/etc/apt:ro "$@" \
    --build-arg BUNDLE=compiled --build-arg "CUDA=$cuda" -t lockstep-compiled . >"build/e2e-compiled-$cuda.log" 2>&1 || fails "the image build failed: see build/e2e-compiled-$cuda.log"
  rm -rf build/e2e-compiled && mkdir build/e2e-compiled
  "${store[@]}" push -q lockstep-compiled "dir:$root/build/e2e-compiled"
  for layer in build/e2e-compiled/*; do ! tar -tf "$layer" >/dev/null 2>&1 || tar -C build/e2e-compiled -xf "$layer"; done
  for program in controller agent worker; do
    chroot build/e2e-compiled "/opt/lockstep/bin/lockstep-$program" --help >/dev/null || fails "lockstep-$program does not start"
  done
  for library in libcublasLt libnccl; do
    [ "$cuda" = OFF ] || [ -n "$(find build/e2e-compiled/opt/lockstep/lib -name "$library.so.*")" ] || fails "expected $library in the image with CUDA"
  done
  say "compiled with CUDA=$cuda: $(($(du -sb build/e2e-compiled/opt | cut -f1) / 1000000)) MB"
  rm -rf build/e2e-compiled
}

# Runs only if it is named, because it compiles everything twice. With CUDA, mounts the machine's
# toolkit in place of an image that has it.
case_compiled_image() {
  say "the whole Dockerfile builds, without and with CUDA"
  install debootstrap
  make_debian_image
  compile_image OFF
  [ ! -d /usr/local/cuda ] || compile_image ON --volume "$(readlink -f /usr/local/cuda):/usr/local/cuda:ro"
  "${store[@]}" rmi --all --force >/dev/null
}
