// Tests that the local node's updates arrive even if the server refuses them for a while.
#include <atomic>

#include "tests/local/node/node_fixture.h"

namespace lockstep::local {
namespace {

// Refuses the next `refusals` requests about pods that use `method`.
class RefusingNodeApi final : public NodeApi {
 public:
  explicit RefusingNodeApi(Api& api) : server_(api) {}

  ApiResponse handle(const ApiRequest& request) override {
    bool is_about_pods = request.target.starts_with(kPods);
    if (is_about_pods && request.method == method && refusals.fetch_sub(1) > 0)
      return {.code = code, .body = {{"message", "not now"}}};
    return server_.handle(request);
  }
  std::unique_ptr<Feed> follow(const std::string& target, std::function<void()> on_news) override {
    return server_.follow(target, std::move(on_news));
  }

  std::string method;
  int code = 0;
  std::atomic<int> refusals{0};

 private:
  EmbeddedNodeApi server_;
};

class NodeRefusalsTest : public NodeTest {
 protected:
  NodeApi& node_api() override { return refusing_; }
  void refuse(const char* method, int code, int count) {
    refusing_.method = method;
    refusing_.code = code;
    refusing_.refusals = count;
  }
  RefusingNodeApi refusing_{api_};
};

TEST_F(NodeRefusalsTest, TheLastStatusIsSaidAgain) {
  for (int code : {429, 500, 503, 507}) {
    SCOPED_TRACE(code);
    std::string name = "p" + std::to_string(code);
    refuse("PATCH", code, 6);
    start_node();
    make(shell_pod(name, "exit 3"));
    ASSERT_TRUE(wait_for_phase(name, "Failed"));
    EXPECT_EQ(get(name)["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    EXPECT_LE(refusing_.refusals, 0) << "nothing was refused";
    node_.reset();
  }
}

TEST_F(NodeRefusalsTest, AStatusThatChangedMeanwhileIsTheOneThatIsSaid) {
  refuse("PATCH", 503, 1 << 30);
  start_node();
  make(shell_pod("p", "echo ran"));
  ASSERT_TRUE(wait_for_log("p", "ran"));
  EXPECT_EQ(get("p")["status"]["phase"], "Pending");
  refuse("PATCH", 503, 0);
  ASSERT_TRUE(wait_for_phase("p", "Succeeded"));
}

TEST_F(NodeRefusalsTest, ADeletedPodGoesOnceTheServerAgrees) {
  start_node();
  make(shell_pod("p", "sleep 1000"));
  ASSERT_TRUE(wait_for_phase("p", "Running"));
  refuse("DELETE", 503, 4);
  ask("DELETE", std::string(kPods) + "/p");
  EXPECT_TRUE(wait_gone("p"));
  EXPECT_LE(refusing_.refusals, 0) << "nothing was refused";
}

// The node gives up on updates that the server never accepts.
TEST_F(NodeRefusalsTest, TheNodeEndsThoughTheServerRefusesEverything) {
  start_node();
  make(shell_pod("p", "sleep 1000"));
  ASSERT_TRUE(wait_for_phase("p", "Running"));
  refuse("PATCH", 503, 1 << 30);
  node_.reset();
  EXPECT_TRUE(processes_of("p").empty());
}

}  // namespace
}  // namespace lockstep::local
