#pragma once

#include <string>

namespace lockstep {

// What a connected socket goes over: "tcp 10.0.1.4 to 10.0.2.7 (eth0, 25000 Mb/s)", as far as the
// system says it. Never fails: what is not known is left out.
std::string describe_connection(int fd);

// The RDMA devices of this machine, "mlx5_0, mlx5_1"; empty: none. No backend uses them.
std::string rdma_devices();

}  // namespace lockstep
