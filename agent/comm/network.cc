#include "agent/comm/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace lockstep::comm {
namespace {

std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof text);
  }
  return text;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);
std::string end_of(int fd, NameOf name_of) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (name_of(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "?";
  return numeric(reinterpret_cast<const sockaddr*>(&address));
}

// Returns the interface with this address; all of 127.x.y.z is the loopback's.
std::string interface_of(const std::string& host) {
  if (host.rfind("127.", 0) == 0) return "lo";
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr != nullptr && numeric(at->ifa_addr) == host) return at->ifa_name;
  }
  return "";
}

// As the driver reports it; virtual devices report -1 or nothing.
std::string speed_of(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/speed");
  int megabits = 0;
  if (!(file >> megabits) || megabits <= 0) return "";
  return ", " + std::to_string(megabits) + " Mb/s";
}

// Returns the first line of a file, at most 64 characters; empty if it cannot be read.
std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.substr(0, 64);
}

}  // namespace

std::string describe_connection(int fd) {
  const std::string from = end_of(fd, ::getsockname);
  std::string text = "tcp " + from + " to " + end_of(fd, ::getpeername);
  const std::string interface = interface_of(from);
  if (!interface.empty()) text += " (" + interface + speed_of(interface) + ")";
  return text;
}

std::string rdma_device_text(const RdmaDevice& device) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? " (" : ", ") + part;
  };
  add(device.layer);
  // Drop what follows, such as "(4X NDR)".
  add(device.rate.substr(0, device.rate.find(" (")));
  const size_t colon = device.state.find(": ");
  std::string state = colon == std::string::npos ? device.state : device.state.substr(colon + 2);
  std::transform(state.begin(), state.end(), state.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  add(state);
  return device.name + text + (text.empty() ? "" : ")");
}

std::string rdma_devices(const std::string& root) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator at(root, error), end; !error && at != end;
       at.increment(error)) {
    names.push_back(at->path().filename());
  }
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) {
    const std::string port = root + "/" + name + "/ports/1/";
    text += (text.empty() ? "" : ", ") + rdma_device_text({.name = name,
                                                           .layer = line_of(port + "link_layer"),
                                                           .rate = line_of(port + "rate"),
                                                           .state = line_of(port + "state")});
  }
  return text;
}

}  // namespace lockstep::comm
