#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/server/messages.h"
#include "agent/server/routing.h"
#include "agent/server/sent_lists.h"

namespace lockstep::server {

// The calls of a transfer to one server: one, and a second one if the server does not know the
// signature of the keys. Memory that calls refer to is here or the caller's, so a part stays where
// it is.
struct TransferPart {
  rpc::Peer peer;
  const rpc::Method* method = nullptr;
  CallHead head;
  Duration timeout{};
  std::shared_ptr<SentLists> sent;  // null for a range

  std::span<const uint64_t> keys;  // in `routed`, or the caller's
  rpc::Bytes values;               // push, put
  std::span<float> into;           // pull
  EncodedFloats reply;             // pull
  std::vector<std::byte> encoded;  // push: memory of `values`, maybe; pull: of an encoded reply
  // Rows of a table that several servers have: those of this one, gathered in `rows`.
  RoutedKeys routed;
  std::vector<float> rows;
  std::span<float> scatter_to;  // pull: the caller's [all keys, dim]

  rpc::Call call;

  void begin(bool sends_keys);
  // Waits, and begins again with the keys if need be.
  Result<ReplyHead> wait();

 private:
  Result<ReplyHead> finish();
  void scatter() const;
};

}  // namespace lockstep::server
