// Calls between processes, with the bounds that no transport exceeds measured in turns: a memcpy
// and a plain loopback connection.
//
//   bench_rpc [--sizes 1048576,16777216] [--servers 1,2] [--paths tcp,shm] [--iterations N]
//
// Prints a line for each measurement: path, servers, operation, bytes, median and 99th percentile
// in microseconds, and the medians of memcpy and of the plain connection. Bodies are cut into equal
// ranges, one for each server; all are called at the same time.
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bench/rpc/bounds.h"
#include "bench/rpc/methods.h"
#include "bench/rpc/servers.h"
#include "bench/rpc/takeover.h"
#include "common/base/check.h"
#include "common/crypto/aead.h"

using namespace lockstep;
using namespace lockstep::bench;

namespace {

struct Settings {
  std::vector<size_t> sizes{size_t{1} << 20, size_t{16} << 20, size_t{64} << 20};
  std::vector<size_t> small{8, 512, 4096};
  std::vector<size_t> keys{1000, 100'000};
  std::vector<int> servers{1};
  std::vector<RpcPath> paths{RpcPath::kTcp, RpcPath::kSharedMemory};
  int iterations = 0;  // 0: by size
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::vector<std::string> values = split(argv[i + 1]);
    if (name == "--iterations") settings.iterations = std::atoi(argv[i + 1]);
    const auto numbers = [&](auto& into) {
      into.clear();
      for (const std::string& value : values) {
        into.push_back(static_cast<typename std::decay_t<decltype(into)>::value_type>(
            std::strtoull(value.c_str(), nullptr, 10)));
      }
    };
    if (name == "--sizes") numbers(settings.sizes);
    if (name == "--small") numbers(settings.small);
    if (name == "--keys") numbers(settings.keys);
    if (name == "--servers") numbers(settings.servers);
    if (name != "--paths") continue;
    settings.paths.clear();
    for (const std::string& value : values) {
      for (const RpcPath path : {RpcPath::kTcp, RpcPath::kEncrypted, RpcPath::kSharedMemory}) {
        if (value == name_of(path)) settings.paths.push_back(path);
      }
    }
  }
  return settings;
}

double percentile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  const auto at = static_cast<size_t>(share * static_cast<double>(samples.size()));
  return samples[std::min(at, samples.size() - 1)] * 1e6;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void expect_ok(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  std::exit(1);
}

// One operation and its bounds, in turns.
struct Turns {
  std::function<double()> ours;
  std::function<double()> copy;
  std::function<double()> plain;
};

// The CPU time of these processes and this one, in seconds.
double cpu_seconds(const std::vector<pid_t>& pids) {
  double seconds = 0;
  const auto add = [&seconds](clockid_t clock) {
    timespec now{};
    CHECK(::clock_gettime(clock, &now) == 0);
    seconds += static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  add(CLOCK_PROCESS_CPUTIME_ID);
  for (const pid_t pid : pids) {
    clockid_t clock{};
    CHECK(::clock_getcpuclockid(pid, &clock) == 0);
    add(clock);
  }
  return seconds;
}

// Samples of one kind of turn.
class Samples {
 public:
  explicit Samples(std::vector<pid_t> pids) : pids_(std::move(pids)) {}
  void take(const std::function<double()>& turn) {
    const double before = cpu_seconds(pids_);
    wall_.push_back(turn());
    cpu_.push_back(cpu_seconds(pids_) - before);
  }
  double wall(double share) const { return percentile(wall_, share); }
  double cpu() const { return percentile(cpu_, 0.5); }

 private:
  std::vector<pid_t> pids_;
  std::vector<double> wall_;
  std::vector<double> cpu_;
};

class Bench {
 public:
  Bench(const Settings& settings, RpcPath path, int servers)
      : settings_(settings),
        path_(path),
        bytes_max_(*std::max_element(settings.sizes.begin(), settings.sizes.end())),
        plain_(bytes_max_),
        processes_(path, servers,
                   std::max(bytes_max_, settings.keys.back() * (kRowBytes + sizeof(uint64_t)))) {
    std::vector<std::shared_ptr<rpc::SharedMemory>> shared;
    const size_t bytes =
        std::max(bytes_max_, settings.keys.back() * (kRowBytes + sizeof(uint64_t)));
    if (path == RpcPath::kSharedMemory) {
      auto memory = rpc::SharedMemory::create(bytes);
      CHECK(memory.ok());
      shared.push_back(*memory);
      source_ = shared[0]->memory();
    } else {
      own_.resize(bytes);
      source_ = own_;
    }
    std::memset(source_.data(), 3, source_.size());
    target_.assign(bytes, std::byte{1});
    auto client = rpc::Client::create({.self = rpc_identity(0, path), .memory = shared});
    CHECK(client.ok());
    client_ = *std::move(client);
    peers_ = processes_.connect(*client_);
    for (const rpc::Peer& peer : peers_) {
      rpc::Call call = peer.call(kEcho, {});
      expect_ok(call.wait());
    }
  }

  void run() {
    for (const size_t bytes : settings_.sizes) {
      measure("push", bytes,
              {.ours = [=, this] { return push(bytes); },
               .copy = [=, this] { return copy(bytes); },
               .plain = [=, this] { return plain_.push(source(bytes)); }});
      measure("pull", bytes,
              {.ours = [=, this] { return pull(bytes); },
               .copy = [=, this] { return copy(bytes); },
               .plain = [=, this] { return plain_.pull(target(bytes)); }});
    }
    for (const size_t bytes : settings_.small) {
      measure("echo", bytes,
              {.ours = [=, this] { return echo(bytes); },
               .copy = [=, this] { return copy(bytes); },
               .plain = [=, this] { return plain_.push(source(bytes)); }});
      echo_rate(bytes);
    }
    for (const size_t keys : settings_.keys) {
      const size_t sent = keys * (sizeof(uint64_t) + kRowBytes);
      const size_t got = keys * kRowBytes;
      measure("push_rows", sent,
              {.ours = [=, this] { return push_rows(keys); },
               .copy = [=, this] { return copy(sent); },
               .plain = [=, this] { return plain_bytes(sent, true); }});
      measure("pull_rows", got,
              {.ours = [=, this] { return pull_rows(keys); },
               .copy = [=, this] { return copy(got); },
               .plain = [=, this] { return plain_bytes(got, false); }});
    }
  }

 private:
  std::span<std::byte> source(size_t bytes) { return source_.first(bytes); }
  std::span<std::byte> target(size_t bytes) { return std::span(target_).first(bytes); }
  double copy(size_t bytes) { return copy_once(target(bytes), source(bytes)); }
  double plain_bytes(size_t bytes, bool pushes) {
    if (bytes > bytes_max_) return 0;
    return pushes ? plain_.push(source(bytes)) : plain_.pull(target(bytes));
  }

  int iterations(size_t bytes) const {
    if (settings_.iterations > 0) return settings_.iterations;
    return static_cast<int>(std::clamp<size_t>((size_t{2} << 30) / (bytes + 100'000), 9, 3000));
  }

  void measure(const char* operation, size_t bytes, const Turns& turns) {
    Samples ours(processes_.pids());
    Samples copies({});
    Samples plain({plain_.pid()});
    for (int i = 0; i < 2; ++i) {  // warms up
      turns.ours();
      turns.plain();
    }
    for (int i = iterations(bytes); i > 0; --i) {
      ours.take(turns.ours);
      copies.take(turns.copy);
      plain.take(turns.plain);
    }
    std::printf("%s %zu %s %zu %.1f %.1f %.1f %.1f %.1f %.1f %.1f\n", name_of(path_), peers_.size(),
                operation, bytes, ours.wall(0.5), ours.wall(0.99), ours.cpu(), copies.wall(0.5),
                copies.cpu(), plain.wall(0.5), plain.cpu());
    std::fflush(stdout);
  }

  // Calls every server with its share, and waits for all.
  double all(const std::function<rpc::Call(const rpc::Peer&, size_t)>& begin) {
    return seconds_of([&] {
      std::vector<rpc::Call> calls;
      for (size_t i = 0; i < peers_.size(); ++i) calls.push_back(begin(peers_[i], i));
      for (rpc::Call& call : calls) expect_ok(call.wait());
    });
  }

  double push(size_t bytes) {
    const size_t share = bytes / peers_.size();
    return all([&](const rpc::Peer& peer, size_t i) {
      const rpc::Bytes body[] = {source(bytes).subspan(i * share, share)};
      return peer.call(kPush, {.body = body});
    });
  }

  double pull(size_t bytes) {
    const uint64_t share = bytes / peers_.size();
    return all([&](const rpc::Peer& peer, size_t i) {
      const std::span<std::byte> into[] = {target(bytes).subspan(i * share, share)};
      return peer.call(kPull, {.head = std::as_bytes(std::span(&share, 1)), .into = into});
    });
  }

  double echo(size_t bytes) {
    return all([&](const rpc::Peer& peer, size_t) {
      const rpc::Bytes body[] = {source(bytes)};
      return peer.call(kEcho, {.body = body});
    });
  }

  // Calls per second with 64 under way at each server.
  void echo_rate(size_t bytes) {
    constexpr size_t kUnderWay = 64;
    const size_t count = static_cast<size_t>(settings_.iterations > 0 ? 100 : 20'000);
    const rpc::Bytes body[] = {source(bytes)};
    std::vector<rpc::Call> calls(kUnderWay * peers_.size());
    const double seconds = seconds_of([&] {
      for (size_t i = 0; i < count; ++i) {
        rpc::Call& call = calls[i % calls.size()];
        if (i >= calls.size()) expect_ok(call.wait());
        call = peers_[i % peers_.size()].call(kEcho, {.body = body});
      }
      for (rpc::Call& call : calls) expect_ok(call.wait());
    });
    std::printf("%s %zu echo_rate %zu %.0f\n", name_of(path_), peers_.size(), bytes,
                static_cast<double>(count) / seconds);
    std::fflush(stdout);
  }

  // Keys in ascending order, each server's in one range, before the rows.
  double push_rows(size_t keys) {
    const size_t share = keys / peers_.size();
    auto* const all_keys = reinterpret_cast<uint64_t*>(source_.data());
    for (size_t i = 0; i < keys; ++i) all_keys[i] = i * 7;
    const std::span<std::byte> rows = source_.subspan(keys * sizeof(uint64_t), keys * kRowBytes);
    return all([&](const rpc::Peer& peer, size_t i) {
      const rpc::Bytes body[] = {std::as_bytes(std::span(all_keys + i * share, share)),
                                 rows.subspan(i * share * kRowBytes, share * kRowBytes)};
      return peer.call(kPushRows, {.body = body});
    });
  }

  double pull_rows(size_t keys) {
    const size_t share = keys / peers_.size();
    auto* const all_keys = reinterpret_cast<uint64_t*>(source_.data());
    for (size_t i = 0; i < keys; ++i) all_keys[i] = i * 7;
    return all([&](const rpc::Peer& peer, size_t i) {
      const rpc::Bytes body[] = {std::as_bytes(std::span(all_keys + i * share, share))};
      const std::span<std::byte> into[] = {
          target(keys * kRowBytes).subspan(i * share * kRowBytes, share * kRowBytes)};
      return peer.call(kPullRows, {.body = body, .into = into});
    });
  }

  const Settings& settings_;
  RpcPath path_;
  size_t bytes_max_;
  PlainSocket plain_;
  ServerProcesses processes_;
  std::vector<std::byte> own_;
  std::span<std::byte> source_;
  std::vector<std::byte> target_;
  std::unique_ptr<rpc::Client> client_;
  std::vector<rpc::Peer> peers_;
};

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  for (const RpcPath path : settings.paths) {
    if (path == RpcPath::kEncrypted && !can_encrypt().ok()) continue;
    for (const int servers : settings.servers) Bench(settings, path, servers).run();
  }
  print_takeover();
  return 0;
}
