// Open MPI. mpirun starts it, and mpirun's arguments choose the transport.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "bench/collectives/library.h"

namespace lockstep::bench {
namespace {

class Mpi final : public Library {
 public:
  Mpi() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~Mpi() override { MPI_Finalize(); }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string describe() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string version(text, static_cast<size_t>(length));
    return version.substr(0, version.find(','));
  }
  std::string unsupported_reason(const Turn&) const override { return ""; }

  Status run(const Turn& turn) override {
    const int code = call(turn);
    if (code == MPI_SUCCESS) return {};
    return unavailable("[mpi] error " + std::to_string(code));
  }

 private:
  static int call(const Turn& turn) {
    const auto count = static_cast<int>(turn.count);
    const bool is_or = turn.op == comm::ReduceOp::kLor;
    MPI_Datatype type = is_or ? MPI_INT32_T : MPI_FLOAT;
    MPI_Op op = is_or ? MPI_LOR : MPI_SUM;
    switch (turn.kind) {
      case comm::Collective::kAllReduce:
        return MPI_Allreduce(MPI_IN_PLACE, turn.output, count, type, op, MPI_COMM_WORLD);
      case comm::Collective::kBroadcast:
        return MPI_Bcast(turn.output, count, type, turn.root, MPI_COMM_WORLD);
      case comm::Collective::kAllGather:
        return MPI_Allgather(turn.input, count, type, turn.output, count, type, MPI_COMM_WORLD);
      case comm::Collective::kAllToAll:
        return MPI_Alltoall(turn.input, count, type, turn.output, count, type, MPI_COMM_WORLD);
      default:
        return MPI_Reduce_scatter_block(turn.input, turn.output, count, type, op, MPI_COMM_WORLD);
    }
  }

  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

bool has_mpi() {
  return true;
}

Result<std::unique_ptr<Library>> join_mpi() {
  return std::unique_ptr<Library>(new Mpi());
}

}  // namespace lockstep::bench
