// The bare worker has no OpenSSL.
#include <gtest/gtest.h>

#include "agent/comm/make_communicator.h"
#include "common/crypto/aead.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

TEST(NoEncryption, AWorldThatNeedsItIsRefusedInWords) {
  test::Meeting meeting(test::Transport::kTcp, 2);
  meeting.options(0).encrypt = true;
  const auto made = make_communicator(meeting.options(0));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kUnavailable);
  EXPECT_EQ(made.error().blame, Blame::kConfig);
  EXPECT_EQ(
      made.error().message,
      "[crypto] spec.security.encryption: required, but this lockstep-worker was built without "
      "OpenSSL (preset worker): use an image whose worker has it, or encryption: none");
  EXPECT_FALSE(make_sealing_aead({}).ok());
  EXPECT_FALSE(make_opening_aead({}).ok());
}

}  // namespace
}  // namespace lockstep::comm
