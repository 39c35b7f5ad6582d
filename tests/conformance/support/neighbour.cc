#include "tests/conformance/support/neighbour.h"

#include <algorithm>
#include <map>

namespace lockstep::conformance {
namespace {

constexpr char kLeases[] =
    "/apis/coordination.k8s.io/v1/leases?limit=500&fieldSelector="
    "metadata.name%3Dlockstep-controller";
constexpr int64_t kSecondsMax = 20;

struct Held {
  std::string holder;
  std::string renewed;
  int64_t seconds = 0;
};

// Returns the controllers' leases that somebody holds, by namespace.
std::map<std::string, Held> held_leases(const Server& server) {
  std::map<std::string, Held> held;
  const Reply list = server.ask("GET", kLeases);
  if (list.code != 200) return held;
  for (const Json& item : list.body.value("items", Json::array())) {
    const Json spec = item.value("spec", Json::object());
    Held one{
        .holder = string_or(spec, "holderIdentity", ""),
        .renewed = string_or(spec, "renewTime", ""),
        .seconds = std::clamp<int64_t>(int_or(spec, "leaseDurationSeconds", 0), 1, kSecondsMax)};
    if (!one.holder.empty()) held[string_or(item["metadata"], "namespace", "")] = std::move(one);
  }
  return held;
}

}  // namespace

std::optional<std::string> active_controller(const Server& server) {
  const std::map<std::string, Held> before = held_leases(server);
  if (before.empty()) return std::nullopt;
  int64_t seconds = 1;
  for (const auto& [name, lease] : before) seconds = std::max(seconds, lease.seconds);
  std::optional<std::string> found;
  const auto is_renewed = [&] {
    for (const auto& [name, lease] : held_leases(server)) {
      const auto known = before.find(name);
      if (known != before.end() && known->second.renewed == lease.renewed) continue;
      found = "a Lockstep controller runs on this server (Lease " + name +
              "/lockstep-controller, held by " + lease.holder +
              ") and would run the suites' jobs too; scale its Deployment to 0 replicas while the "
              "suites run";
    }
    return found.has_value();
  };
  (void)eventually(is_renewed, static_cast<double>(seconds));
  return found;
}

}  // namespace lockstep::conformance
