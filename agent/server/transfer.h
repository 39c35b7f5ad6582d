#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/server/client_history.h"
#include "agent/server/current_view.h"
#include "agent/server/encoding.h"
#include "agent/server/messages.h"
#include "agent/server/routing.h"
#include "agent/server/sent_lists.h"

namespace lockstep::server {

// The call of a transfer to one unit, and further ones: if the server does not know the signature
// of the keys, or if a later view moves the unit. Memory that calls refer to is here or the
// caller's, so a part stays where it is. The current view guards `call` until it was waited for.
struct TransferPart {
  explicit TransferPart(std::shared_ptr<CurrentView> current) : view(std::move(current)) {}
  ~TransferPart();

  std::shared_ptr<CurrentView> view;
  const rpc::Method* method = nullptr;
  CallHead head;
  Duration timeout{};
  ClientRecorder recorder;  // may be empty
  bool repeats = false;     // a server may have taken it

  // By the current view:
  uint32_t server = 0;
  rpc::Peer peer;
  std::shared_ptr<SentLists> sent;  // null for a range

  std::span<const uint64_t> keys;  // in `routed`, or the caller's
  RowSelection selection;          // push of rows; empty: all
  rpc::Bytes values;               // push, put
  std::span<float> into;           // pull
  EncodedFloats reply;             // pull
  std::vector<std::byte> encoded;  // push: memory of `values`, maybe; pull: of an encoded reply
  // Rows of a table that has several slots: those of this one, gathered in `rows`.
  RoutedKeys routed;
  std::vector<float> rows;
  std::span<float> scatter_to;  // pull: the caller's [all keys, dim]

  rpc::Call call;

  void begin(bool sends_keys);
  // Waits, and begins again with the keys if need be.
  Result<ReplyHead> wait();

 private:
  bool lacks_keys() const;
  Result<ReplyHead> finish();
  void scatter() const;
};

}  // namespace lockstep::server
