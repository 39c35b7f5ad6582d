#pragma once

#include <string>

namespace lockstep {

// What a connected socket goes over: "tcp 10.0.1.4 to 10.0.2.7 (eth0, 25000 Mb/s)", as far as the
// system says it. Never fails: what is not known is left out.
std::string describe_connection(int fd);

// An RDMA device, as the files below /sys/class/infiniband/<name>/ports/1 have it; empty: not
// known.
struct RdmaDevice {
  std::string name;
  std::string layer;  // "InfiniBand", "Ethernet"
  std::string rate;   // "400 Gb/sec (4X NDR)"
  std::string state;  // "4: ACTIVE"
};
// "mlx5_0 (InfiniBand, 400 Gb/sec, active)". Pure.
std::string rdma_device_text(const RdmaDevice& device);

// The RDMA devices of this machine, "mlx5_0 (InfiniBand, 400 Gb/sec, active), mlx5_1 (down)";
// empty: none. Of our transports none uses them; NCCL does by itself.
std::string rdma_devices(const std::string& root = "/sys/class/infiniband");

}  // namespace lockstep
