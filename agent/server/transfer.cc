#include "agent/server/transfer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "agent/server/parameter_client.h"

namespace lockstep::server {

TransferPart::~TransferPart() {
  view->remove(*this);
}

void TransferPart::begin(bool sends_keys) {
  const bool says_so = repeats && method == &kPush;
  head.flags = static_cast<uint16_t>((sends_keys ? CallHead::kSendsKeys : 0) |
                                     (says_so ? CallHead::kRepeats : 0) |
                                     (selection.empty() ? 0 : CallHead::kSelects));
  std::vector<rpc::Bytes> body;
  if (sends_keys) body.push_back(std::as_bytes(keys));
  if (!selection.empty()) body.push_back(std::as_bytes(std::span(selection)));
  if (!values.empty()) body.push_back(values);
  const bool is_encoded = reply.encoding != Encoding::kF32;
  if (is_encoded) encoded.resize(encoded_bytes(reply));
  const std::span<std::byte> memory[] = {is_encoded ? std::span(encoded)
                                                    : std::as_writable_bytes(into)};
  rpc::CallOptions options{.head = std::as_bytes(std::span(&head, 1)),
                           .body = body,
                           .into = into.empty() ? std::span<const std::span<std::byte>>() : memory,
                           .reply_bytes_max = 0,
                           .timeout = timeout};
  if (view->is_patient()) options.on_done = [view = view] { view->notify(); };
  // Another call into the same memory ends first.
  call = rpc::Call();
  call = peer.call(*method, options);
}

// Whether the server has forgotten the list of keys.
bool TransferPart::lacks_keys() const {
  const bool has_sent_keys = (head.flags & CallHead::kSendsKeys) != 0;
  const Status& status = call.status();
  return !status.ok() && status.error().code == Code::kNotFound && sent != nullptr &&
         !has_sent_keys;
}

Result<ReplyHead> TransferPart::wait() {
  view->wait(*this);
  while (lacks_keys()) {
    sent->remove(head.signature);
    view->begin(*this);
    view->wait(*this);
  }
  TRY(call.status());
  if (sent != nullptr) sent->add(head.signature);
  return finish();
}

Result<ReplyHead> TransferPart::finish() {
  TRY_ASSIGN(const ReplyHead said, parse_reply(call.head()));
  const uint64_t expected = encoded_bytes(reply);
  if (call.body_bytes() != expected) {
    return corrupt("[server] expected a reply of " + std::to_string(expected) + " bytes, got " +
                       std::to_string(call.body_bytes()),
                   Blame::kPeer);
  }
  if (reply.encoding != Encoding::kF32) decode(reply, encoded, into);
  scatter();
  if (recorder) {
    const auto kind = method == &kPull   ? ClientEvent::Kind::kPull
                      : method == &kPush ? ClientEvent::Kind::kPush
                                         : ClientEvent::Kind::kPut;
    recorder({.kind = kind,
              .unit = {head.kind, head.unit, head.slot},
              .clock = head.clock,
              .reply = said,
              .keys = keys,
              .values = into});
  }
  return said;
}

void TransferPart::scatter() const {
  if (scatter_to.empty()) return;
  const size_t dim = rows.size() / routed.keys.size();
  for (size_t i = 0; i < routed.places.size(); ++i) {
    std::copy_n(rows.data() + i * dim, dim, scatter_to.data() + routed.places[i] * dim);
  }
}

Transfer::Transfer(std::vector<std::unique_ptr<TransferPart>> parts) : parts_(std::move(parts)) {}

Transfer::Transfer(Error refused) : refused_(std::move(refused)) {}

Transfer::Transfer(Transfer&&) noexcept = default;
Transfer& Transfer::operator=(Transfer&&) noexcept = default;
Transfer::~Transfer() = default;

bool Transfer::is_done() const {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->view->is_done(*part); });
}

Result<Transfer::Outcome> Transfer::wait() {
  TRY(refused_);
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  Outcome outcome{.slowest = kNone, .own = kNone};
  Status failed;
  for (const auto& part : parts_) {
    const auto reply = part->wait();
    if (!reply.ok()) {
      if (failed.ok()) failed = reply.error();
      continue;
    }
    outcome.slowest = std::min(outcome.slowest, reply->slowest);
    outcome.own = std::min(outcome.own, reply->own);
    outcome.is_late |= reply->is_late != 0;
  }
  TRY(failed);
  return outcome;
}

}  // namespace lockstep::server
