#include "common/api/storage_notes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "common/api/progress_page.h"
#include "common/base/utf8.h"

namespace lockstep {
namespace {

FixedText fixed(std::string_view text) {
  FixedText result;
  result.assign(text);
  return result;
}

TEST(FixedText, HoldsATextUpToItsSize) {
  EXPECT_EQ(FixedText{}.text(), "");
  EXPECT_EQ(fixed("no space left on device").text(), "no space left on device");
  const std::string full(FixedText{}.bytes.size(), 'x');
  EXPECT_EQ(fixed(full).text(), full) << "no byte is kept for a zero";
}

TEST(FixedText, KeepsTheBeginningAndTheEndOfALongerText) {
  const std::string path = "rank 3: open of /" + std::string(4000, 'p');
  const std::string cut(fixed(path + "/model.safetensors: no space").text());
  EXPECT_EQ(cut.size(), FixedText{}.bytes.size());
  EXPECT_TRUE(cut.starts_with("rank 3: open of /ppp")) << cut;
  EXPECT_TRUE(cut.ends_with("p/model.safetensors: no space")) << cut;
  EXPECT_NE(cut.find("p...p"), std::string::npos) << cut;
}

TEST(FixedText, IsCutBetweenCharacters) {
  for (const std::string_view shift : {"", "x"}) {
    std::string text(shift);
    while (text.size() < 300) text += "\u00e9";
    const std::string cut(fixed(text).text());
    EXPECT_EQ(cut, clean_utf8(cut));
    EXPECT_GT(cut.size(), FixedText{}.bytes.size() - 4);
  }
}

TEST(FixedText, ForgetsALongerTextThatItHeldBefore) {
  FixedText text = fixed("a long sentence");
  text.assign("short");
  EXPECT_EQ(text.text(), "short");
  EXPECT_EQ(text, fixed("short"));
}

TEST(StorageNotes, SayNothingOnAPageThatNobodyWrote) {
  const auto agent = ProgressPage::create();
  ASSERT_TRUE(agent.ok());
  StorageNotes read{.saved = 3};
  ASSERT_TRUE(agent->storage().read(read));
  EXPECT_EQ(read, StorageNotes{}) << "zeros would say that the save of step 0 failed";
}

TEST(StorageNotes, KeepTheirPlaceOnThePageNextToTheOtherParts) {
  auto agent = ProgressPage::create();
  ASSERT_TRUE(agent.ok());
  auto worker = ProgressPage::attach(dup(agent->fd()));
  ASSERT_TRUE(worker.ok());
  ProgressNumbers progress;
  progress.step = 7;
  worker->write(progress);
  GpuNumbers gpu;
  for (XidCount& xid : gpu.xids) xid = {~0u, ~0u};  // the last field
  worker->gpu().write(gpu);
  worker->board().beat();
  const StorageNotes notes{.saved = 1,
                           .failed = 2,
                           .failed_step = 500,
                           .save_seconds = 0.5,
                           .blocked_seconds = 0.25,
                           .set_aside = 1,
                           .set_aside_step = 400,
                           .resumed_step = 300,
                           .failure = fixed("no space left on device"),
                           .set_aside_reason = fixed(std::string(240, '\xff')),
                           .from_memory = 1};
  worker->storage().write(notes);
  StorageNotes read;
  ASSERT_TRUE(agent->storage().read(read));
  EXPECT_EQ(read, notes);
  ASSERT_TRUE(agent->read(progress));
  EXPECT_EQ(progress.step, 7);
  ASSERT_TRUE(agent->gpu().read(gpu));
  EXPECT_EQ(gpu.xids.back().count, ~0u);
  EXPECT_EQ(agent->board().beats(), 1u);
  EXPECT_TRUE(agent->board().groups().empty());
}

}  // namespace
}  // namespace lockstep
