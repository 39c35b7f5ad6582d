// Loans between ranks of one host, instead of copies through shared memory.
#include "agent/comm/loans.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/loan_benchmark.h"
#include "agent/comm/shm.h"
#include "agent/comm/waiter.h"
#include "tests/agent/comm/one_copy.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::seconds;
using test::make_world;
using test::Meeting;
using test::on_all;
using test::Transport;
using test::World;

std::vector<std::byte> bytes(size_t count, int seed) {
  std::vector<std::byte> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<std::byte>(i * 7 + i / 256 + seed);
  return values;
}

// Both sides of a link, in this process.
class Pair {
 public:
  Pair()
      : lender_({.lent = &places_, .borrowed = nullptr, .on_returned = [] {}}),
        borrower_({.lent = nullptr, .borrowed = &places_, .on_returned = [this] { ++returned_; }}) {
    lender_.enable();
    borrower_.attach_peer(test::own_memory());
  }
  Loans& lender() { return lender_; }
  Loans& borrower() { return borrower_; }
  LoanPlaces& places() { return places_; }
  int returned() const { return returned_; }

 private:
  LoanPlaces places_{};
  Loans lender_;
  Loans borrower_;
  int returned_ = 0;
};

TEST(Loans, AreReadByTheBorrowerAndComeBackWithWhatItTook) {
  SKIP_WITHOUT_ONE_COPY();
  Pair pair;
  const auto lent = bytes(100'000, 3);
  const uint64_t loan = pair.lender().lend(lent);
  EXPECT_EQ(loan, 1u);
  std::vector<std::byte> into(lent.size());
  EXPECT_EQ(pair.borrower().read(loan, 0, std::span(into).first(70'000)).value(), 70'000u);
  EXPECT_FALSE(pair.lender().returned(loan).value().has_value());
  EXPECT_EQ(pair.borrower().read(loan, 70'000, std::span(into).subspan(70'000)).value(), 30'000u);
  EXPECT_EQ(pair.returned(), 0);
  ASSERT_TRUE(pair.borrower().give_back(loan, lent.size()).ok());
  EXPECT_EQ(pair.returned(), 1);
  EXPECT_EQ(pair.lender().returned(loan).value(), lent.size());
  EXPECT_EQ(into, lent);
}

TEST(Loans, AreNoneBeforeItIsAllowedAndNoMoreThanThereArePlacesForUntilOneIsReturned) {
  SKIP_WITHOUT_ONE_COPY();
  LoanPlaces places{};
  Loans lender({.lent = &places, .borrowed = nullptr, .on_returned = [] {}});
  EXPECT_FALSE(lender.lends());
  Pair pair;
  const auto lent = bytes(64, 0);
  for (size_t i = 0; i < kLoanPlaces; ++i) {
    ASSERT_TRUE(pair.lender().lends());
    pair.lender().lend(lent);
  }
  EXPECT_FALSE(pair.lender().lends());
  // This is not the one whose turn it is.
  ASSERT_TRUE(pair.borrower().give_back(2, 64).ok());
  EXPECT_EQ(pair.lender().returned(2).value(), 64u);
  EXPECT_FALSE(pair.lender().lends());
  ASSERT_TRUE(pair.borrower().give_back(1, 64).ok());
  EXPECT_FALSE(pair.lender().lends());
  EXPECT_EQ(pair.lender().returned(1).value(), 64u);
  EXPECT_TRUE(pair.lender().lends());
  EXPECT_EQ(pair.lender().lend(lent), kLoanPlaces + 1);
}

TEST(Loans, ThatAreTakenBackAreWorthNothingToWhoeverIsReading) {
  SKIP_WITHOUT_ONE_COPY();
  Pair pair;
  const auto lent = bytes(1000, 1);
  const uint64_t loan = pair.lender().lend(lent);
  std::vector<std::byte> into(lent.size());
  ASSERT_EQ(pair.borrower().read(loan, 0, into).value(), into.size());
  pair.lender().revoke_all();
  const Status given_back = pair.borrower().give_back(loan, into.size());
  ASSERT_FALSE(given_back.ok());
  EXPECT_EQ(given_back.error().code, Code::kUnavailable);
  EXPECT_EQ(pair.returned(), 0);
  const auto read = pair.borrower().read(loan, 0, into);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kUnavailable);
}

TEST(Loans, ThatWereReturnedBeforeAreNotTakenBack) {
  SKIP_WITHOUT_ONE_COPY();
  Pair pair;
  const auto lent = bytes(1000, 1);
  const uint64_t loan = pair.lender().lend(lent);
  ASSERT_TRUE(pair.borrower().give_back(loan, lent.size()).ok());
  pair.lender().revoke_all();
  EXPECT_EQ(pair.lender().returned(loan).value(), lent.size());
}

TEST(Loans, GiveNoBytesWhereTheKernelHasNoneAndNoMoreThanWereLent) {
  SKIP_WITHOUT_ONE_COPY();
  Pair pair;
  const size_t page = 4096;
  void* pages =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const std::span lent(static_cast<std::byte*>(pages), 2 * page);
  lent[0] = std::byte{9};
  ASSERT_EQ(::mprotect(lent.data() + page, page, PROT_NONE), 0);
  const uint64_t loan = pair.lender().lend(lent);
  std::vector<std::byte> into(2 * page);
  EXPECT_EQ(pair.borrower().read(loan, 0, into).value(), page);
  EXPECT_EQ(into[0], std::byte{9});
  EXPECT_EQ(pair.borrower().read(loan, page, std::span(into).first(page)).value(), 0u);
  EXPECT_EQ(pair.borrower().read(loan, page, into).error().code, Code::kCorrupt);
  // The bytes taken so far count.
  ASSERT_TRUE(pair.borrower().give_back(loan, page).ok());
  EXPECT_EQ(pair.lender().returned(loan).value(), page);
  ::munmap(pages, 2 * page);
}

// The other side can write anything where loans are published.
TEST(Loans, OfWhichMoreWasTakenThanWasLentAreCorrupt) {
  SKIP_WITHOUT_ONE_COPY();
  Pair pair;
  const auto lent = bytes(1000, 1);
  const uint64_t loan = pair.lender().lend(lent);
  pair.places()[loan].bytes = 1'000'000;
  ASSERT_TRUE(pair.borrower().give_back(loan, lent.size() + 1).ok());
  EXPECT_EQ(pair.lender().returned(loan).error().code, Code::kCorrupt);
}

// Bytes of an operation in which each rank gives each other rank a block.
struct Sizes {
  size_t lent = 0;
  size_t sent = 0;
};
Sizes exchange(Communicator& comm, size_t block) {
  const auto n = static_cast<size_t>(comm.size());
  const Traffic before = comm.traffic();
  const std::vector<std::byte> mine = bytes(block, comm.rank());
  std::vector<std::byte> all(n * block);
  const Status status = comm.all_gather(mine, all);
  EXPECT_TRUE(status.ok()) << status.error().message;
  for (size_t rank = 0; rank < n; ++rank) {
    const auto expected = bytes(block, static_cast<int>(rank));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                           all.begin() + static_cast<std::ptrdiff_t>(rank * block)));
  }
  return {.lent = comm.traffic().bytes_lent - before.bytes_lent,
          .sent = comm.traffic().bytes_sent - before.bytes_sent};
}

