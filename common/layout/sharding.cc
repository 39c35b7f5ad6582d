#include "common/layout/sharding.h"

#include <array>
#include <cstddef>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> kShardings{"none", "optimizer", "gradients",
                                                     "parameters"};
constexpr std::array<std::string_view, 3> kOffloads{"none", "optimizer", "parameters"};
constexpr std::array<std::string_view, 3> kExchanges{"allReduce", "firstRank", "host"};

template <class Kind, size_t N>
Result<Kind> parse(const std::array<std::string_view, N>& names, std::string_view name) {
  std::string expected;
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Kind>(i);
    if (i > 0) expected += i + 1 < N ? ", " : " or ";
    expected += names[i];
  }
  return invalid("[parallelism] expected " + expected + ", got \"" + std::string(name) + "\"",
                 Blame::kConfig);
}

}  // namespace

std::string_view sharding_name(Sharding sharding) {
  return kShardings[static_cast<size_t>(sharding)];
}

Result<Sharding> parse_sharding(std::string_view name) {
  return parse<Sharding>(kShardings, name);
}

std::string_view offload_name(Offload offload) {
  return kOffloads[static_cast<size_t>(offload)];
}

Result<Offload> parse_offload(std::string_view name) {
  return parse<Offload>(kOffloads, name);
}

std::string_view exchange_name(Exchange exchange) {
  if (exchange == Exchange::kServers) return "servers";
  return kExchanges[static_cast<size_t>(exchange)];
}

Result<Exchange> parse_exchange(std::string_view name) {
  return parse<Exchange>(kExchanges, name);
}

}  // namespace lockstep
