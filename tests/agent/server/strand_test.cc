#include "agent/server/strand.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::server {
namespace {

TEST(Strand, IsToldOfTasksThatFollowEachOther) {
  std::string told;
  {
    Strand strand({.begin = [&] { told += '('; }, .end = [&] { told += ')'; }});
    strand.run([&] {
      for (int i = 0; i < Strand::kTasksMax; ++i) strand.post([&] { told += '.'; });
      told += '!';
    });
  }
  EXPECT_EQ(told, "(!" + std::string(Strand::kTasksMax - 1, '.') + ")(.)")
      << "a limited number in a row";
}

TEST(Strand, RunsWhatWasPostedBeforeItsEnd) {
  int ran = 0;
  {
    Strand strand;
    for (int i = 0; i < 100; ++i) strand.post([&] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace lockstep::server
