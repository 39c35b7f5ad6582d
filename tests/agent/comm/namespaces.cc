#include "tests/agent/comm/namespaces.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <new>
#include <thread>

#include "agent/comm/make_communicator.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace lockstep::test {
namespace {

constexpr int kMtu = 9000;
// Most packets that wait for one host, as in a switch's buffer; more are dropped.
constexpr size_t kQueueMax = 4096;

Status on_thread_of_its_own(const std::function<Status()>& body) {
  Status status;
  std::thread([&] { status = body(); }).join();
  return status;
}

Status named(const char* what) {
  return unavailable(std::string("[namespaces] ") + what + ": " + std::strerror(errno));
}

sockaddr_in v4(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  return address;
}

// In the calling thread's namespace, brings up the device "wire" with this address.
Status configure(const std::string& address) {
  const comm::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return named("a socket to configure with");
  ifreq request{};
  const auto begin = [&](const char* name) {
    request = {};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  };
  begin("wire");
  const sockaddr_in own = v4(address);
  std::memcpy(&request.ifr_addr, &own, sizeof own);
  if (::ioctl(fd.get(), SIOCSIFADDR, &request) != 0) return named("SIOCSIFADDR");
  const sockaddr_in mask = v4("255.255.255.0");
  std::memcpy(&request.ifr_netmask, &mask, sizeof mask);
  if (::ioctl(fd.get(), SIOCSIFNETMASK, &request) != 0) return named("SIOCSIFNETMASK");
  begin("wire");
  request.ifr_mtu = kMtu;
  if (::ioctl(fd.get(), SIOCSIFMTU, &request) != 0) return named("SIOCSIFMTU");
  for (const char* name : {"wire", "lo"}) {
    begin(name);
    if (::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return named("SIOCGIFFLAGS");
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
    if (::ioctl(fd.get(), SIOCSIFFLAGS, &request) != 0) return named("SIOCSIFFLAGS");
  }
  return {};
}

}  // namespace

// Carries packets until its process ends.
class Namespaces::Relay {
 public:
  explicit Relay(Namespaces& network)
      : network_(network), random_(network.options_.seed), queues_(network.hosts_.size()) {}

  [[noreturn]] void run() {
    std::vector<pollfd> polled;
    for (const auto& host : network_.hosts_) {
      polled.push_back({.fd = host.wire.get(), .events = POLLIN, .revents = 0});
    }
    for (;;) {
      deliver();
      const timespec rest = until_next();
      ::ppoll(polled.data(), polled.size(), &rest, nullptr);
      for (size_t host = 0; host < network_.hosts_.size(); ++host) take_from(host);
    }
  }

 private:
  struct Packet {
    TimePoint due;
    std::vector<std::byte> bytes;
  };

  void take_from(size_t from) {
    std::array<std::byte, kMtu + 64> memory;
    for (;;) {
      const ssize_t got = ::read(network_.hosts_[from].wire.get(), memory.data(), memory.size());
      if (got < 20) return;
      // IPv4; the last byte of the destination is the host.
      const auto version = std::to_integer<int>(memory[0]) >> 4;
      const auto to = static_cast<size_t>(std::to_integer<int>(memory[19])) - 1;
      if (version != 4 || to >= queues_.size()) continue;
      const bool by_chance = random_.uniform() < network_.options_.loss;
      const bool is_cut = is_cut_off(from) || is_cut_off(to);
      if (by_chance || is_cut || queues_[to].size() >= kQueueMax) {
        ++network_.counts_->lost;
        continue;
      }
      queues_[to].push_back({.due = clock_.now() + network_.options_.delay,
                             .bytes = {memory.begin(), memory.begin() + got}});
    }
  }

  bool is_cut_off(size_t host) const {
    if ((network_.counts_->cut >> host & 1) != 0) return true;
    const uint64_t after = network_.options_.cut_after;
    return after > 0 && network_.counts_->carried >= after && host + 1 == queues_.size();
  }

  void deliver() {
    const TimePoint now = clock_.now();
    for (size_t to = 0; to < queues_.size(); ++to) {
      while (!queues_[to].empty() && queues_[to].front().due <= now) {
        const auto& bytes = queues_[to].front().bytes;
        const int wire = network_.hosts_[to].wire.get();
        const bool gone = ::write(wire, bytes.data(), bytes.size()) < 0;
        ++(gone ? network_.counts_->lost : network_.counts_->carried);
        queues_[to].pop_front();
      }
    }
  }

  timespec until_next() const {
    Duration rest = std::chrono::seconds(1);
    const TimePoint now = clock_.now();
    for (const auto& queue : queues_) {
      if (!queue.empty()) rest = std::min(rest, queue.front().due - now);
    }
    rest = std::max(rest, Duration::zero());
    return {.tv_sec = static_cast<time_t>(rest.count() / 1'000'000'000),
            .tv_nsec = static_cast<long>(rest.count() % 1'000'000'000)};
  }

  Namespaces& network_;
  Random random_;
  SystemClock clock_;
  std::vector<std::deque<Packet>> queues_;
};

Namespaces::Namespaces(const Options& options) : options_(options) {
  void* memory =
      ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  counts_ = new (memory) Counts{};
}

std::string Namespaces::address(int host) {
  return "10.77.0." + std::to_string(host + 1);
}

Result<Namespaces::Host> Namespaces::make_host(int host) {
  Host made;
  TRY(on_thread_of_its_own([&]() -> Status {
    if (::unshare(CLONE_NEWNET) != 0) return named("a network namespace");
    made.space = comm::UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!made.space) return named("/proc/thread-self/ns/net");
    made.wire = comm::UniqueFd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!made.wire) return named("/dev/net/tun");
    ifreq request{};
    std::strncpy(request.ifr_name, "wire", IFNAMSIZ - 1);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (::ioctl(made.wire.get(), TUNSETIFF, &request) != 0) return named("TUNSETIFF");
    return configure(address(host));
  }));
  return made;
}

Result<std::unique_ptr<Namespaces>> Namespaces::create(const Options& options) {
  std::unique_ptr<Namespaces> network(new Namespaces(options));
  for (int host = 0; host < options.hosts; ++host) {
    TRY_ASSIGN(Host made, make_host(host));
    network->hosts_.push_back(std::move(made));
  }
  network->relay_ = ::fork();
  CHECK(network->relay_ >= 0);
  if (network->relay_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Relay(*network).run();
  }
  return network;
}

Namespaces::~Namespaces() {
  if (relay_ > 0) {
    ::kill(relay_, SIGKILL);
    ::waitpid(relay_, nullptr, 0);
  }
  ::munmap(counts_, sizeof(Counts));
}

Status Namespaces::enter(int host) const {
  if (::setns(hosts_[static_cast<size_t>(host)].space.get(), CLONE_NEWNET) != 0) {
    return named("entering a network namespace");
  }
  return {};
}

void Namespaces::cut(int host) {
  counts_->cut |= uint64_t{1} << host;
}
void Namespaces::mend(int host) {
  counts_->cut &= ~(uint64_t{1} << host);
}

Result<comm::UniqueFd> Namespaces::listen_on_host(int host) const {
  comm::UniqueFd listener;
  TRY(on_thread_of_its_own([&]() -> Status {
    TRY(enter(host));
    TRY_ASSIGN(const int fd, comm::listen_on(address(host), 0));
    listener = comm::UniqueFd(fd);
    return {};
  }));
  return listener;
}

}  // namespace lockstep::test
