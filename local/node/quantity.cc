#include "local/node/quantity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "local/node/fields.h"

namespace lockstep::local {
namespace {

constexpr size_t kTextMax = 64;

struct Suffix {
  std::string_view text;
  long double factor;
};

constexpr long double kKi = 1024.0L;
constexpr std::array<Suffix, 16> kSuffixes = {{{"", 1.0L},
                                               {"n", 1e-9L},
                                               {"u", 1e-6L},
                                               {"m", 1e-3L},
                                               {"k", 1e3L},
                                               {"M", 1e6L},
                                               {"G", 1e9L},
                                               {"T", 1e12L},
                                               {"P", 1e15L},
                                               {"E", 1e18L},
                                               {"Ki", kKi},
                                               {"Mi", kKi* kKi},
                                               {"Gi", kKi* kKi* kKi},
                                               {"Ti", kKi* kKi* kKi* kKi},
                                               {"Pi", kKi* kKi* kKi* kKi* kKi},
                                               {"Ei", kKi* kKi* kKi* kKi* kKi* kKi}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns the length of the number at the front: [sign] digits [. digits] [e [sign] digits].
size_t number_length(std::string_view text) {
  size_t at = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  bool digits = false;
  for (; at < text.size() && (is_digit(text[at]) || text[at] == '.'); ++at)
    digits = digits || is_digit(text[at]);
  if (!digits) return 0;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    size_t end = at + 1;
    if (end < text.size() && (text[end] == '+' || text[end] == '-')) ++end;
    size_t first = end;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end > first) return end;
  }
  return at;
}

void add(Resources& to, const Resources& more) {
  for (const auto& [name, value] : more) {
    int64_t& sum = to[name];
    if (__builtin_add_overflow(sum, value, &sum)) sum = std::numeric_limits<int64_t>::max();
  }
}

Resources container_requests(const Json& container) {
  const Json& resources = object_of(container, "resources");
  Resources requests = resources_from_json(object_of(resources, "requests"));
  requests.merge(resources_from_json(object_of(resources, "limits")));
  return requests;
}

}  // namespace

Result<int64_t> milli_quantity(std::string_view text) {
  Error error = invalid("expected a quantity such as 500m, 2 or 1Gi, found \"" +
                        std::string(text.substr(0, kTextMax)) + "\"");
  if (text.size() > kTextMax) return error;
  std::string number(text.substr(0, number_length(text)));
  if (number.empty() || std::count(number.begin(), number.end(), '.') > 1) return error;
  auto suffix = std::find_if(kSuffixes.begin(), kSuffixes.end(), [&](const Suffix& candidate) {
    return candidate.text == text.substr(number.size());
  });
  if (suffix == kSuffixes.end()) return error;
  long double value = std::ceil(std::strtold(number.c_str(), nullptr) * suffix->factor * 1000.0L);
  constexpr auto kMax = std::numeric_limits<int64_t>::max();
  if (value >= static_cast<long double>(kMax)) return kMax;
  if (value <= -static_cast<long double>(kMax)) return -kMax;
  return static_cast<int64_t>(value);
}

Resources resources_from_json(const Json& quantities) {
  Resources resources;
  if (!quantities.is_object()) return resources;
  for (const auto& [name, value] : quantities.items()) {
    Result<int64_t> amount =
        milli_quantity(value.is_string() ? value.get<std::string>() : dump_json(value));
    if (amount.ok()) resources[name] = *amount;
  }
  return resources;
}

Resources pod_requests(const Json& pod) {
  const Json& spec = object_of(pod, "spec");
  Resources sum;
  for (const Json& container : array_of(spec, "containers"))
    add(sum, container_requests(container));
  for (const Json& container : array_of(spec, "initContainers")) {
    for (const auto& [name, value] : container_requests(container))
      sum[name] = std::max(sum[name], value);
  }
  return sum;
}

}  // namespace lockstep::local
