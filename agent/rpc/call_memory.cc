#include "agent/rpc/call_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/crc32c.h"

namespace lockstep::rpc {
namespace {

constexpr uint32_t kExportMagic = 0x314d434c;  // "LCM1"

struct ExportHead {
  uint32_t magic = kExportMagic;
  uint32_t crc = 0;  // CRC-32C of all that follows this head
  uint64_t clients = 0;
};
struct ExportClient {
  uint64_t client = 0;
  uint64_t floor = 0;
  uint64_t entries = 0;
};
struct ExportEntry {
  uint64_t number = 0;
  uint32_t bytes = 0;
  uint16_t head_bytes = 0;
  uint8_t code = 0;
  uint8_t spare = 0;
};
static_assert(sizeof(ExportHead) == 16 && sizeof(ExportClient) == 24 && sizeof(ExportEntry) == 16);

template <class T>
void put(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool take(std::string_view& text, T& value) {
  if (text.size() < sizeof value) return false;
  std::memcpy(static_cast<void*>(&value), text.data(), sizeof value);
  text.remove_prefix(sizeof value);
  return true;
}

struct Imported {
  ExportClient head;
  std::vector<std::pair<uint64_t, CallOutcome>> outcomes;
};

bool take_outcome(std::string_view& text, Imported& client) {
  ExportEntry entry;
  if (!take(text, entry) || entry.bytes > kRememberedReplyMax || entry.bytes > text.size()) {
    return false;
  }
  const uint64_t floor = client.head.floor;
  const bool is_error = entry.code != 0;
  if (entry.number < floor || entry.number - floor >= kUnfinishedMax || entry.code > 7 ||
      entry.head_bytes > (is_error ? 0 : entry.bytes) || entry.head_bytes > kHeadMax) {
    return false;
  }
  const bool ascends = client.outcomes.empty() || client.outcomes.back().first < entry.number;
  if (!ascends) return false;
  client.outcomes.emplace_back(entry.number,
                               CallOutcome{.code = entry.code,
                                           .head_bytes = entry.head_bytes,
                                           .bytes = std::string(text.substr(0, entry.bytes))});
  text.remove_prefix(entry.bytes);
  return true;
}

Result<std::vector<Imported>> parse_export(std::string_view text) {
  const Error damaged = corrupt("[rpc] calls: expected an export of finished calls, it is damaged");
  ExportHead head;
  if (!take(text, head) || head.magic != kExportMagic ||
      head.crc != crc32c(text.data(), text.size())) {
    return damaged;
  }
  std::vector<Imported> clients;
  for (uint64_t i = 0; i < head.clients; ++i) {
    Imported client;
    if (!take(text, client.head)) return damaged;
    for (uint64_t j = 0; j < client.head.entries; ++j) {
      if (!take_outcome(text, client)) return damaged;
    }
    clients.push_back(std::move(client));
  }
  if (!text.empty()) return damaged;
  return clients;
}

}  // namespace

Result<CallMemory::Client*> CallMemory::client_of(uint64_t client) {
  const auto found = clients_.find(client);
  if (found != clients_.end()) return &found->second;
  if (clients_.size() >= options_.clients_max) {
    return unavailable("[rpc] calls: there are " + std::to_string(clients_.size()) +
                       " clients already, the most that this server remembers");
  }
  return &clients_[client];
}

void CallMemory::raise_floor(Client& client, uint64_t floor) {
  if (floor <= client.floor) return;
  client.floor = floor;
  const auto end = client.entries.lower_bound(floor);
  for (auto at = client.entries.begin(); at != end; at = client.entries.erase(at)) {
    client.bytes -= at->second.outcome.bytes.size();
  }
}

Result<CallMemory::Seen> CallMemory::begin(CallId id, uint64_t floor) {
  TRY_ASSIGN(Client* const client, client_of(id.client));
  raise_floor(*client, floor);
  if (id.number < client->floor) return Seen::kFinished;
  const auto found = client->entries.find(id.number);
  if (found != client->entries.end()) return found->second.is_done ? Seen::kDone : Seen::kRunning;
  if (id.number - client->floor >= kUnfinishedMax) {
    return corrupt("sent call " + std::to_string(id.number) + " while call " +
                   std::to_string(client->floor) + " is unfinished: expected at most " +
                   std::to_string(kUnfinishedMax - 1) + " between them");
  }
  if (client->bytes > options_.bytes_max) {
    return unavailable("[rpc] calls: the replies that this client has not taken have " +
                       std::to_string(client->bytes) + " bytes, more than this server remembers");
  }
  client->entries.emplace(id.number, Entry());
  return Seen::kNew;
}

const CallOutcome* CallMemory::outcome(CallId id) const {
  const auto client = clients_.find(id.client);
  if (client == clients_.end()) return nullptr;
  const auto found = client->second.entries.find(id.number);
  if (found == client->second.entries.end() || !found->second.is_done) return nullptr;
  return &found->second.outcome;
}

void CallMemory::finish(CallId id, CallOutcome outcome) {
  CHECK(outcome.bytes.size() <= kRememberedReplyMax);
  const auto client = clients_.find(id.client);
  if (client == clients_.end()) return;
  const auto found = client->second.entries.find(id.number);
  if (found == client->second.entries.end() || found->second.is_done) return;
  client->second.bytes += outcome.bytes.size();
  found->second = {.is_done = true, .outcome = std::move(outcome)};
}

void CallMemory::undo(CallId id) {
  const auto client = clients_.find(id.client);
  if (client == clients_.end()) return;
  const auto found = client->second.entries.find(id.number);
  if (found != client->second.entries.end() && !found->second.is_done) {
    client->second.entries.erase(found);
  }
}

void CallMemory::forget_client(uint64_t client) {
  clients_.erase(client);
}

size_t CallMemory::bytes() const {
  size_t bytes = 0;
  for (const auto& [number, client] : clients_) bytes += client.bytes;
  return bytes;
}

std::string CallMemory::export_all() const {
  std::string body;
  for (const auto& [number, client] : clients_) {
    const auto done = std::count_if(client.entries.begin(), client.entries.end(),
                                    [](const auto& entry) { return entry.second.is_done; });
    put(body, ExportClient{
                  .client = number, .floor = client.floor, .entries = static_cast<uint64_t>(done)});
    for (const auto& [call, entry] : client.entries) {
      if (!entry.is_done) continue;
      put(body, ExportEntry{.number = call,
                            .bytes = static_cast<uint32_t>(entry.outcome.bytes.size()),
                            .head_bytes = entry.outcome.head_bytes,
                            .code = entry.outcome.code});
      body += entry.outcome.bytes;
    }
  }
  std::string text;
  put(text, ExportHead{.crc = crc32c(body.data(), body.size()), .clients = clients_.size()});
  return text + body;
}

Result<std::vector<uint64_t>> CallMemory::import_from(std::string_view exported) {
  TRY_ASSIGN(std::vector<Imported> all, parse_export(exported));
  size_t more = 0;
  for (const Imported& imported : all) more += clients_.count(imported.head.client) == 0 ? 1 : 0;
  if (clients_.size() + more > options_.clients_max) {
    return unavailable("[rpc] calls: an import has more clients than this server remembers");
  }
  std::vector<uint64_t> clients;
  for (Imported& imported : all) {
    clients.push_back(imported.head.client);
    Client& client = clients_[imported.head.client];
    raise_floor(client, imported.head.floor);
    for (auto& [number, outcome] : imported.outcomes) {
      if (number < client.floor) continue;
      Entry& entry = client.entries[number];
      if (entry.is_done) continue;
      client.bytes += outcome.bytes.size();
      entry = {.is_done = true, .outcome = std::move(outcome)};
    }
  }
  return clients;
}

}  // namespace lockstep::rpc
