// Tests the `log` subresource over HTTP, with simulated containers.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "common/base/random.h"
#include "local/http/log_file.h"
#include "local/http/server.h"
#include "local/store/log_times.h"
#include "tests/local/http/http_client.h"
#include "tests/local/store/api_fixture.h"
#include "tests/support/job_run.h"

namespace lockstep::local {
namespace {

constexpr int64_t k2026 = 1'767'225'600;  // 2026-01-01T00:00:00Z

// One file per container and instance.
class Files final : public PodLogs {
 public:
  Result<std::string> log_file(const std::string&, const std::string& container,
                               bool previous) const override {
    const std::string file = path(container, previous);
    if (previous && !std::filesystem::exists(file))
      return not_found("previous terminated container \"" + container + "\" not found");
    return file;
  }
  std::string path(const std::string& container, bool previous = false) const {
    return (folder_.path() / (container + (previous ? ".old" : ""))).string();
  }
  void append(const std::string& container, const std::string& text) const {
    std::ofstream(path(container), std::ios::app) << text;
  }
  // Records that the output so far arrived in this second of 2026.
  void came(const std::string& container, int64_t second, int64_t nanoseconds = 0) const {
    append_time_record(times_file_of(path(container)),
                       {.bytes = static_cast<int64_t>(std::filesystem::file_size(path(container))),
                        .nanoseconds = (k2026 + second) * 1'000'000'000 + nanoseconds});
  }

 private:
  test::TemporaryFolder folder_;
};

class LogTest : public ApiTest {
 protected:
  void SetUp() override {
    auto started = ApiServer::start(api_, {.token = "t", .logs = &files_});
    ASSERT_TRUE(started.ok());
    server_ = *std::move(started);
    Json two = pod("p");
    two["spec"]["containers"].push_back({{"name", "helper"}});
    two["spec"]["initContainers"] = Json::array({{{"name", "first"}}});
    make(kPods, two);
  }
  // Reports, as a kubelet does, that instance `id` of the container is in this state.
  void set_state(const std::string& container, const std::string& id, const Json& state) {
    ASSERT_EQ(ask("PATCH", std::string(kPods) + "/p/status",
                  {{"status",
                    {{"containerStatuses", Json::array({{{"name", container},
                                                         {"containerID", id},
                                                         {"lastState", Json::object()},
                                                         {"state", state}}})}}}})
                  .code,
              200);
  }
  std::string get_log(const std::string& query) {
    test::HttpClient client(server_->port());
    client.send("GET " + std::string(kPods) + "/p/log?" + query +
                " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer t\r\n\r\n");
    return client.read_all();
  }
  static std::string body_of(const std::string& answer) { return test::dechunked(answer); }

  Files files_;
  std::unique_ptr<ApiServer> server_;
};

const Json kRunning = {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}};
const Json kEnded = {{"terminated", {{"exitCode", 0}}}};

TEST_F(LogTest, ShowsWhatAContainerWrote) {
  files_.append("node", "one\ntwo\nthree\n");
  set_state("node", "1", kRunning);
  EXPECT_EQ(body_of(get_log("container=node")), "one\ntwo\nthree\n");
  EXPECT_EQ(body_of(get_log("container=node&tailLines=2")), "two\nthree\n");
  EXPECT_EQ(body_of(get_log("container=node&tailLines=0")), "");
  EXPECT_EQ(body_of(get_log("container=node&limitBytes=5")), "one\nt");
}

TEST_F(LogTest, SaysWhichContainersThereAre) {
  const std::string unnamed = get_log("");
  EXPECT_TRUE(unnamed.starts_with("HTTP/1.1 400 ")) << unnamed;
  EXPECT_NE(unnamed.find("a container name must be specified for pod p, choose one of: [node "
                         "helper] or one of the init containers: [first]"),
            std::string::npos)
      << unnamed;
  const std::string other = get_log("container=other");
  EXPECT_NE(other.find("container other is not valid for pod p"), std::string::npos) << other;
  const std::string waiting = get_log("container=node");
  EXPECT_NE(waiting.find("is waiting to start: ContainerCreating"), std::string::npos) << waiting;
}

TEST_F(LogTest, HasNoPreviousInstanceUntilThereIsOne) {
  set_state("node", "1", kRunning);
  const std::string answer = get_log("container=node&previous=true");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
  std::ofstream(files_.path("node", true)) << "before\n";
  EXPECT_EQ(body_of(get_log("container=node&previous=true")), "before\n");
}

TEST_F(LogTest, RefusesOptionsThatMeanNothing) {
  set_state("node", "1", kRunning);
  files_.append("node", "one\n");
  files_.came("node", 0);
  const std::string time = "2026-01-01T00:00:00Z";
  for (const auto& [query, code] : std::vector<std::pair<std::string, std::string>>{
           {"tailLines=-1", "422"},
           {"tailLines=many", "400"},
           {"limitBytes=0", "422"},
           {"limitBytes=99999999999999999999", "400"},
           {"sinceSeconds=0", "422"},
           {"sinceSeconds=-5", "422"},
           {"sinceSeconds=soon", "400"},
           {"sinceTime=yesterday", "400"},
           {"sinceSeconds=5&sinceTime=" + time, "422"}}) {
    const std::string answer = get_log("container=node&" + query);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + code)) << query << "\n" << answer;
  }
}

TEST_F(LogTest, SaysWhenEachLineCame) {
  set_state("node", "1", kRunning);
  EXPECT_TRUE(get_log("container=node&timestamps=true").starts_with("HTTP/1.1 400 "));
  files_.append("node", "one\n");
  files_.came("node", 1);
  files_.append("node", "two\nthr");
  files_.came("node", 2, 5);
  files_.append("node", "ee\n");
  files_.came("node", 3);
  const std::string all =
      "2026-01-01T00:00:01.000000000Z one\n"
      "2026-01-01T00:00:02.000000005Z two\n"
      "2026-01-01T00:00:02.000000005Z three\n";
  EXPECT_EQ(body_of(get_log("container=node&timestamps=true")), all);
  EXPECT_EQ(body_of(get_log("container=node&timestamps=true&tailLines=1")), all.substr(70));
  EXPECT_EQ(body_of(get_log("container=node&timestamps=true&limitBytes=37")), all.substr(0, 37));
  EXPECT_EQ(body_of(get_log("container=node&timestamps=false")), "one\ntwo\nthree\n");
}

TEST_F(LogTest, LeavesOutWhatCameBefore) {
  set_state("node", "1", kRunning);
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(clock_.wall_now().time_since_epoch())
          .count() -
      k2026;
  for (int64_t age : {100, 10, 1}) {
    files_.append("node", "line " + std::to_string(age) + "\n");
    files_.came("node", now - age);
  }
  auto since = [&](const std::string& query) {
    return body_of(get_log("container=node&" + query));
  };
  EXPECT_EQ(since("sinceSeconds=1000"), "line 100\nline 10\nline 1\n");
  EXPECT_EQ(since("sinceSeconds=10"), "line 10\nline 1\n");
  EXPECT_EQ(since("sinceSeconds=9"), "line 1\n");
  EXPECT_EQ(since("sinceSeconds=1000&tailLines=1"), "line 1\n");
  EXPECT_EQ(since("sinceSeconds=9&tailLines=2"), "line 1\n");
  EXPECT_EQ(since("sinceSeconds=99999999999"), "line 100\nline 10\nline 1\n");
  EXPECT_EQ(since("sinceTime=2199-01-01T00:00:00Z"), "");
  EXPECT_EQ(since("sinceTime=1999-01-01T00:00:00Z"), "line 100\nline 10\nline 1\n");
}

TEST_F(LogTest, FollowsWithTheTimesAsTheyBecomeKnown) {
  files_.append("node", "one\n");
  files_.came("node", 1);
  set_state("node", "1", kRunning);
  test::HttpClient client(server_->port());
  client.send("GET " + std::string(kPods) +
              "/p/log?container=node&follow=true&timestamps=true HTTP/1.1\r\nHost: x\r\n"
              "Authorization: Bearer t\r\n\r\n");
  EXPECT_TRUE(client.read_until("01.000000000Z one\n"));
  files_.append("node", "two\n");
  files_.came("node", 2);
  EXPECT_TRUE(client.read_until("02.000000000Z two\n"));
  files_.append("node", "last");
  files_.came("node", 3);
  set_state("node", "1", kEnded);
  EXPECT_TRUE(body_of(client.read_all()).ends_with("03.000000000Z last"));
}

TEST_F(LogTest, FollowsUntilTheContainerEnds) {
  files_.append("node", "one\n");
  set_state("node", "1", kRunning);
  test::HttpClient client(server_->port());
  client.send("GET " + std::string(kPods) +
              "/p/log?container=node&follow=true HTTP/1.1\r\nHost: x\r\n"
              "Authorization: Bearer t\r\n\r\n");
  EXPECT_TRUE(client.read_until("one\n"));
  files_.append("node", "two\n");
  EXPECT_TRUE(client.read_until("two\n"));
  files_.append("node", "last");
  set_state("node", "1", kEnded);
  EXPECT_EQ(body_of(client.read_all()), "one\ntwo\nlast");
}

TEST_F(LogTest, AnotherInstanceIsTheEndOfTheOneThatIsFollowed) {
  files_.append("node", "one\n");
  set_state("node", "1", kRunning);
  test::HttpClient client(server_->port());
  client.send("GET " + std::string(kPods) +
              "/p/log?container=node&follow=true HTTP/1.1\r\nHost: x\r\n"
              "Authorization: Bearer t\r\n\r\n");
  EXPECT_TRUE(client.read_until("one\n"));
  set_state("node", "2", kRunning);
  EXPECT_EQ(body_of(client.read_all()), "one\n");
}

TEST(LogFileTest, TailsAcrossBlocksAndUnfinishedLines) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "log").string();
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "line " + std::to_string(i) + "\n";
  for (const std::string& end : {std::string(), std::string("unfinished")}) {
    std::ofstream(file, std::ios::trunc) << text << end;
    for (int64_t lines : {1, 2, 777, 9'999, 20'000}) {
      Result<LogFile> log = LogFile::open(file, {.tail_lines = lines});
      ASSERT_TRUE(log.ok());
      std::string read;
      for (std::string part = log->read(1000); !part.empty(); part = log->read(1000)) read += part;
      const int64_t whole = std::min<int64_t>(lines - (end.empty() ? 0 : 1), 10'000);
      EXPECT_EQ(std::count(read.begin(), read.end(), '\n'), whole) << lines;
      EXPECT_TRUE((text + end).ends_with(read)) << lines;
    }
  }
}

