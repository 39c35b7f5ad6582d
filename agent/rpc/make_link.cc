#include "agent/rpc/make_link.h"

#include <utility>

#include "agent/comm/sealed_link.h"
#include "agent/comm/tcp_link.h"

namespace lockstep::rpc {

std::unique_ptr<comm::Link> make_link(bool encrypts, uint32_t peer, comm::UniqueFd fd,
                                      const comm::SessionSecrets& secrets) {
  const auto rank = static_cast<int>(peer);
  if (!encrypts) return std::make_unique<comm::TcpLink>(rank, std::move(fd));
  return std::make_unique<comm::SealedLink>(rank, std::move(fd), secrets);
}

}  // namespace lockstep::rpc
