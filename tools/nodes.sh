# The nodes of tools/cluster. Each is a containerd and a kubelet with its own bridge, subnet, cgroup
# and folder, all in this machine's network namespace. Sourced by tools/cluster and tools/e2e.

node_packages=(containerd runc containernetworking-plugins iptables conntrack ethtool iproute2 socat
  buildah gcc libc6-dev)
state=/var/lib/lockstep-cluster  # short, since the paths of sockets are bounded
service_address=10.96.0.1        # the API server's, for pods
pause_image=localhost/lockstep-pause:1

# Prints why this machine can't run containers; nothing if it can.
why_no_containers() {
  [ "$(id -u)" = 0 ] || { echo "not root"; return; }
  local mount
  ! dpkg-query -W -f '${Status}' containerd.io 2>/dev/null | grep -q 'ok installed' ||
    { echo "Docker's containerd.io is installed, in whose place Debian's containerd would come"; return; }
  [ -n "$(cgroup_mounts)" ] || { echo "no cgroups are mounted"; return; }
  for mount in $(cgroup_mounts); do
    mkdir -p "$mount/lockstep-probe" 2>/dev/null && rmdir "$mount/lockstep-probe" ||
      { echo "no cgroup can be made in $mount"; return; }
  done
  [ -w /proc/sys/net/ipv4/ip_forward ] || { echo "/proc/sys/net is read-only"; return; }
  unshare --mount --net --pid --uts --ipc --fork mount --bind /var /mnt 2>/dev/null ||
    { echo "no namespaces and mounts can be made"; return; }
  unshare --net ip link add lockstep0 type bridge 2>/dev/null ||
    { echo "no network bridge can be made"; return; }
}

# Prints the mounted cgroup hierarchies, of version 1 or 2.
cgroup_mounts() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts; }

# make_cgroup NAME: creates the cgroup that a kubelet expects as its root. In version 1 a new cpuset
# is empty and must be filled; in version 2 the parent must enable the controllers.
make_cgroup() {
  local mount file controller
  for mount in $(cgroup_mounts); do
    for controller in $(cat "$mount/cgroup.controllers" 2>/dev/null); do
      echo "+$controller" >"$mount/cgroup.subtree_control" || true
    done 2>/dev/null
    mkdir -p "$mount/$1"
    for file in cpuset.cpus cpuset.mems; do
      [ ! -f "$mount/$1/$file" ] || cat "$mount/$file" >"$mount/$1/$file"
    done
  done
}

# remove_cgroup NAME: removes it, and kills every process in it.
remove_cgroup() {
  local mount
  for mount in $(cgroup_mounts); do
    for _ in $(seq 100); do
      [ -d "$mount/$1" ] || break
      find "$mount/$1" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u |
        xargs -r kill -9 2>/dev/null || true
      find "$mount/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
      sleep 0.05
    done
    [ ! -d "$mount/$1" ] || say "left behind: $mount/$1"
  done
}

# Builds an image of a program that only waits, in the cache folder.
make_pause_image() {
  local pause=$binaries/pause container
  local store=(buildah --storage-driver vfs --root "$pause/store" --runroot "$pause/run")
  [ ! -f "$pause/pause.tar" ] || return 0
  mkdir -p "$pause"
  gcc -O2 -static -x c -o "$pause/pause" - <<'END'
#include <signal.h>
#include <unistd.h>

static void leave(int signal) { _exit(0); }

int main(void) {
  signal(SIGTERM, leave);
  signal(SIGINT, leave);
  for (;;) pause();
}
END
  container=$("${store[@]}" from scratch)
  "${store[@]}" copy -q "$container" "$pause/pause" /pause >/dev/null
  "${store[@]}" config --entrypoint '["/pause"]' --user 65535:65535 "$container"
  "${store[@]}" commit -q --rm "$container" "$pause_image" >/dev/null
  rm -f "$pause/new.tar"
  "${store[@]}" push -q "$pause_image" "docker-archive:$pause/new.tar:$pause_image"
  rm -rf "$pause/store" "$pause/run"
  mv "$pause/new.tar" "$pause/pause.tar"
}