constexpr size_t kLarge = size_t{3} << 20;

TEST(OneCopy, IsWhatLargeBlocksTakeBetweenRanksThatShareMemoryAndNoOthers) {
  SKIP_WITHOUT_ONE_COPY();
  for (const Transport transport : {Transport::kThreads, Transport::kShared, Transport::kTcp}) {
    World world = make_world(transport, 3);
    on_all(world, [&](Communicator& comm) {
      const Sizes large = exchange(comm, kLarge);
      EXPECT_EQ(large.sent, 2 * kLarge);
      EXPECT_EQ(large.lent, transport == Transport::kTcp ? 0 : large.sent) << name_of(transport);
      const Sizes small = exchange(comm, CommLimits().loans.min - 64);
      EXPECT_EQ(small.lent, 0u) << name_of(transport);
    });
  }
}

// Returns what this rank has lent in one operation on blocks of this many bytes.
size_t lent_by(Communicator& comm, Collective kind, size_t block) {
  std::vector<std::byte> in(2 * block);
  std::vector<std::byte> out(2 * block);
  const Traffic before = comm.traffic();
  const bool is_message = kind == Collective::kSend;
  const bool receives = is_message && comm.rank() == 1;
  const Status status = comm.run({.kind = receives ? Collective::kReceive : kind,
                                  .buffer = {.data = out.data(),
                                             .count = static_cast<int64_t>(block),
                                             .type = DataType::kU8,
                                             .input = is_message ? nullptr : in.data()},
                                  .rank = is_message ? 1 - comm.rank() : 0});
  EXPECT_TRUE(status.ok()) << status.error().message;
  return comm.traffic().bytes_lent - before.bytes_lent;
}

