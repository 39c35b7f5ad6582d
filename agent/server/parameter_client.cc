#include "agent/server/parameter_client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/server/limits.h"
#include "agent/server/transfer.h"

namespace lockstep::server {

struct ParameterClient::TensorCall {
  const rpc::Method* method = nullptr;
  uint32_t tensor = 0;
  uint64_t clock = 0;
  double learning_rate = 0;
  std::span<const float> values;
  std::span<float> into;
  Encoding encoding = Encoding::kF32;
};

struct ParameterClient::RowsCall {
  const rpc::Method* method = nullptr;
  uint32_t table = 0;
  std::span<const uint64_t> keys;
  uint64_t clock = 0;
  double learning_rate = 0;
  std::span<const float> values;
  std::span<float> into;
  bool is_push = false;
  Encoding encoding = Encoding::kF32;
  float threshold = 0;
};

namespace {

Error wrong(const std::string& name, const std::string& what, uint64_t expected, uint64_t got) {
  return invalid("[server] " + name + ": expected " + what + " " + std::to_string(expected) +
                 ", got " + std::to_string(got));
}

// Copies the rows of a server's keys from the list of all.
std::vector<float> gather(std::span<const float> values, const std::vector<uint32_t>& places,
                          size_t dim) {
  std::vector<float> rows(places.size() * dim);
  for (size_t i = 0; i < places.size(); ++i) {
    std::copy_n(values.data() + places[i] * dim, dim, rows.data() + i * dim);
  }
  return rows;
}

}  // namespace

ParameterClient::ParameterClient(Options options, std::shared_ptr<CurrentView> view)
    : options_(std::move(options)), view_(std::move(view)), residuals_(options_.catalog) {}

Result<std::unique_ptr<ParameterClient>> ParameterClient::create(Options options) {
  TRY(check_catalog(options.catalog));
  TRY(check_view(options.view, options.catalog));
  auto view = std::make_shared<const View>(std::move(options.view));
  TRY_ASSIGN(auto current, CurrentView::create({.rpc = options.rpc,
                                                .servers = std::move(options.servers),
                                                .patience = options.view_patience},
                                               std::move(view)));
  return std::unique_ptr<ParameterClient>(
      new ParameterClient(std::move(options), std::move(current)));
}

Status ParameterClient::install(const View& view) {
  TRY(check_view(view, options_.catalog));
  return view_->install(std::make_shared<const View>(view));
}

void ParameterClient::move_servers(const std::vector<rpc::Client::ServerAddress>& servers) {
  view_->move(servers);
}

std::unique_ptr<TransferPart> ParameterClient::part_of(const rpc::Method& method,
                                                       const CallHead& head) const {
  auto part = std::make_unique<TransferPart>(view_);
  part->method = &method;
  part->head = head;
  part->timeout = options_.timeout;
  part->repeats = options_.returned_at == head.clock;
  part->recorder = options_.recorder;
  return part;
}

Status ParameterClient::check(const TensorCall& call) const {
  const std::vector<TensorSpec>& tensors = options_.catalog.tensors;
  if (call.tensor >= tensors.size()) {
    return wrong("tensor", "an index below", tensors.size(), call.tensor);
  }
  const TensorSpec& tensor = tensors[call.tensor];
  const uint64_t count = call.method == &kPull ? call.into.size() : call.values.size();
  if (count != tensor.count) return wrong(tensor.name, "elements", tensor.count, count);
  return {};
}

Status ParameterClient::check(const RowsCall& call) const {
  const std::vector<TableSpec>& tables = options_.catalog.tables;
  if (call.table >= tables.size()) {
    return wrong("table", "an index below", tables.size(), call.table);
  }
  const TableSpec& table = tables[call.table];
  if (call.keys.size() > kKeysMax) {
    return wrong(table.name, "keys of at most", kKeysMax, call.keys.size());
  }
  const uint64_t count = call.is_push ? call.values.size() : call.into.size();
  if (count != call.keys.size() * table.dim) {
    return wrong(table.name, "floats", call.keys.size() * table.dim, count);
  }
  if (std::ranges::adjacent_find(call.keys, std::ranges::greater_equal()) != call.keys.end()) {
    return invalid("[server] " + table.name + ": expected keys in ascending order");
  }
  return {};
}

Transfer ParameterClient::begin(const TensorCall& call) {
  if (const Status checked = check(call); !checked.ok()) return Transfer(checked.error());
  const rpc::RequestBurst together = burst();
  std::vector<std::unique_ptr<TransferPart>> parts;
  const auto routing = view_->routing();
  const auto [first, last] = routing->ranges_of(call.tensor);
  for (size_t i = first; i < last; ++i) {
    const DenseRange& range = routing->view().ranges[i];
    const uint64_t count = range.end - range.begin;
    const Encoding encoding = encoding_for(call.encoding, count);
    auto part = part_of(*call.method, {.kind = UnitKind::kRange,
                                       .unit = static_cast<uint32_t>(i),
                                       .encoding = encoding,
                                       .clock = call.clock,
                                       .learning_rate = call.learning_rate});
    if (!call.into.empty()) {
      part->into = call.into.subspan(range.begin, count);
      part->reply = encoded_floats(part->head, count);
    } else if (encoding == Encoding::kF32) {
      part->values = std::as_bytes(call.values.subspan(range.begin, count));
    } else {
      part->encoded = residuals_.encode_range(call.tensor, range.begin,
                                              call.values.subspan(range.begin, count), encoding);
      part->values = part->encoded;
    }
    view_->begin(*part);
    parts.push_back(std::move(part));
  }
  return Transfer(std::move(parts));
}

// Sets what a push to one unit sends of the gradients of its rows.
void ParameterClient::set_values(const RowsCall& call, std::span<const float> rows,
                                 TransferPart& part) {
  pushed_rows_ += part.keys.size();
  if (part.head.encoding == Encoding::kF32 && call.threshold == 0) {
    part.values = std::as_bytes(rows);
    return;
  }
  Residuals::EncodedRows encoded = residuals_.encode_rows({.table = call.table,
                                                           .keys = part.keys,
                                                           .clock = call.clock,
                                                           .gradients = rows,
                                                           .encoding = part.head.encoding,
                                                           .threshold = call.threshold});
  part.selection = std::move(encoded.selection);
  part.encoded = std::move(encoded.floats);
  part.values = part.encoded;
  if (!part.selection.empty()) {
    kept_back_rows_ += part.keys.size() - selected_count(part.selection);
  }
}

Transfer ParameterClient::begin(const RowsCall& call) {
  if (const Status checked = check(call); !checked.ok()) return Transfer(checked.error());
  const rpc::RequestBurst together = burst();
  const size_t dim = options_.catalog.tables[call.table].dim;
  const Encoding encoding = encoding_for(call.encoding, dim);
  std::vector<RoutedKeys> lists = view_->routing()->split(call.keys);
  const bool is_whole = lists.size() == 1;
  std::vector<std::unique_ptr<TransferPart>> parts;
  for (RoutedKeys& list : lists) {
    if (!call.is_push && list.keys.empty() && !is_whole) continue;
    auto part = part_of(*call.method, {.kind = UnitKind::kTable,
                                       .unit = call.table,
                                       .encoding = encoding,
                                       .clock = call.clock,
                                       .learning_rate = call.learning_rate,
                                       .slot = list.slot});
    part->routed = std::move(list);
    part->keys = part->routed.keys;
    part->head.key_count = part->keys.size();
    part->head.signature = signature_of(part->keys);
    if (call.is_push) {
      if (!is_whole) part->rows = gather(call.values, part->routed.places, dim);
      const std::span<const float> rows =
          is_whole ? call.values : std::span<const float>(part->rows);
      set_values(call, rows, *part);
    } else {
      part->reply = encoded_floats(part->head, dim);
      part->into = call.into;
      if (!is_whole) {
        part->rows.resize(part->keys.size() * dim);
        part->into = part->rows;
        part->scatter_to = call.into;
      }
    }
    view_->begin(*part);
    parts.push_back(std::move(part));
  }
  return Transfer(std::move(parts));
}

Transfer ParameterClient::pull(const RowsPull& pull) {
  return begin(RowsCall{.method = &kPull,
                        .table = pull.table,
                        .keys = pull.keys,
                        .clock = pull.clock,
                        .into = pull.into,
                        .encoding = pull.encoding});
}

Transfer ParameterClient::push(const RowsPush& push) {
  return begin(RowsCall{.method = &kPush,
                        .table = push.table,
                        .keys = push.keys,
                        .clock = push.clock,
                        .learning_rate = push.learning_rate,
                        .values = push.gradients,
                        .is_push = true,
                        .encoding = push.encoding,
                        .threshold = push.threshold});
}

Transfer ParameterClient::pull(const TensorPull& pull) {
  return begin(TensorCall{.method = &kPull,
                          .tensor = pull.tensor,
                          .clock = pull.clock,
                          .into = pull.into,
                          .encoding = pull.encoding});
}

Transfer ParameterClient::push(const TensorPush& push) {
  return begin(TensorCall{.method = &kPush,
                          .tensor = push.tensor,
                          .clock = push.clock,
                          .learning_rate = push.learning_rate,
                          .values = push.gradient,
                          .encoding = push.encoding});
}

Transfer ParameterClient::put(const TensorPut& put) {
  return begin(TensorCall{.method = &kPut, .tensor = put.tensor, .values = put.values});
}

}  // namespace lockstep::server