# make_bridge NUMBER: gives the bridge a fixed link address. Otherwise it has the lowest address of
# its ports, which changes as pods come and go. The other pods would then lose the gateway until
# their neighbour tables expire.
make_bridge() {
  ip link show "lockstep$1" >/dev/null 2>&1 || ip link add "lockstep$1" type bridge
  ip link set "lockstep$1" address "0a:58:0a:f4:0$1:01"
  ip addr replace "10.244.$1.1/24" dev "lockstep$1"
  ip link set "lockstep$1" up
}

# restrict_oom_score_adj: without CAP_SYS_RESOURCE out-of-memory scores can't be lowered.
write_containerd_config() {
  mkdir -p "$2/cni"
  cat >"$2/cni/10-lockstep.conflist" <<END
{
  "cniVersion": "0.4.0",
  "name": "lockstep$1",
  "plugins": [
    {"type": "bridge", "bridge": "lockstep$1", "isGateway": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "dataDir": "$2/addresses",
              "ranges": [[{"subnet": "10.244.$1.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}},
    {"type": "firewall"}
  ]
}
END
  cat >"$2/containerd.toml" <<END
version = 2
root = "$2/containerd"
state = "$2/run"
[grpc]
  address = "$2/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$2/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$2/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "$2/runc"
END
}

write_kubelet_config() {
  cat >"$2/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 10.244.$1.1
port: $3
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: $4
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $folder/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /lockstep-node-$1
enforceNodeAllocatable: []
failSwapOn: false
oomScoreAdj: 0
resolvConf: ""
nodeStatusUpdateFrequency: 4s
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
END
}

# start_containerd NUMBER FOLDER: in a mount namespace in which the folders of pod logs are the
# node's own. A kubelet removes logs of other kubelets' pods there, and its folder can't be
# configured.
start_containerd() {
  mkdir -p /var/log/pods /var/log/containers "$2/pods" "$2/containers"
  start "containerd-node-$1" unshare --mount --propagation slave sh -c \
    'mount --bind "$1/pods" /var/log/pods && mount --bind "$1/containers" /var/log/containers &&
     exec containerd --config "$1/containerd.toml"' sh "$2"
  for _ in $(seq 200); do
    ! ctr -a "$2/containerd.sock" version >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  tail -n 20 "$folder/containerd-node-$1.log" >&2
  echo "containerd of node-$1 did not become ready" >&2
  exit 1
}

start_node() {
  local node=$state/node-$1 port health
  mkdir -p "$node"
  make_bridge "$1"
  make_cgroup "lockstep-node-$1"
  write_containerd_config "$1" "$node"
  start_containerd "$1" "$node"
  ctr -a "$node/containerd.sock" -n k8s.io images import "$binaries/pause/pause.tar" >/dev/null
  read -r port health < <(free_ports 2)
  write_kubelet_config "$1" "$node" "$port" "$health"
  start "kubelet-node-$1" nsenter --mount --target "$(cat "$folder/containerd-node-$1.pid")" -- \
    "$binaries/kubelet" --config "$node/kubelet.yaml" --root-dir "$node/kubelet" \
    --kubeconfig "$state/kubeconfig" --hostname-override "node-$1" --node-ip "10.244.$1.1" \
    --cert-dir "$node/pki" --container-runtime remote --network-plugin cni \
    --cni-bin-dir /usr/lib/cni --cni-conf-dir "$node/cni" \
    --container-runtime-endpoint "unix://$node/containerd.sock"
  await "kubelet-node-$1" "http://127.0.0.1:$health/healthz"
}

# Pods find the API server at the service address, which this machine has; socat forwards it.
start_service_address() {
  ip addr replace "$service_address/32" dev lo
  start socat socat "TCP-LISTEN:443,bind=$service_address,fork,reuseaddr" "TCP:127.0.0.1:$1"
}

start_scheduler() {
  local port
  port=$(free_ports 1)
  start kube-scheduler "$binaries/kube-scheduler" --kubeconfig "$folder/kubeconfig" \
    --leader-elect=false --bind-address 127.0.0.1 --secure-port "$port" --port 0 \
    --cert-dir "$folder/pki" --authorization-always-allow-paths /healthz,/metrics
  await kube-scheduler --insecure "https://127.0.0.1:$port/healthz"
}

start_nodes() {
  local number
  mkdir -p "$state"
  echo "$folder" >"$state/owner"
  make_pause_image
  (umask 077 && cp "$folder/kubeconfig" "$state/kubeconfig")
  cp /proc/sys/net/ipv4/ip_forward "$state/ip_forward"
  cat /proc/sys/kernel/random/boot_id >"$state/boot"
  { echo "# before" && iptables-save 2>/dev/null; } >"$state/iptables"
  echo 1 >/proc/sys/net/ipv4/ip_forward
  start_service_address "$(sed -n 's|.*server: https://127.0.0.1:||p' "$folder/kubeconfig")"
  start_scheduler
  for number in $(seq "$nodes"); do start_node "$number"; done
}

# stop_node NUMBER: kills the node without notice, as if its machine were lost.
stop_node() {
  stop "kubelet-node-$1" 9
  stop "containerd-node-$1" 9
  remove_cgroup "lockstep-node-$1"
  pgrep -f -- "-address $state/node-$1/containerd.sock" | xargs -r kill -9 2>/dev/null || true
}

# Prints the folder of the cluster that owns this machine's nodes; nothing if there are none.
owner_of_nodes() { cat "$state/owner" 2>/dev/null || true; }

# Exits with 3 if nodes of another checkout still run, since a machine can have only one checkout's
# nodes. If they no longer run, after a reboot or if the checkout is gone, removes what is left of
# them.
take_over_nodes() {
  local owner mine=$folder
  owner=$(owner_of_nodes)
  [ -n "$owner" ] && [ "$owner" != "$folder" ] || return 0
  if pgrep -f -- "--root-dir $state/node-" >/dev/null; then
    echo "this machine runs the nodes of $owner: LOCKSTEP_CLUSTER=$owner tools/cluster down" >&2
    exit 3
  fi
  say "removing what is left of the nodes of $owner"
  folder=$owner
  stop_nodes
  folder=$mine
}

# Removes the firewall rules of kubelets and CNI's portmap, but none that existed before; ignores
# their counters, in brackets. Removes nothing if another Kubernetes had rules before, or if the
# machine has rebooted since.
remove_new_rules() {
  cmp -s "$state/boot" /proc/sys/kernel/random/boot_id && ! grep -q KUBE- "$state/iptables" || return 0
  iptables-save 2>/dev/null | awk '{ rule = $0; sub(/ *\[[0-9]+:[0-9]+\]/, "", rule) }
    NR == FNR { before[rule]; next }
    rule !~ /KUBE-|CNI-|cni/ || rule in before' "$state/iptables" - | iptables-restore
}

# Stops this cluster's nodes; other checkouts' nodes stay.
stop_nodes() {
  local node number
  [ "$(owner_of_nodes)" = "$folder" ] || return 0
  stop kube-scheduler
  stop socat
  for node in "$state"/node-*; do
    [ -d "$node" ] || continue
    number=${node##*-}
    stop_node "$number"
    awk -v under="$node/" 'index($2, under) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
    ip link del "lockstep$number" 2>/dev/null || true
  done
  ip addr del "$service_address/32" dev lo 2>/dev/null || true
  [ ! -s "$state/ip_forward" ] || cat "$state/ip_forward" >/proc/sys/net/ipv4/ip_forward
  remove_new_rules
  rm -rf "$state"
}
