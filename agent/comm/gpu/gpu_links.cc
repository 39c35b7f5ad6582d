#include "agent/comm/gpu/gpu_links.h"

#include <algorithm>
#include <array>
#include <map>

#include "kernels/device/device.h"
#include "kernels/device/nvml.h"

namespace lockstep::comm {
namespace {

constexpr size_t kPairsMax = 16;  // that are listed one by one

// Returns "2 x NVIDIA H200, 1 x NVIDIA A40", in the order of first appearance.
std::string names_text(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int>> counted;
  for (const std::string& name : names) {
    const auto found = std::find_if(counted.begin(), counted.end(),
                                    [&](const auto& one) { return one.first == name; });
    if (found == counted.end()) {
      counted.emplace_back(name, 1);
    } else {
      ++found->second;
    }
  }
  std::string text;
  for (const auto& [name, count] : counted) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + name;
  }
  return text;
}

std::string pairs_text(const std::vector<std::string>& pairs) {
  std::string text;
  for (size_t i = 0; i < std::min(pairs.size(), kPairsMax); ++i) {
    text += (i == 0 ? " " : ", ") + pairs[i];
  }
  if (pairs.size() > kPairsMax) {
    text += " and " + std::to_string(pairs.size() - kPairsMax) + " more pairs";
  }
  return text;
}

// Names the link that most pairs have, then the pairs with another one.
std::string links_text(const GpusSeen& gpus) {
  std::array<std::vector<std::string>, 3> pairs;  // by link
  for (size_t a = 0; a < gpus.links.size(); ++a) {
    for (size_t b = a + 1; b < gpus.links.size(); ++b) {
      pairs[static_cast<size_t>(gpus.links[a][b])].push_back(std::to_string(a) + "-" +
                                                             std::to_string(b));
    }
  }
  const auto most = std::max_element(
      pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const auto common = static_cast<size_t>(most - pairs.begin());
  std::string text = std::string(name_of(static_cast<GpuLink>(common))) + " between all";
  std::string others;
  for (size_t link = 0; link < pairs.size(); ++link) {
    if (link == common || pairs[link].empty()) continue;
    others += (others.empty() ? " but " : "; ") + std::string(name_of(static_cast<GpuLink>(link))) +
              pairs_text(pairs[link]);
  }
  return text + others;
}

}  // namespace

const char* name_of(GpuLink link) {
  static constexpr const char* kNames[] = {"NVLink", "PCIe", "host memory"};
  return kNames[static_cast<size_t>(link)];
}

GpuLink link_of(const GpuPair& pair, int nvlinks) {
  if (!pair.can_access) return GpuLink::kHost;
  return pair.native_atomics && nvlinks != 0 ? GpuLink::kNvlink : GpuLink::kPcie;
}

GpusSeen look_at_gpus() {
  GpusSeen seen;
  const auto nvml = kernels::Nvml::load();
  const int count = kernels::device_count(kernels::DeviceType::kCuda);
  for (int index = 0; index < count; ++index) {
    const auto info = kernels::describe({kernels::DeviceType::kCuda, index});
    seen.names.push_back(info.ok() ? info->name : "unknown GPU");
    seen.buses.push_back(info.ok() ? info->bus : "");
    const auto links = nvml.ok() ? (*nvml)->nvlinks(seen.buses.back()) : Result<int>(-1);
    seen.nvlinks.push_back(links.ok() ? *links : -1);
  }
  for (int from = 0; from < count; ++from) {
    auto& row = seen.links.emplace_back();
    for (int to = 0; to < count; ++to) {
      const auto access = kernels::peer_access(from, to);
      const GpuPair pair{.can_access = access.ok() && access->can_access,
                         .native_atomics = access.ok() && access->native_atomics};
      const int links =
          std::min(seen.nvlinks[static_cast<size_t>(from)], seen.nvlinks[static_cast<size_t>(to)]);
      row.push_back(link_of(pair, links));
    }
  }
  return seen;
}

std::string nccl_path(const GpusSeen& gpus, const GpuRoute& route) {
  if (!route.is_one_host) return "network (NCCL)";
  const auto index = [&gpus](const std::string& bus) {
    return static_cast<size_t>(std::find(gpus.buses.begin(), gpus.buses.end(), bus) -
                               gpus.buses.begin());
  };
  const size_t from = index(route.from);
  const size_t to = index(route.to);
  // A process may see only its own GPU.
  if (from >= gpus.links.size() || to >= gpus.links.size()) return "not visible (NCCL)";
  return std::string(name_of(gpus.links[from][to])) + " (NCCL)";
}

std::string gpus_text(const GpusSeen& gpus) {
  if (gpus.names.empty()) return "none";
  std::string text = names_text(gpus.names);
  if (gpus.names.size() > 1) text += ", " + links_text(gpus);
  const int links = *std::min_element(gpus.nvlinks.begin(), gpus.nvlinks.end());
  if (links > 0) text += " (" + std::to_string(links) + " NVLinks each)";
  return text;
}

}  // namespace lockstep::comm
