#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/server/catalog.h"
#include "agent/server/client_history.h"
#include "agent/server/current_view.h"
#include "agent/server/encoding.h"
#include "agent/server/messages.h"
#include "agent/server/residuals.h"
#include "agent/server/view.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::server {

struct TransferPart;

// A pull, push or put under way, or its outcome: calls to one or more servers. Move-only; used by
// one thread at a time. The destructor cancels calls that are not done.
class Transfer {
 public:
  // The servers' answers together: the lowest clocks, and whether any push was late. Without keys,
  // a pull calls no server, and clocks are 2^64 - 1.
  struct Outcome {
    uint64_t slowest = 0;  // the lowest clock of a worker: a pull with clock c missed updates of
                           // at most c - slowest steps
    uint64_t own = 0;      // the clock of this worker's next push
    bool is_late = false;  // push: it came after its step's update, and counted for nothing
  };

  Transfer(Transfer&&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;
  ~Transfer();

  // Whether wait() would not block for a server, except to send keys that it has forgotten.
  bool is_done() const;
  // Blocks until all calls are done; afterwards the caller's memory is not used any more. Errors:
  // - kConflict: the server has a later view, or another one of this number; or the push has been
  //   taken before;
  // - kUnavailable: there is no room for more rows, or as rpc::Call::wait();
  // - kInvalid: wrong options.
  // The message names the server and the unit.
  Result<Outcome> wait();

 private:
  friend class ParameterClient;
  explicit Transfer(std::vector<std::unique_ptr<TransferPart>> parts);
  explicit Transfer(Error refused);

  std::vector<std::unique_ptr<TransferPart>> parts_;
  Status refused_;
};

// A worker's side of parameter servers (parameter_server.h). Every function begins calls to all
// servers concerned and returns at once; a Transfer is their future, so a worker asks for the rows
// of its next batch while it computes this one.
//
// A worker's step with clock c, the number of steps it has completed: it pulls with clock c, and
// pushes with clock c to every unit exactly once: every tensor, and every table, even if its list
// of keys is empty. Clocks say what a pull sees (unit_clock.h).
//
// A list of keys is sent once to each server, and later named by its signature. Floats may be sent
// in fewer bits (encoding.h). The loss of a push is added to the worker's next push of the
// same elements (residuals.h), so such pushes begin in the order of their clocks.
//
// Thread-safe. Caller-owned memory stays as it is until the transfer is waited for or destroyed.
class ParameterClient {
 public:
  struct Options {
    rpc::Client* rpc = nullptr;  // outlives this and its transfers
    Catalog catalog;
    View view;
    // All servers that may be a primary, in this view or a later one.
    std::vector<rpc::Client::ServerAddress> servers;
    Duration timeout{};  // of a call; 0: no limit
    // How long a call whose server is gone, or has a later view, waits for install(); then it
    // fails. 0: not at all.
    Duration view_patience{};
    // A process in whose place this one is may have pushed with this clock: such pushes are taken
    // where they were not, and are no conflict where they were.
    std::optional<uint64_t> returned_at{};
    ClientRecorder recorder;  // may be empty
  };
  // kInvalid for wrong options.
  static Result<std::unique_ptr<ParameterClient>> create(Options options);

  // Goes by a later view from now on. Calls that are not done move with their units, and those that
  // failed because of the view are repeated; pushes are taken once all the same. kConflict for an
  // earlier view, kInvalid if a primary has no address. From any thread.
  Status install(const View& view);
  // Looks for these servers at these addresses from now on. Calls to a server's previous address
  // fail. Before install() of the view in which they count again; from any thread.
  void move_servers(const std::vector<rpc::Client::ServerAddress>& servers);

  // Rows of one table. Keys ascend.
  struct RowsPull {
    uint32_t table = 0;
    std::span<const uint64_t> keys;
    uint64_t clock = 0;
    std::span<float> into;  // [keys, dim]
    Encoding encoding = Encoding::kF32;
  };
  Transfer pull(const RowsPull& pull);
  struct RowsPush {
    uint32_t table = 0;
    std::span<const uint64_t> keys;
    uint64_t clock = 0;
    std::span<const float> gradients;  // [keys, dim]
    double learning_rate = 0;
    Encoding encoding = Encoding::kF32;
    // Above 0: a row of which no element is above it in magnitude is kept back, and added to this
    // worker's next push of that row. Source: the "significantly modified" filter of Li et al.,
    // "Scaling distributed machine learning with the parameter server", OSDI 2014.
    float threshold = 0;
  };
  Transfer push(const RowsPush& push);

  // A whole tensor.
  struct TensorPull {
    uint32_t tensor = 0;
    uint64_t clock = 0;
    std::span<float> into;  // [count]
    Encoding encoding = Encoding::kF32;
  };
  Transfer pull(const TensorPull& pull);
  struct TensorPush {
    uint32_t tensor = 0;
    uint64_t clock = 0;
    std::span<const float> gradient;  // [count]
    double learning_rate = 0;
    Encoding encoding = Encoding::kF32;
  };
  Transfer push(const TensorPush& push);
  // Sets the initial values. One worker does so; the others pull once it has told them.
  struct TensorPut {
    uint32_t tensor = 0;
    std::span<const float> values;  // [count]
  };
  Transfer put(const TensorPut& put);

  // The rows of all pushes so far, and those of them that were kept back.
  struct RowCounts {
    uint64_t all = 0;
    uint64_t kept_back = 0;
  };
  RowCounts pushed_rows() const { return {pushed_rows_, kept_back_rows_}; }

  // The transfers that begin while it lives go out together, if they are small.
  rpc::RequestBurst burst() { return rpc::RequestBurst(*options_.rpc); }

 private:
  struct TensorCall;
  struct RowsCall;
  ParameterClient(Options options, std::shared_ptr<CurrentView> view);
  Transfer begin(const TensorCall& call);
  Transfer begin(const RowsCall& call);
  Status check(const TensorCall& call) const;
  Status check(const RowsCall& call) const;
  void set_values(const RowsCall& call, std::span<const float> rows, TransferPart& part);
  std::unique_ptr<TransferPart> part_of(const rpc::Method& method, const CallHead& head) const;

  Options options_;
  std::shared_ptr<CurrentView> view_;
  Residuals residuals_;
  std::atomic<uint64_t> pushed_rows_ = 0;
  std::atomic<uint64_t> kept_back_rows_ = 0;
};

}  // namespace lockstep::server
