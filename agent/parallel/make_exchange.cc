#include "agent/parallel/all_reduce_exchange.h"
#include "agent/parallel/first_rank_exchange.h"
#include "agent/parallel/gradient_exchange.h"
#include "agent/parallel/host_exchange.h"
#include "agent/parallel/pushed_gradients.h"

namespace lockstep::parallel {

Result<std::unique_ptr<GradientExchange>> make_exchange(Exchange exchange,
                                                        const ExchangeOptions& options,
                                                        const ExchangeParts& parts) {
  switch (exchange) {
    case Exchange::kAllReduce:
      return AllReduceExchange::create(options, parts);
    case Exchange::kFirstRank:
      return FirstRankExchange::create(options, parts);
    case Exchange::kHost:
      return HostExchange::create(options, parts);
    case Exchange::kServers:
      return std::unique_ptr<GradientExchange>(
          std::make_unique<PushedGradients>(options, parts.compute));
  }
  return internal("[exchange] unknown exchange");
}

}  // namespace lockstep::parallel
