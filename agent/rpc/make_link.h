#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "agent/comm/link.h"
#include "agent/comm/records.h"
#include "agent/comm/socket.h"

namespace lockstep::rpc {

// Bytes read, or written, before other connections have their turn.
constexpr size_t kTurnBytes = size_t{4} << 20;

// Returns the stream over an authenticated connection, as the ranks' (agent/comm) have it.
std::unique_ptr<comm::Link> make_link(bool encrypts, uint32_t peer, comm::UniqueFd fd,
                                      const comm::SessionSecrets& secrets);

}  // namespace lockstep::rpc
