#include "common/layout/sharding.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Sharding, HasNamesThatAreParsed) {
  for (const Sharding each :
       {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    EXPECT_EQ(parse_sharding(sharding_name(each)).value(), each);
  }
  for (const Offload each : {Offload::kNone, Offload::kOptimizer, Offload::kParameters}) {
    EXPECT_EQ(parse_offload(offload_name(each)).value(), each);
  }
  for (const Exchange each : {Exchange::kAllReduce, Exchange::kFirstRank, Exchange::kHost}) {
    EXPECT_EQ(parse_exchange(exchange_name(each)).value(), each);
  }
}

TEST(Sharding, RefusesOtherNames) {
  EXPECT_EQ(parse_sharding("zero3").error().message,
            "[parallelism] expected none, optimizer, gradients or parameters, got \"zero3\"");
  EXPECT_FALSE(parse_exchange(exchange_name(Exchange::kServers)).ok());
  EXPECT_EQ(parse_offload("").error().code, Code::kInvalid);
  EXPECT_EQ(parse_exchange("allreduce").error().message,
            "[parallelism] expected allReduce, firstRank or host, got \"allreduce\"");
}

}  // namespace
}  // namespace lockstep
