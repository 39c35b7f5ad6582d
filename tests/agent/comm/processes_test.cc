// Ranks as processes, killed and stopped at random moments.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "common/base/random.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Meeting;
using test::Transport;

// A rank's report to the test, through its pipe.
struct Report {
  enum Kind : int { kStep, kError } kind = kStep;
  int code = 0;
  int suspect = -1;
  char message[240] = {};
};

struct Rank {
  pid_t pid = -1;
  int pipe = -1;
};

// Imitates training until something fails: buckets that travel while it computes, and small values.
void run_rank(const CommOptions& options, int pipe) {
  const auto tell = [&](const Report& report) {
    if (::write(pipe, &report, sizeof report) != sizeof report) ::_exit(9);
  };
  const auto fail = [&](const Error& error, int suspect) {
    Report report{.kind = Report::kError, .code = static_cast<int>(error.code), .suspect = suspect};
    std::strncpy(report.message, error.message.c_str(), sizeof report.message - 1);
    tell(report);
  };
  auto made = make_communicator(options);
  if (!made.ok()) return fail(made.error(), -1);
  Communicator& comm = **made;
  for (int step = 0;; ++step) {
    std::vector<std::vector<float>> buckets(3, std::vector<float>(60'000, 1.f));
    std::vector<Work> works;
    for (auto& bucket : buckets) {
      works.push_back(
          comm.start_all_reduce({.data = bucket.data(), .count = 60'000}, ReduceOp::kSum));
    }
    for (Work& work : works) {
      const Status status = work.wait();
      if (!status.ok()) return fail(status.error(), comm.suspect());
    }
    const auto losses = comm.all_gather_value(1.0);
    if (!losses.ok()) return fail(losses.error(), comm.suspect());
    if (buckets[2].back() != static_cast<float>(comm.size())) return fail(corrupt("wrong sum"), -1);
    tell({});
  }
}

class Processes {
 public:
  Processes(Transport transport, int size, Duration limit) {
    Meeting meeting(transport, size);
    meeting.set_limits(seconds(60), limit);
    for (int rank = 0; rank < size; ++rank) {
      int ends[2];
      EXPECT_EQ(::pipe(ends), 0);
      const pid_t pid = ::fork();
      if (pid == 0) {
        for (const Rank& other : ranks_) ::close(other.pipe);
        ::close(ends[0]);
        meeting.keep_only(rank);
        run_rank(meeting.options(rank), ends[1]);
        ::_exit(0);
      }
      ::close(ends[1]);
      ranks_.push_back({.pid = pid, .pipe = ends[0]});
    }
    for (int rank = 0; rank < size; ++rank) ::close(meeting.options(rank).listen_fd);
  }
  ~Processes() {
    for (const Rank& rank : ranks_) {
      ::kill(rank.pid, SIGKILL);
      ::kill(rank.pid, SIGCONT);
      ::waitpid(rank.pid, nullptr, 0);
      ::close(rank.pipe);
    }
  }

  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].pid; }
  // Returns the rank's next report. No report within a minute, or the rank's end, is an error.
  Report next(int rank) const {
    Report report{.kind = Report::kError, .code = -1};
    pollfd readable{.fd = ranks_[static_cast<size_t>(rank)].pipe, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 60'000) != 1) {
      std::strcpy(report.message, "nothing was heard of it for a minute");
    } else if (::read(readable.fd, &report, sizeof report) != sizeof report) {
      report = {.kind = Report::kError, .code = -1};
      std::strcpy(report.message, "it ended without a word");
    }
    return report;
  }
  Report next_error(int rank) const {
    for (;;) {
      const Report report = next(rank);
      if (report.kind == Report::kError) return report;
    }
  }

 private:
  std::vector<Rank> ranks_;
};

struct Case {
  Transport transport;
  int size;
};

class KilledAtRandom : public testing::TestWithParam<Case> {};

TEST_P(KilledAtRandom, EverySurvivorNamesTheCulprit) {
  constexpr int kTurns = 6;
  for (uint64_t seed = 0; seed < kTurns; ++seed) {
    Random random(seed, static_cast<uint64_t>(GetParam().size));
    const int size = GetParam().size;
    const int victim = static_cast<int>(random.below(static_cast<uint64_t>(size)));
    Processes ranks(GetParam().transport, size, seconds(60));
    // Waits for the moment: after some steps of the victim, and some microseconds into its next
    // one.
    for (uint64_t step = 1 + random.below(4); step > 0; --step) {
      ASSERT_EQ(ranks.next(victim).kind, Report::kStep);
    }
    ::usleep(static_cast<useconds_t>(random.below(2000)));
    const TimePoint killed = SystemClock().now();
    ::kill(ranks.pid(victim), SIGKILL);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      const Report report = ranks.next_error(rank);
      EXPECT_LT(SystemClock().now() - killed, seconds(5)) << "of a limit of 60 s";
      EXPECT_EQ(report.suspect, victim)
          << "seed " << seed << ", rank " << rank << ": " << report.message;
      EXPECT_EQ(report.code, static_cast<int>(Code::kUnavailable)) << report.message;
      EXPECT_NE(std::strstr(report.message, ("rank " + std::to_string(victim) + " ").c_str()),
                nullptr)
          << report.message;
    }
  }
}

TEST_P(KilledAtRandom, WhileItFormsTheOthersAreNotLeftWaiting) {
  for (uint64_t seed = 100; seed < 104; ++seed) {
    Random random(seed, static_cast<uint64_t>(GetParam().size));
    const int size = GetParam().size;
    const int victim = static_cast<int>(random.below(static_cast<uint64_t>(size)));
    Meeting meeting(GetParam().transport, size);
    // A rank that ends before it has met the others is only missed at the limit.
    meeting.set_limits(milliseconds(1500), seconds(60));
    std::vector<pid_t> pids;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        meeting.keep_only(rank);
        auto made = make_communicator(meeting.options(rank));
        Status status;
        while (made.ok() && status.ok()) status = (*made)->barrier();
        ::_exit(7);
      }
      pids.push_back(pid);
    }
    for (int rank = 0; rank < size; ++rank) ::close(meeting.options(rank).listen_fd);
    ::usleep(static_cast<useconds_t>(random.below(3000)));
    ::kill(pids[static_cast<size_t>(victim)], SIGKILL);
    for (const pid_t pid : pids) {
      int status = 0;
      ASSERT_EQ(::waitpid(pid, &status, 0), pid);
      if (pid != pids[static_cast<size_t>(victim)]) {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << "seed " << seed;
      }
    }
  }
}

TEST_P(KilledAtRandom, AStoppedRankIsNamedAfterTheTimeLimit) {
  const int size = GetParam().size;
  const int victim = size - 1;
  Processes ranks(GetParam().transport, size, milliseconds(1000));
  ASSERT_EQ(ranks.next(victim).kind, Report::kStep);
  ::kill(ranks.pid(victim), SIGSTOP);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    const Report report = ranks.next_error(rank);
    EXPECT_EQ(report.suspect, victim) << report.message;
    EXPECT_EQ(report.code, static_cast<int>(Code::kTimeout)) << report.message;
  }
}

INSTANTIATE_TEST_SUITE_P(Comm, KilledAtRandom,
                         testing::Values(Case{Transport::kShared, 2}, Case{Transport::kShared, 4},
                                         Case{Transport::kTcp, 2}, Case{Transport::kTcp, 4},
                                         Case{Transport::kMixed, 4}),
                         [](const auto& info) {
                           return name_of(info.param.transport) + std::to_string(info.param.size);
                         });

}  // namespace
}  // namespace lockstep::comm
