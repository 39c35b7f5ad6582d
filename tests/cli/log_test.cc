// The `log` subresource over HTTP, with containers that the test plays.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/local/http/log_file.h"
#include "cli/local/http/server.h"
#include "tests/cli/api_fixture.h"
#include "tests/cli/http_client.h"
#include "tests/support/job_run.h"

namespace lockstep::local {
namespace {

// One file a container and instance.
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
  // The kubelet's word: the instance `id` of the container is in this state.
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

TEST_F(LogTest, RefusesWhatItCanNotDo) {
  set_state("node", "1", kRunning);
  for (const char* query : {"sinceSeconds=5", "timestamps=true", "tailLines=-1"}) {
    const std::string answer = get_log("container=node&" + std::string(query));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
  }
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

}  // namespace
}  // namespace lockstep::local
