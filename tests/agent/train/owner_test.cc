#include "agent/train/checkpoint/owner.h"

#include <gtest/gtest.h>

#include "agent/train/checkpoint/folder_storage.h"
#include "tests/agent/train/memory_file_system.h"
#include "tests/agent/train/saved_checkpoints.h"

namespace lockstep::train {
namespace {

class OwnershipTest : public testing::Test {
 protected:
  OwnershipTest() : files_(Files{{"/s/", ""}}) {}

  Ownership ownership(const OwnerRecord& self) { return {storage_, self}; }
  static void expect_fenced(const Status& status, const std::string& words) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kConflict);
    EXPECT_EQ(status.error().blame, Blame::kFenced);
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  }

  MemoryFileSystem files_;
  FolderStorage storage_{"/s", files_};
};

TEST_F(OwnershipTest, IsTakenRoundAfterRound) {
  for (int64_t round = 0; round < 3; ++round) {
    Ownership owner = ownership(owner_of_round(round));
    EXPECT_EQ(owner.number(), 0);
    ASSERT_TRUE(owner.take().ok());
    EXPECT_EQ(owner.number(), round + 1);
    EXPECT_TRUE(owner.check().ok());
    const std::string name = "/s/owner-0000000" + std::to_string(round + 1) + ".json";
    const auto left = files_.files();
    ASSERT_EQ(left.size(), 2u) << "the folder and one record";
    EXPECT_EQ(parse_owner(left.at(name)).value(), owner_of_round(round));
  }
}

// A file system that many machines mount may show the record late.
TEST_F(OwnershipTest, IsSeenByOtherRanksOnceItsRecordIsThere) {
  const std::string record = format_owner(owner_of_round(3));
  int pauses = 0;
  const auto appears = [&](Duration) {
    if (++pauses != 2) return;
    ASSERT_TRUE(storage_.put_new("owner-00000001.json", record).ok());
  };
  EXPECT_TRUE(wait_for_owner(storage_, 1, record, appears).ok());
  EXPECT_EQ(pauses, 2);
  EXPECT_TRUE(wait_for_owner(storage_, 1, record, [](Duration) { FAIL(); }).ok());
}

// The same number in another folder, as where a volume is not mounted.
TEST_F(OwnershipTest, OfAnotherStorageIsNotTakenForTheOwners) {
  ASSERT_TRUE(ownership(owner_of_round(1)).take().ok());
  Duration waited{};
  const Status seen = wait_for_owner(storage_, 1, format_owner(owner_of_round(2)),
                                     [&](Duration pause) { waited += pause; });
  EXPECT_EQ(seen.error().code, Code::kNotFound);
  EXPECT_EQ(waited, std::chrono::seconds(60));
}

// The older one read the newer one's record before it was complete.
TEST_F(OwnershipTest, IsTakenBackFromAnOlderRound) {
  Ownership newer = ownership(owner_of_round(7));
  ASSERT_TRUE(newer.take().ok());
  ASSERT_TRUE(storage_.put_new("owner-00000002.json", format_owner(owner_of_round(6))).ok());
  EXPECT_TRUE(newer.check().ok());
  EXPECT_EQ(newer.number(), 3);
}

TEST_F(OwnershipTest, OfAnOlderRoundIsRefused) {
  ASSERT_TRUE(ownership(owner_of_round(7)).take().ok());
  const auto before = files_.files();
  expect_fenced(ownership(owner_of_round(6)).take(),
                "/s belongs to round 7 of job job (uid uid), which is newer than round 6");
  EXPECT_EQ(files_.files(), before);
  EXPECT_TRUE(ownership(owner_of_round(7)).take().ok()) << "the same round, for example a restart";
}

TEST_F(OwnershipTest, OfAnotherJobIsTakenWhateverItsRound) {
  const OwnerRecord other{.job_uid = "another", .job_name = "job", .round = 9};
  const OwnerRecord unnamed{.job_uid = "", .job_name = "another", .round = 9};
  ASSERT_TRUE(ownership(other).take().ok());
  ASSERT_TRUE(ownership(owner_of_round(0)).take().ok()) << "another uid";
  ASSERT_TRUE(ownership(unnamed).take().ok());
  ASSERT_TRUE(ownership(owner_of_round(0)).take().ok()) << "no uid and another name";
  ASSERT_TRUE(ownership({.job_name = "job", .round = 3}).take().ok());
  expect_fenced(ownership(owner_of_round(2)).take(), "belongs to round 3 of job job,");
}

TEST_F(OwnershipTest, IsLostToASuccessor) {
  Ownership first = ownership(owner_of_round(1));
  ASSERT_TRUE(first.take().ok());
  Ownership second = ownership(owner_of_round(2));
  ASSERT_TRUE(second.take().ok());
  expect_fenced(first.check(), "/s now belongs to round 2 of job job (uid uid)");
  EXPECT_TRUE(second.check().ok());
  files_.put("/s/owner-00000003.json", "");
  EXPECT_TRUE(second.check().ok()) << "a record that was cut off is nobody's";
  EXPECT_EQ(second.number(), 4);
}

TEST_F(OwnershipTest, IsTakenFromARecordThatWasCutOff) {
  const std::string whole = format_owner(owner_of_round(9));
  const std::string cases[] = {"", whole.substr(0, whole.size() / 2), "{}",
                               std::string(1 << 16, ' ')};
  for (const std::string& record : cases) {
    files_ = MemoryFileSystem(Files{{"/s/owner-00000041.json", record}});
    Ownership owner = ownership(owner_of_round(1));
    ASSERT_TRUE(owner.take().ok()) << record.size();
    EXPECT_EQ(owner.number(), 42);
  }
}

// An error of the storage is no answer to who owns it.
TEST_F(OwnershipTest, IsNeitherTakenNorKeptWhenStorageFails) {
  Ownership first = ownership(owner_of_round(1));
  ASSERT_TRUE(first.take().ok());
  int64_t calls = 0;
  for (int64_t call = 0; call <= calls; ++call) {
    MemoryFileSystem before(files_.files());
    FolderStorage storage("/s", before);
    Ownership second(storage, owner_of_round(2));
    before.plan({.first = call, .count = 1});
    const Status taken = second.take();
    calls = before.calls();
    before.plan({});
    if (!taken.ok()) {
      EXPECT_EQ(taken.error().code, Code::kUnavailable) << taken.error().message;
      EXPECT_EQ(taken.error().blame, Blame::kStorage);
    } else {
      EXPECT_TRUE(second.check().ok());
    }
    Ownership third(storage, owner_of_round(2));
    EXPECT_TRUE(third.take().ok()) << "after call " << call << " failed";
    EXPECT_TRUE(third.check().ok());
  }
  EXPECT_GT(calls, 8);
  files_.plan({.first = 0, .count = 1});
  EXPECT_EQ(first.check().error().code, Code::kUnavailable);
}

TEST(OwnerRecord, SurvivesARoundTripAndRefusesWhatIsNotOne) {
  const OwnerRecord owner{.job_uid = "u", .job_name = "n\"", .round = INT64_MAX, .boot_id = "b"};
  EXPECT_EQ(parse_owner(format_owner(owner)).value(), owner);
  for (const char* text :
       {"", "[]", "{}", R"({"format":"lockstep-owner/2","round":1})",
        R"({"format":"lockstep-owner/1"})", R"({"format":"lockstep-owner/1","round":"1"})"}) {
    const auto parsed = parse_owner(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt);
  }
}

}  // namespace
}  // namespace lockstep::train
