#include "bench/collectives/library.h"

namespace lockstep::bench {

bool has_gloo() {
  return false;
}

Result<std::unique_ptr<Library>> join_gloo(const Joining&) {
  return unavailable("built without Gloo: install libgloo-dev and configure again");
}

}  // namespace lockstep::bench