TEST(OneCopy, IsTakenByWhateverDoesNotReduce) {
  SKIP_WITHOUT_ONE_COPY();
  World world = make_world(Transport::kShared, 2);
  on_all(world, [&](Communicator& comm) {
    const size_t of_root = comm.rank() == 0 ? kLarge : 0;
    EXPECT_EQ(lent_by(comm, Collective::kAllGather, kLarge), kLarge);
    EXPECT_EQ(lent_by(comm, Collective::kAllToAll, kLarge), kLarge);
    EXPECT_EQ(lent_by(comm, Collective::kBroadcast, kLarge), of_root);
    EXPECT_EQ(lent_by(comm, Collective::kScatter, kLarge), of_root);
    EXPECT_EQ(lent_by(comm, Collective::kGather, kLarge), kLarge - of_root);
    EXPECT_EQ(lent_by(comm, Collective::kSend, kLarge), of_root);
    EXPECT_EQ(lent_by(comm, Collective::kAllReduce, kLarge), 0u);
    EXPECT_EQ(lent_by(comm, Collective::kReduce, kLarge), 0u);
    EXPECT_EQ(lent_by(comm, Collective::kReduceScatter, kLarge), 0u);
  });
}

TEST(OneCopy, IsTakenOneWayByLargeBlocksWhereRanksShareCoresAndByNoneElse) {
  SKIP_WITHOUT_ONE_COPY();
  constexpr size_t kOneWay = CommLimits().one_way_loans_sharing_cores.min;
  for (const int cores : {2, 1}) {
    const bool share = shares_cores(2, cores);  // always, on a machine with one core
    CommLimits limits;
    limits.loan_cost_max = std::numeric_limits<double>::infinity();
    Meeting meeting(Transport::kShared, 2);
    meeting.set_comm_limits(limits);
    for (int rank = 0; rank < 2; ++rank) meeting.options(rank).cores = cores;
    test::on_processes(
        meeting, [](int) {},
        [&](Communicator& comm) {
          for (const Collective kind : {Collective::kBroadcast, Collective::kSend}) {
            const bool lends = share && comm.rank() == 0;
            EXPECT_EQ(lent_by(comm, kind, kOneWay), lends ? kOneWay : 0) << name_of(kind);
            EXPECT_EQ(lent_by(comm, kind, kOneWay - 64), 0u) << name_of(kind);
          }
          EXPECT_EQ(lent_by(comm, Collective::kAllToAll, limits.loans.max), limits.loans.max);
          EXPECT_EQ(lent_by(comm, Collective::kAllToAll, limits.loans.max + 64), 0u);
        });
  }
}

TEST(OneCopy, IsLeftWhereItIsUnwantedOrSlowAndThePathSaysWhy) {
  SKIP_WITHOUT_ONE_COPY();
  struct Row {
    double cost_max;
    std::string path;
  };
  for (const Row& row :
       {Row{0, "shared memory"}, Row{1e-9, "shared memory (no single copy: slower here)"}}) {
    CommLimits limits;
    limits.loan_cost_max = row.cost_max;
    World world = make_world(Transport::kShared, 2, seconds(60), limits);
    on_all(world, [&](Communicator& comm) {
      EXPECT_EQ(comm.path_to(1 - comm.rank()), row.path);
      EXPECT_EQ(exchange(comm, kLarge).lent, 0u);
    });
  }
  World world = make_world(Transport::kShared, 2);
  EXPECT_EQ(world[0]->path_to(1), "shared memory (large blocks in one copy)");
}

TEST(OneCopy, IsLeftWhereTheHostHasMoreRanksThanItWasMeasuredWith) {
  const int most = CommLimits().loan_ranks_max;
  CommLimits limits = test::Limits{};
  limits.loan_ranks_max = most;
  for (const int ranks : {most, most + 1}) {
    World world = make_world(Transport::kShared, ranks, seconds(60), limits);
    on_all(world, [&](Communicator& comm) {
      const Sizes sizes = exchange(comm, kLarge);
      const bool can = ranks == most && test::ranks_can_read_each_other();
      EXPECT_EQ(sizes.lent, can ? sizes.sent : 0) << ranks << " ranks";
    });
  }
}

// Forbids process_vm_readv to this process from now on.
void forbid_reading() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  // On all threads, including the core's.
  ASSERT_EQ(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter), 0);
}

