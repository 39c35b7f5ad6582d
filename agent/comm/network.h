#pragma once

#include <string>

namespace lockstep::comm {

// Describes the path of a connected socket: "tcp 10.0.1.4 to 10.0.2.7 (eth0, 25000 Mb/s)", as far
// as the system reports it. Never fails: leaves out what is unknown.
std::string describe_connection(int fd);

// An RDMA device, as in the files below /sys/class/infiniband/<name>/ports/1. An empty field is
// unknown.
struct RdmaDevice {
  std::string name;
  std::string layer;  // "InfiniBand", "Ethernet"
  std::string rate;   // "400 Gb/sec (4X NDR)"
  std::string state;  // "4: ACTIVE"
};
// Returns "mlx5_0 (InfiniBand, 400 Gb/sec, active)". Pure.
std::string rdma_device_text(const RdmaDevice& device);

// Lists the RDMA devices of this machine: "mlx5_0 (InfiniBand, 400 Gb/sec, active), mlx5_1 (down)";
// empty if there are none. None of our transports uses them; NCCL finds them without our help.
std::string rdma_devices(const std::string& root = "/sys/class/infiniband");

}  // namespace lockstep::comm
