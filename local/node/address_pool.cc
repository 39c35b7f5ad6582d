#include "local/node/address_pool.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>

namespace lockstep::local {
namespace {

constexpr int kTriesMax = 4096;
constexpr uint32_t kFirst = 1u << 16;  // 127.1.0.0: other programs use the addresses below it

bool can_bind(const std::string& address, uint16_t port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  bool bound = inet_pton(AF_INET, address.c_str(), &name.sin_addr) == 1 &&
               bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  close(fd);
  return bound;
}

std::string no_address_text(const std::map<uint16_t, int>& refusals, int tries,
                            const std::string& first) {
  if (refusals.empty())
    return "[node] expected a free address in 127.0.0.0/8, every one tried belongs to a pod";
  auto most = std::max_element(refusals.begin(), refusals.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string count = most->second == tries
                          ? "every one"
                          : std::to_string(most->second) + " (of " + std::to_string(tries) + ")";
  return "[node] port " + std::to_string(most->first) + " is in use on " + count +
         " of the addresses tried in 127.0.0.0/8, the first of them " + first +
         "; a program may listen on all addresses";
}

}  // namespace

AddressPool::AddressPool(uint64_t seed)
    : random_(seed), next_(static_cast<uint32_t>(random_.below(1u << 24))) {}

Result<std::string> AddressPool::take(const std::vector<uint16_t>& ports) {
  std::map<uint16_t, int> refusals;
  std::string first;
  int tries = 0;
  for (int i = 0; i < kTriesMax; ++i) {
    next_ = std::max((next_ + 1) & 0xFFFFFF, kFirst);
    uint32_t last = next_ & 255;
    if (last == 0 || last == 255) continue;
    std::string address = "127." + std::to_string(next_ >> 16) + "." +
                          std::to_string(next_ >> 8 & 255) + "." + std::to_string(last);
    if (taken_.contains(address)) continue;
    auto refused = std::find_if(ports.begin(), ports.end(),
                                [&](uint16_t port) { return !can_bind(address, port); });
    if (refused == ports.end()) {
      taken_.insert(address);
      return address;
    }
    ++refusals[*refused];
    ++tries;
    if (first.empty()) first = address;
  }
  return unavailable(no_address_text(refusals, tries, first));
}

}  // namespace lockstep::local
