#include "bench/collectives/library.h"

namespace lockstep::bench {

bool has_mpi() {
  return false;
}

Result<std::unique_ptr<Library>> join_mpi() {
  return unavailable("built without Open MPI: install libopenmpi-dev and configure again");
}

}  // namespace lockstep::bench
