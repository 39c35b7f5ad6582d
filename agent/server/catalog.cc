#include "agent/server/catalog.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "agent/server/limits.h"

namespace lockstep::server {
namespace {

Error wrong(const std::string& name, const std::string& what) {
  return invalid("[server] " + name + ": " + what, Blame::kConfig);
}

Status check_name(const std::string& name) {
  if (name.empty() || name.size() > kNameBytesMax) {
    return wrong("a tensor or table", "expected a name of 1 to " + std::to_string(kNameBytesMax) +
                                          " bytes, got " + std::to_string(name.size()));
  }
  for (const char c : name) {
    if (c <= ' ' || c > '~') return wrong(name, "expected a name without spaces, in ASCII");
  }
  return {};
}

Status check_optimizer(const std::string& name, const optim::OptimizerOptions& optimizer) {
  if (optimizer.rounding_seed != 0) return wrong(name, "servers keep no copies that are rounded");
  if (optimizer.kind == optim::OptimizerKind::kMuon) {
    return wrong(name, "servers have parts of matrices, which muon cannot orthogonalise");
  }
  return {};
}

Status check_tensor(const TensorSpec& tensor) {
  TRY(check_name(tensor.name));
  if (tensor.count == 0 || tensor.count > kTensorElementsMax) {
    return wrong(tensor.name, "expected 1 to " + std::to_string(kTensorElementsMax) +
                                  " elements, got " + std::to_string(tensor.count));
  }
  return check_optimizer(tensor.name, tensor.optimizer);
}

Status check_table(const TableSpec& table) {
  TRY(check_name(table.name));
  if (table.dim == 0 || table.dim > kTableDimMax) {
    return wrong(table.name, "expected rows of 1 to " + std::to_string(kTableDimMax) +
                                 " elements, got " + std::to_string(table.dim));
  }
  if (!(table.deviation >= 0) || !std::isfinite(table.deviation)) {
    return wrong(table.name, "expected a deviation of at least 0");
  }
  if (table.deviation > 0 && table.optimizer.kind == optim::OptimizerKind::kFtrl) {
    return wrong(table.name, "rows that FTRL updates begin with zeros");
  }
  const RowLife& life = table.life;
  if (!(life.frequency_min >= 0) || !(life.half_life >= 0) || !std::isfinite(life.half_life)) {
    return wrong(table.name, "expected a frequency and a half-life of at least 0");
  }
  if (!(life.decay >= 0 && life.decay < 1)) return wrong(table.name, "expected a decay below 1");
  return check_optimizer(table.name, table.optimizer);
}

class Text {
 public:
  explicit Text(std::string& out) : out_(out) {}
  void word(const std::string& word) {
    out_ += (out_.empty() || out_.back() == '\n' ? "" : " ") + word;
  }
  void number(double value) {
    char digits[64];
    std::snprintf(digits, sizeof digits, "%a", value);
    word(digits);
  }
  void end() { out_ += '\n'; }

 private:
  std::string& out_;
};

void write(Text& text, const optim::OptimizerOptions& o) {
  text.word(std::to_string(static_cast<int>(o.kind)));
  for (const double value :
       {o.beta1, o.beta2, o.epsilon, o.momentum, o.l1, o.beta, o.weight_decay, o.average_decay})
    text.number(value);
  text.word(o.nesterov ? "nesterov" : "-");
  text.end();
}

}  // namespace

Status check_catalog(const Catalog& catalog) {
  if (catalog.tensors.size() > kTensorsMax || catalog.tables.size() > kTablesMax) {
    return invalid("[server] expected at most " + std::to_string(kTensorsMax) + " tensors and " +
                       std::to_string(kTablesMax) + " tables, got " +
                       std::to_string(catalog.tensors.size()) + " and " +
                       std::to_string(catalog.tables.size()),
                   Blame::kConfig);
  }
  for (const TensorSpec& tensor : catalog.tensors) TRY(check_tensor(tensor));
  for (const TableSpec& table : catalog.tables) TRY(check_table(table));
  return {};
}

Digest digest_of(const Catalog& catalog) {
  std::string out;
  Text text(out);
  for (const TensorSpec& tensor : catalog.tensors) {
    text.word("tensor");
    text.word(tensor.name);
    text.word(std::to_string(tensor.count));
    write(text, tensor.optimizer);
  }
  for (const TableSpec& table : catalog.tables) {
    text.word("table");
    text.word(table.name);
    text.word(std::to_string(table.dim));
    const RowLife forever;
    text.word(std::to_string(forever.idle_max));
    const double numbers[] = {table.deviation, forever.frequency_min, forever.half_life,
                              forever.decay};
    for (const double value : numbers) text.number(value);
    write(text, table.optimizer);
  }
  return sha256(out);
}

}  // namespace lockstep::server