// The lines of a log and their arrival times.
struct Lines {
  std::vector<std::string> texts;
  std::vector<int64_t> times;  // when the first byte arrived
};

// Writes a log in pieces that end anywhere. Successive pieces may have the same time.
Lines write_lines(const std::string& file, Random& random) {
  Lines lines;
  std::string text;
  for (int64_t i = 0, count = random.below(3000); i < count; ++i)
    text += std::string(random.below(20), 'a' + static_cast<char>(i % 26)) + "\n";
  int64_t time = k2026 * 1'000'000'000;
  bool begins = true;
  begin_times(times_file_of(file));
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = std::min<size_t>(1 + random.below(100), text.size() - at);
    const std::string piece = text.substr(at, bytes);
    std::ofstream(file, std::ios::app) << piece;
    time += static_cast<int64_t>(random.below(3)) * 250'000'000;
    at += bytes;
    append_time_record(times_file_of(file), {static_cast<int64_t>(at), time});
    for (char c : piece) {
      if (begins) {
        lines.texts.emplace_back();
        lines.times.push_back(time);
      }
      lines.texts.back() += c;
      begins = c == '\n';
    }
  }
  return lines;
}

TEST(LogFileTest, ShowsTheTimesAndTheLinesSinceOfAnyLog) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int round = 0; round < 20; ++round) {
    const test::TemporaryFolder folder;
    const std::string file = (folder.path() / "log").string();
    std::ofstream(file) << "";
    const Lines lines = write_lines(file, random);
    const size_t first = random.below(lines.times.size() + 1);
    LogFileOptions options{.timestamps = true};
    std::string expected;
    if (first < lines.times.size())
      options.since =
          WallTime(Duration(lines.times[first] - static_cast<int64_t>(random.below(2))));
    for (size_t i = 0; i < lines.texts.size(); ++i) {
      const WallTime time{Duration(lines.times[i])};
      if (options.since && time < *options.since) continue;
      const std::string micro = rfc3339_micro(time);
      expected += micro.substr(0, micro.size() - 1) + "000Z " + lines.texts[i];
    }
    Result<LogFile> log = LogFile::open(file, options);
    ASSERT_TRUE(log.ok());
    std::string read;
    const size_t part_max = 1 + random.below(5000);
    for (std::string part = log->read(part_max); !part.empty(); part = log->read(part_max))
      read += part;
    EXPECT_EQ(read, expected);
  }
}

}  // namespace
}  // namespace lockstep::local
