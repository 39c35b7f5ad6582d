// `lockstep status --stuck` on whole jobs: a stopped rank is named, with the operation it is
// missing from, and no longer named once it continues.
#include <chrono>
#include <stop_token>
#include <thread>

#include "tests/e2e/client_fixture.h"
#include "tests/support/processes.h"

namespace lockstep::test {
namespace {

class StuckTest : public ClientFixture {
 protected:
  static void SetUpTestSuite() { start(2); }

  // Writes a job of 2 nodes x 2 ranks that train until they are killed.
  static std::string endless_job(const std::string& name) {
    const std::string file = path(name + ".yaml");
    write_file(file,
               "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
                   "}\nspec:\n  nodes: 2\n  processesPerNode: 2\n  threadsPerProcess: 1\n"
                   "  terminationGracePeriodSeconds: 5\n  checkpoint: {path: " +
                   path(name) + "}\n" +
                   "  train:\n    model: {layers: 1, width: 64, heads: 2, context: 64}\n"
                   "    data: {path: " +
                   path("text.txt") + "}\n    steps: 10000000\n    batch: {global: 8}\n");
    return file;
  }
  // Returns the process of a rank, once it trains.
  static pid_t process_of(int64_t rank) {
    pid_t found = 0;
    eventually([&] {
      for (const WorkerView& view : workers_below(up_->pid())) {
        ProgressNumbers numbers;
        const bool is_it = view.config.rank == rank && view.page && view.page->read(numbers);
        if (is_it && numbers.step > 3) found = view.pid;
      }
      return found != 0;
    });
    return found;
  }
  static bool stuck_says(const std::string& name, const std::string& words) {
    return eventually([&] { return has(tool({"status", name, "--stuck"}).output, words); });
  }
};

TEST_F(StuckTest, AStoppedRankIsNamedWithWhatItIsMissingFromAndWhoWaits) {
  ASSERT_EQ(tool({"submit", endless_job("still")}).code, 0);
  const pid_t pid = process_of(2);
  ASSERT_NE(pid, 0) << tool({"status", "still"}).output;
  ASSERT_TRUE(stuck_says("still", "still: no rank is known to be stuck."))
      << tool({"status", "still", "--stuck"}).output;

  ::kill(pid, SIGSTOP);
  ASSERT_TRUE(stuck_says("still", "rank 2 on ")) << tool({"status", "still", "--stuck"}).output;
  ASSERT_TRUE(stuck_says("still", "no sign of life")) << tool({"status", "still"}).output;
  // The others report their waits one after another.
  ASSERT_TRUE(stuck_says("still", " of all 4 ranks; ranks 0-1, 3 wait for it, since 20"))
      << tool({"status", "still", "--stuck"}).output;
  const std::string page = tool({"status", "still", "--stuck"}).output;
  EXPECT_TRUE(has(page, " is missing from all_")) << page;  // all_reduce or all_gather
  EXPECT_TRUE(has(tool({"status", "still"}).output, "RankMissing"));

  ::kill(pid, SIGCONT);
  EXPECT_TRUE(stuck_says("still", "still: no rank is known to be stuck."))
      << tool({"status", "still", "--stuck"}).output;
  EXPECT_EQ(tool({"delete", "still"}).code, 0);
}

// The rank is stopped for four fifths of the time.
TEST_F(StuckTest, ARankThatIsSlowerThanItsPeersIsNamed) {
  ASSERT_EQ(tool({"submit", endless_job("slow")}).code, 0);
  const pid_t pid = process_of(3);
  ASSERT_NE(pid, 0) << tool({"status", "slow"}).output;
  const std::jthread slows([pid](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      ::kill(pid, SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ::kill(pid, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  ASSERT_TRUE(eventually([&] {
    return has(tool({"status", "slow"}).output, "RankSlow");
  })) << tool({"status", "slow"}).output;
  const std::string page = tool({"status", "slow"}).output;
  EXPECT_TRUE(has(page, "rank 3 on ")) << page;
  EXPECT_TRUE(has(page, "times as long as its peers for a step")) << page;
  EXPECT_EQ(tool({"delete", "slow"}).code, 0);
}

TEST_F(StuckTest, OfACommandItIsNotKnown) {
  const std::string file = path("own.yaml");
  write_file(file,
             "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: own}\n"
             "spec:\n  nodes: 1\n  terminationGracePeriodSeconds: 5\n"
             "  command: [sleep, '1000']\n");
  ASSERT_EQ(tool({"submit", file}).code, 0);
  const Outcome outcome = tool({"status", "own", "--stuck"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(has(outcome.output, "own runs its own program")) << outcome.output;
  EXPECT_NE(tool({"status", "own", "--stuck", "-w"}).code, 0);
  EXPECT_EQ(tool({"delete", "own"}).code, 0);
}

}  // namespace
}  // namespace lockstep::test
