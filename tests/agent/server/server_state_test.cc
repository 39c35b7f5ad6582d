// States that servers save, and others load.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/agent/server/servers.h"

namespace lockstep::test {
namespace {

constexpr uint64_t kCount = 10;
const std::vector<uint64_t> kKeys = {1, 2, 3, 50, 51, 900, 901, 5000, 1u << 20, 1u << 21};

ServersSetup setup_of(std::vector<uint32_t> servers) {
  const optim::OptimizerOptions adam{.kind = optim::OptimizerKind::kAdamW, .weight_decay = 0};
  ServersSetup setup;
  setup.catalog.tensors = {{.name = "w", .count = kCount, .optimizer = adam}};
  setup.catalog.tables = {{.name = "rows", .dim = 3, .deviation = 0.1f, .optimizer = adam}};
  setup.workers = {0};
  setup.servers = std::move(servers);
  setup.placement.range_elements_max = 4;
  return setup;
}

// One step of the worker with this clock.
void step(Worker& worker, uint64_t clock) {
  std::vector<float> dense(kCount);
  std::vector<float> rows(kKeys.size() * 3);
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<float>(i + clock);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i) - 5;
  const auto keys = std::span(kKeys).first(kKeys.size() - clock);
  auto pushed = worker.parameters->push(
      {.tensor = 0, .clock = clock, .gradient = dense, .learning_rate = 0.1});
  EXPECT_TRUE(pushed.wait().ok());
  pushed = worker.parameters->push({.table = 0,
                                    .keys = keys,
                                    .clock = clock,
                                    .gradients = std::span(rows).first(keys.size() * 3),
                                    .learning_rate = 0.1});
  const auto done = pushed.wait();
  EXPECT_TRUE(done.ok()) << done.error().message;
}

std::vector<float> all_of(Worker& worker, uint64_t clock) {
  std::vector<float> values(kCount + kKeys.size() * 3);
  const std::span<float> all(values);
  EXPECT_TRUE(worker.parameters->pull({.tensor = 0, .clock = clock, .into = all.first(kCount)})
                  .wait()
                  .ok());
  EXPECT_TRUE(worker.parameters
                  ->pull({.table = 0, .keys = kKeys, .clock = clock, .into = all.subspan(kCount)})
                  .wait()
                  .ok());
  return values;
}

std::string saved_by(server::ParameterServer& server) {
  std::string bytes;
  const Status saved = server.save([&](std::span<const std::byte> more) -> Status {
    bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
    return {};
  });
  EXPECT_TRUE(saved.ok());
  return bytes;
}

Status load(server::ParameterServer& server, const std::string& bytes) {
  size_t at = 0;
  return server.load([&](std::span<std::byte> to) -> Status {
    if (to.size() > bytes.size() - at) return corrupt("too short");
    std::memcpy(to.data(), bytes.data() + at, to.size());
    at += to.size();
    return {};
  });
}

// The states of two servers after two steps, and what two more steps lead to.
struct Saved {
  std::vector<std::string> files;
  std::vector<float> then;
};

Saved after_two_steps() {
  Servers servers(setup_of({8, 9}));
  servers.start();
  Worker worker(servers, 0);
  step(worker, 0);
  step(worker, 1);
  Saved saved;
  for (size_t i : {0, 1}) saved.files.push_back(saved_by(servers[i]));
  step(worker, 2);
  step(worker, 3);
  saved.then = all_of(worker, 4);
  return saved;
}

TEST(ServerState, GoesOnWithTheSameBitsOnAnyServers) {
  const Saved saved = after_two_steps();
  for (const std::vector<uint32_t>& ranks :
       {std::vector<uint32_t>{8, 9}, {8}, {8, 9, 10}, {3, 9, 12, 14}}) {
    SCOPED_TRACE(ranks.size());
    Servers servers(setup_of(ranks));
    servers.start();
    for (size_t i = 0; i < ranks.size(); ++i) {
      for (const std::string& file : saved.files) {
        const Status loaded = load(servers[i], file);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      }
      servers[i].begin_at(2);
    }
    Worker worker(servers, 0);
    step(worker, 2);
    step(worker, 3);
    EXPECT_EQ(all_of(worker, 4), saved.then);
  }
}

TEST(ServerState, RefusesOtherBytes) {
  const Saved saved = after_two_steps();
  const std::string& good = saved.files.front();
  const auto error_of = [&](const std::string& bytes) {
    Servers servers(setup_of({8, 9}));
    servers.start();
    const Status loaded = load(servers[0], bytes);
    return loaded.ok() ? "" : loaded.error().message;
  };
  EXPECT_EQ(error_of(good), "");
  for (size_t bytes = 0; bytes < good.size(); bytes += 7) {
    EXPECT_EQ(error_of(good.substr(0, bytes)), "too short") << bytes;
  }
  const auto changed = [&](size_t at, char to) {
    std::string bytes = good;
    bytes[at] = to;
    return bytes;
  };
  EXPECT_NE(error_of(changed(0, 'x')).find("not the bytes of a server"), std::string::npos);
  EXPECT_NE(error_of(changed(9, static_cast<char>(good[9] + 1))).find("another model"),
            std::string::npos);
  EXPECT_NE(error_of(changed(48, 7)).find("does not fit the catalog"), std::string::npos);
  EXPECT_NE(error_of(changed(52, 7)).find("does not fit the catalog"), std::string::npos);
  EXPECT_NE(error_of(changed(60, 1)).find("does not fit the catalog"), std::string::npos)
      << "a range that begins far away";
  EXPECT_NE(error_of(changed(80, 1)).find("arrays of a range"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