TEST(LoanCost, IsToldWhereTheKernelCopiesAndIsInfiniteWhereItDoesNot) {
  SKIP_WITHOUT_ONE_COPY();
  const double cost = measure_loan_cost();
  std::printf("a copy by the kernel takes %.2f times as long\n", cost);
  EXPECT_TRUE(std::isfinite(cost));
  const pid_t pid = ::fork();
  if (pid == 0) {
    forbid_reading();
    ::_exit(std::isinf(measure_loan_cost()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(OneCopy, IsLeftByAllRanksOfTheHostWhereTheKernelForbidsItToOne) {
  Meeting meeting(Transport::kShared, 3);
  test::on_processes(
      meeting,
      [](int rank) {
        if (rank == 1) forbid_reading();
      },
      [](Communicator& comm) {
        EXPECT_EQ(comm.path_to((comm.rank() + 1) % 3),
                  "shared memory (no single copy: not permitted)");
        EXPECT_EQ(exchange(comm, kLarge).lent, 0u);
      });
}

TEST(OneCopy, IsRefusedByARankThatMayNoLongerReadAndTheBytesComeThroughTheLink) {
  SKIP_WITHOUT_ONE_COPY();
  Meeting meeting(Transport::kShared, 2);
  test::on_processes(
      meeting, [](int) {},
      [](Communicator& comm) {
        EXPECT_EQ(exchange(comm, kLarge).lent, kLarge);
        if (comm.rank() == 1) forbid_reading();
        for (int i = 0; i < 3; ++i) {
          const Sizes sizes = exchange(comm, kLarge);
          EXPECT_EQ(sizes.sent, kLarge);
          // Rank 1 cannot read, but others can read its memory.
          EXPECT_EQ(sizes.lent, comm.rank() == 0 ? 0 : kLarge);
        }
      });
}

TEST(OneCopy, OfAnAbortedOperationIsNoResultThoughItsMemoryIsFreeAgain) {
  for (const Transport transport : {Transport::kThreads, Transport::kShared}) {
    World world = make_world(transport, 2);
    std::vector<std::byte> going = bytes(kLarge, 1);
    std::vector<std::byte> coming(kLarge);
    const auto buffer = [](std::vector<std::byte>& of) {
      return CommBuffer{.data = of.data(), .count = kLarge, .type = DataType::kU8};
    };
    Work work = world[0]->start_send(buffer(going), 1);
    world[0]->abort("for a test");
    EXPECT_FALSE(work.wait().ok());
    std::fill(going.begin(), going.end(), std::byte{0});
    const Status status = world[1]->receive(buffer(coming), 0);
    ASSERT_FALSE(status.ok());
    // The reason of the abort or, if that arrives late, what the rank itself observes.
    const std::string& words = status.error().message;
    EXPECT_TRUE(words.find("for a test") != std::string::npos ||
                words.find("it revoked the loan") != std::string::npos)
        << words;
  }
}

// A rank that is killed or stopped while the other one reads from it, again and again.
class Victim {
 public:
  explicit Victim(Duration limit) : meeting_(Transport::kShared, 2) {
    meeting_.set_limits(seconds(60), limit);
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      meeting_.keep_only(1);
      auto made = make_communicator(meeting_.options(1));
      while (made.ok() && exchange_once(**made).ok()) {
        if (::write(pipe_[1], "x", 1) != 1) break;
      }
      ::_exit(0);
    }
    ::close(pipe_[1]);
    ::close(meeting_.options(1).listen_fd);
  }
  ~Victim() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(pipe_[0]);
  }
  static Status exchange_once(Communicator& comm) {
    std::vector<std::byte> mine(kLarge);
    std::vector<std::byte> all(2 * kLarge);
    return comm.all_gather(mine, all);
  }
  CommOptions& options() { return meeting_.options(0); }
  // Sends the signal once the rank is at work.
  void send_signal(int signal) const {
    char byte = 0;
    for (int steps = 0; steps < 3; ++steps) EXPECT_EQ(::read(pipe_[0], &byte, 1), 1);
    ::kill(pid_, signal);
  }

 private:
  Meeting meeting_;
  pid_t pid_ = -1;
  int pipe_[2] = {-1, -1};
};

Error error_after(int signal, Duration limit, Code code) {
  Victim victim(limit);
  auto comm = make_communicator(victim.options());
  EXPECT_TRUE(comm.ok()) << comm.error().message;
  if (!comm.ok()) return comm.error();
  std::thread killer([&] { victim.send_signal(signal); });
  Status status;
  while (status.ok()) status = Victim::exchange_once(**comm);
  killer.join();
  EXPECT_EQ(status.error().code, code) << status.error().message;
  EXPECT_EQ((*comm)->suspect(), 1) << status.error().message;
  EXPECT_GT((*comm)->traffic().bytes_lent, 0u);
  return status.error();
}

TEST(OneCopy, FromARankThatIsKilledMeanwhileIsThatRanksEnd) {
  SKIP_WITHOUT_ONE_COPY();
  for (int turn = 0; turn < 10; ++turn) {
    const Error error = error_after(SIGKILL, seconds(60), Code::kUnavailable);
    EXPECT_NE(error.message.find("rank 1 "), std::string::npos) << error.message;
  }
}

TEST(OneCopy, FromARankThatIsStoppedMeanwhileWaitsForTheTimeLimit) {
  SKIP_WITHOUT_ONE_COPY();
  const Error error = error_after(SIGSTOP, seconds(2), Code::kTimeout);
  EXPECT_NE(error.message.find("rank 1 silent"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace lockstep::comm
