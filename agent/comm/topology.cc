#include "agent/comm/topology.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "agent/comm/gpu/gpu_links.h"
#include "agent/comm/message_text.h"
#include "agent/comm/network.h"

namespace lockstep::comm {
namespace {

using Text = std::array<char, 128>;
using LongText = std::array<char, 1024>;  // for a host's devices

template <class T = Text>
T text_of(const std::string& line) {
  T text{};
  std::memcpy(text.data(), line.data(), std::min(line.size(), text.size() - 1));
  return text;
}

// Returns "SHM" for "shared memory", otherwise the first word.
std::string short_name(const std::string& path) {
  if (path == "itself") return "-";
  if (path.starts_with("shared memory")) return "SHM";
  std::string name = path.substr(0, path.find(' '));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

std::string cell(const std::string& text) {
  std::string padded = text;
  padded.append(padded.size() < 7 ? 7 - padded.size() : 0, ' ');
  return padded + " ";
}

std::string pairs(const std::vector<std::vector<std::string>>& paths) {
  std::string text = cell("");
  for (size_t rank = 0; rank < paths.size(); ++rank) text += cell("to " + std::to_string(rank));
  text += "\n";
  for (size_t rank = 0; rank < paths.size(); ++rank) {
    text += cell("rank " + std::to_string(rank));
    for (const std::string& path : paths[rank]) text += cell(short_name(path));
    text += "\n";
  }
  return text;
}

// Returns the paths from this rank to every other.
std::vector<Text> own_paths(const Communicator& group) {
  std::vector<Text> mine;
  mine.reserve(static_cast<size_t>(group.size()));
  for (int peer = 0; peer < group.size(); ++peer) mine.push_back(text_of(group.path_to(peer)));
  return mine;
}

struct HostDevices {
  LongText rdma{};
  LongText gpus{};
};

// Only the first rank of a host looks; the others return nothing.
HostDevices own_devices(const Communicator& group) {
  if (group.hosts().place[static_cast<size_t>(group.rank())] != 0) return {};
  return {.rdma = text_of<LongText>(rdma_devices()),
          .gpus = text_of<LongText>(gpus_text(look_at_gpus()))};
}

std::string rdma_text(const std::string& devices) {
  return devices.empty() ? "none" : devices + " (used only by NCCL)";
}

// `within`: the path from a host's first rank to its second, by host; empty: left out.
std::string hosts_text(const HostMap& hosts, const std::vector<HostDevices>& devices,
                       const std::vector<std::string>& within) {
  std::string text;
  for (int host = 0; host < hosts.hosts(); ++host) {
    const std::vector<int>& there = hosts.ranks[static_cast<size_t>(host)];
    const HostDevices& own = devices[static_cast<size_t>(there.front())];
    const std::string rdma = own.rdma.data();
    const std::string path = within.empty() ? "" : within[static_cast<size_t>(host)];
    text += "host " + std::to_string(host) + ": ranks " + rank_list(there) +
            (path.empty() ? "" : ", " + path) + "; RDMA devices: " + rdma_text(rdma) +
            "; GPUs: " + own.gpus.data() + "\n";
  }
  return text;
}

}  // namespace

std::string topology_summary(const Communicator& group) {
  const HostMap& hosts = group.hosts();
  std::string within;
  std::string between;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    const bool is_near =
        hosts.host[static_cast<size_t>(rank)] == hosts.host[static_cast<size_t>(group.rank())];
    std::string& path = is_near ? within : between;
    if (path.empty()) path = group.path_to(rank);
  }
  std::string text = std::to_string(group.size()) + (group.size() == 1 ? " rank" : " ranks") +
                     " on " + std::to_string(hosts.hosts()) +
                     (hosts.hosts() == 1 ? " host" : " hosts");
  if (!within.empty()) text += ": " + within + " within";
  if (!between.empty()) text += (within.empty() ? ": " : ", ") + between + " between";
  return text + "; RDMA devices here: " + rdma_text(rdma_devices());
}

Result<std::string> topology_table(Communicator& group) {
  const HostMap& hosts = group.hosts();
  TRY_ASSIGN(const std::vector<HostDevices> devices, group.all_gather_value(own_devices(group)));
  if (group.size() > kTopologyRanksMax) {
    return topology_summary(group) + "\n" + hosts_text(hosts, devices, {});
  }
  const std::vector<Text> mine = own_paths(group);
  std::vector<Text> all(mine.size() * mine.size());
  TRY(group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))));
  std::vector<std::vector<std::string>> paths(mine.size());
  std::string between;
  std::vector<std::string> within(static_cast<size_t>(hosts.hosts()));
  for (size_t from = 0; from < mine.size(); ++from) {
    for (size_t to = 0; to < mine.size(); ++to) {
      paths[from].emplace_back(all[from * mine.size() + to].data());
      if (hosts.host[from] == hosts.host[to] && hosts.place[from] == 0 && hosts.place[to] == 1) {
        within[static_cast<size_t>(hosts.host[from])] = paths[from].back();
      }
      const bool is_first = hosts.place[from] == 0 && hosts.place[to] == 0;
      if (!is_first || hosts.host[from] >= hosts.host[to]) continue;
      between += "host " + std::to_string(hosts.host[from]) + " to host " +
                 std::to_string(hosts.host[to]) + ": " + paths[from].back() + "\n";
    }
  }
  return pairs(paths) + hosts_text(hosts, devices, within) + between;
}

}  // namespace lockstep::comm
