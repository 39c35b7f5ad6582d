// Parameter servers in processes of their own, on TCP: rates of pushes and pulls, dense and sparse;
// and the memory and rates of a row store in this process.
//
//   bench_server [--rows N] [--keys N] [--floats N] [--servers N] [--iterations N]
//
// Prints a line for each measurement: operation, its size, median and 99th percentile in
// microseconds, and the rate at the median: GB/s of floats, or million keys a second.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "agent/server/parameter_client.h"
#include "agent/server/row_store.h"
#include "bench/server/parameter_servers.h"
#include "common/base/check.h"

using namespace lockstep;

namespace {

struct Settings {
  uint64_t rows = 5'000'000;
  uint64_t keys = 20'000;
  uint64_t floats = 4u << 20;
  uint32_t servers = 1;
  int iterations = 50;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--rows") settings.rows = value;
    if (name == "--keys") settings.keys = value;
    if (name == "--floats") settings.floats = value;
    if (name == "--servers") settings.servers = static_cast<uint32_t>(value);
    if (name == "--iterations") settings.iterations = static_cast<int>(value);
  }
  return settings;
}

constexpr uint32_t kDim = 16;
constexpr uint32_t kWorker = 0;

server::Catalog catalog_of(const Settings& settings) {
  const optim::OptimizerOptions adagrad{.kind = optim::OptimizerKind::kAdagrad, .weight_decay = 0};
  return {.tensors = {{.name = "w", .count = settings.floats, .optimizer = adagrad}},
          .tables = {{.name = "user", .dim = kDim, .deviation = 0.01f, .optimizer = adagrad}}};
}

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Amount: bytes or keys of one call.
struct Measured {
  std::string operation;
  double amount = 0;
  std::string unit;
};

void print(const Measured& what, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double high = seconds[seconds.size() * 99 / 100];
  std::printf("%-14s %12.0f  p50 %10.1f us  p99 %10.1f us  %8.2f %s\n", what.operation.c_str(),
              what.amount, median * 1e6, high * 1e6,
              what.amount / median / (what.unit == "GB/s" ? 1e9 : 1e6), what.unit.c_str());
}

// A store of rows in this process: creation, pulls, updates, and bytes for each row.
void measure_rows(const Settings& settings) {
  server::RowStore store(catalog_of(settings).tables[0], {});
  const uint64_t batch = std::min<uint64_t>(settings.keys, settings.rows);
  std::vector<uint64_t> keys(batch);
  std::vector<float> values(batch * kDim);
  std::vector<double> creates, reads;
  for (uint64_t first = 0; first < settings.rows; first += batch) {
    std::iota(keys.begin(), keys.end(), first);
    creates.push_back(seconds_of([&] { CHECK(store.use(keys, 0).ok()); }));
  }
  for (int i = 0; i < settings.iterations; ++i) {
    for (uint64_t k = 0; k < batch; ++k)
      keys[k] = (k * 7919 + static_cast<uint64_t>(i)) % settings.rows;
    reads.push_back(seconds_of([&] { store.read(keys, 0, values); }));
  }
  const auto count = static_cast<double>(batch);
  print({"create rows", count, "M keys/s"}, creates);
  print({"read rows", count, "M keys/s"}, reads);
  std::printf("%-14s %12llu  %.1f bytes for each row, hottest key %llu\n", "memory",
              static_cast<unsigned long long>(store.rows()),
              static_cast<double>(store.bytes()) / static_cast<double>(store.rows()),
              static_cast<unsigned long long>(store.hottest(1, 0).at(0).key));
}

void measure_calls(const Settings& settings, const bench::ParameterServers& servers) {
  auto rpc = rpc::Client::create({.self = servers.identity_of(kWorker)});
  CHECK(rpc.ok());
  auto made = server::ParameterClient::create({.rpc = rpc->get(),
                                               .catalog = servers.catalog(),
                                               .view = servers.view(),
                                               .servers = servers.addresses()});
  CHECK(made.ok());
  server::ParameterClient& client = **made;
  std::vector<float> tensor(settings.floats), rows(settings.keys * kDim);
  std::vector<uint64_t> keys(settings.keys);
  for (uint64_t k = 0; k < keys.size(); ++k) keys[k] = k * 1000003;
  CHECK(client.put({.tensor = 0, .values = tensor}).wait().ok());
  std::vector<double> times[5];
  for (int i = 0; i < settings.iterations; ++i) {
    const auto clock = static_cast<uint64_t>(i);
    using Client = server::ParameterClient;
    times[0].push_back(seconds_of([&] {
      CHECK(client.pull(Client::TensorPull{.clock = clock, .into = tensor}).wait().ok());
    }));
    times[1].push_back(seconds_of([&] {
      CHECK(
          client.push(Client::TensorPush{.clock = clock, .gradient = tensor, .learning_rate = 0.1})
              .wait()
              .ok());
    }));
    times[2].push_back(seconds_of([&] {
      CHECK(client.pull(Client::RowsPull{.keys = keys, .clock = clock, .into = rows}).wait().ok());
    }));
    times[3].push_back(seconds_of([&] {
      CHECK(client
                .push(Client::RowsPush{
                    .keys = keys, .clock = clock, .gradients = rows, .learning_rate = 0.1})
                .wait()
                .ok());
    }));
  }
  for (int i = 0; i < settings.iterations; ++i) {
    times[4].push_back(seconds_of([&] {
      CHECK(client
                .pull(server::ParameterClient::TensorPull{.into = tensor,
                                                          .encoding = server::Encoding::kInt8})
                .wait()
                .ok());
    }));
  }
  const double bytes = static_cast<double>(settings.floats) * 4;
  const auto count = static_cast<double>(settings.keys);
  print({"pull tensor", bytes, "GB/s"}, times[0]);
  print({"push tensor", bytes, "GB/s"}, times[1]);
  print({"pull int8", bytes, "GB/s"}, times[4]);
  print({"pull rows", count, "M keys/s"}, times[2]);
  print({"push rows", count, "M keys/s"}, times[3]);
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  const bench::ParameterServers servers(
      {.servers = settings.servers,
       .catalog = catalog_of(settings),
       .consistency = {.kind = server::ConsistencyKind::kAsynchronous}});
  measure_rows(settings);
  measure_calls(settings, servers);
}
