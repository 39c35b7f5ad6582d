// Rows for the ops before and after a model's blocks.
#include "bench/kernels/rows_parts.h"
#include "common/base/random.h"

namespace lockstep::bench {

namespace {

// A distribution of tokens. share_of_one of them are token 0, like spaces where tokens are bytes.
struct TokenDraw {
  int64_t vocabulary = 0;
  double share_of_one = 0.0;
};

std::vector<int32_t> random_tokens(int64_t count, const TokenDraw& draw) {
  Random random(2);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    const auto drawn = static_cast<int32_t>(random.below(static_cast<uint64_t>(draw.vocabulary)));
    const bool is_the_one = static_cast<double>(random.uniform()) < draw.share_of_one;
    token = is_the_one ? 0 : drawn;
  }
  return tokens;
}

Call embedding_forward(Memory& memory, const Model& m) {
  const int64_t rows = m.batch * m.sequence;
  return memory.call(
      &kernels::OpTable::embedding_forward,
      kernels::EmbeddingForward{.tokens = memory.integers(random_tokens(rows, {m.vocabulary})),
                                .token_table = memory.floats(m.vocabulary * m.width),
                                .position_table = memory.floats(m.sequence * m.width),
                                .out = memory.numbers(rows * m.width, m.dtype),
                                .batch = m.batch,
                                .sequence = m.sequence,
                                .width = m.width,
                                .vocabulary = m.vocabulary});
}

Call embedding_backward(Memory& memory, const Model& m, const TokenDraw& draw) {
  const int64_t rows = m.batch * m.sequence;
  const kernels::DeviceType type = memory.bench_device().device().type;
  return memory.call(&kernels::OpTable::embedding_backward,
                     kernels::EmbeddingBackward{
                         .tokens = memory.integers(random_tokens(rows, draw)),
                         .dout = memory.numbers(rows * m.width, m.dtype),
                         .dtoken_table = memory.floats(draw.vocabulary * m.width),
                         .dposition_table = memory.floats(m.sequence * m.width),
                         .batch = m.batch,
                         .sequence = m.sequence,
                         .width = m.width,
                         .vocabulary = draw.vocabulary,
                         .workspace = memory.workspace(kernels::embedding_backward_workspace(
                             {rows, draw.vocabulary}, m.width, type))});
}

void add_embedding(const Model& m, std::vector<Row>& list) {
  const std::string sizes = "B=" + std::to_string(m.batch) + " T=" + std::to_string(m.sequence) +
                            " C=" + std::to_string(m.width) + " V=";
  list.push_back({.op = "embedding_forward",
                  .sizes = sizes + std::to_string(m.vocabulary),
                  .prepare = [m](Memory& memory) { return embedding_forward(memory, m); }});
  const TokenDraw bytes{.vocabulary = 256, .share_of_one = 0.18};
  for (const TokenDraw& draw : {TokenDraw{m.vocabulary}, bytes}) {
    list.push_back(
        {.op = "embedding_backward",
         .sizes = sizes + std::to_string(draw.vocabulary) +
                  (draw.share_of_one > 0 ? ", 18 % one token" : ""),
         .prepare = [m, draw](Memory& memory) { return embedding_backward(memory, m, draw); }});
  }
}

struct Logits {
  kernels::View values;
  const int32_t* targets = nullptr;
  float* losses = nullptr;
  float* sums = nullptr;
  float* target_logits = nullptr;
  float* maxima = nullptr;
  kernels::ClassifierShape shape;
};

// The maxima exceed all logits, so that exponentials of exponentials stay finite.
Logits logits(Memory& memory, const Model& m) {
  const int64_t rows = m.head_rows;
  constexpr Range kSums{100.0f, 1000.0f}, kMaxima{2.0f, 3.0f};
  return {.values = memory.numbers(rows * m.columns, m.dtype),
          .targets = memory.integers(random_tokens(rows, {m.vocabulary})),
          .losses = memory.floats(rows),
          .sums = memory.floats(rows, kSums),
          .target_logits = memory.floats(rows),
          .maxima = memory.floats(rows, kMaxima),
          .shape = {.rows = rows, .columns = m.columns, .vocabulary = m.vocabulary}};
}

Call classifier(Memory& memory, const Model& m) {
  const Logits l = logits(memory, m);
  return memory.call(
      &kernels::OpTable::classifier,
      kernels::Classifier{
          .logits = l.values, .targets = l.targets, .losses = l.losses, .shape = l.shape});
}

Call classifier_hits(Memory& memory, const Model& m) {
  const Logits l = logits(memory, m);
  return memory.call(
      &kernels::OpTable::classifier_hits,
      kernels::ClassifierHits{
          .logits = l.values, .targets = l.targets, .hits = l.losses, .shape = l.shape});
}

Call squared_error(Memory& memory, const Model& m) {
  const Logits l = logits(memory, m);
  return memory.call(&kernels::OpTable::squared_error,
                     kernels::SquaredError{.outputs = l.values,
                                           .values = memory.floats(l.shape.rows * m.columns),
                                           .losses = l.losses,
                                           .rows = l.shape.rows,
                                           .columns = m.columns});
}

Call classifier_max(Memory& memory, const Model& m) {
  const Logits l = logits(memory, m);
  return memory.call(
      &kernels::OpTable::classifier_max,
      kernels::ClassifierMax{.logits = l.values, .maxima = l.maxima, .shape = l.shape});
}

Call classifier_sum(Memory& memory, const Model& m) {
  const Logits l = logits(memory, m);
  return memory.call(&kernels::OpTable::classifier_sum,
                     kernels::ClassifierSum{.logits = l.values,
                                            .targets = l.targets,
                                            .maxima = l.maxima,
                                            .sums = l.sums,
                                            .target_logits = l.target_logits,
                                            .shape = l.shape});
}

Call classifier_finish(Memory& memory, const Model& m) {
  const Logits l = logits(memory, m);
  return memory.call(&kernels::OpTable::classifier_finish,
                     kernels::ClassifierFinish{.logits = l.values,
                                               .targets = l.targets,
                                               .sums = l.sums,
                                               .target_logits = l.target_logits,
                                               .losses = l.losses,
                                               .shape = l.shape});
}

using PrepareCall = Call (*)(Memory&, const Model&);

void add_classifiers(const Model& m, std::vector<Row>& list) {
  const std::string sizes =
      "R=" + std::to_string(m.head_rows) + " columns=" + std::to_string(m.columns);
  for (const auto& [op, prepare] : {std::pair<const char*, PrepareCall>{"classifier", classifier},
                                    {"classifier_hits", classifier_hits},
                                    {"squared_error", squared_error},
                                    {"classifier_max", classifier_max},
                                    {"classifier_sum", classifier_sum},
                                    {"classifier_finish", classifier_finish}}) {
    list.push_back(
        {.op = op, .sizes = sizes, .prepare = [=](Memory& memory) { return prepare(memory, m); }});
  }
}

// One row, because a model generates one token at a time.
constexpr int64_t kTopK = 50;
Call sample(Memory& memory, const Model& m) {
  constexpr Range kUniform{0.0f, 1.0f};
  return memory.call(
      &kernels::OpTable::sample,
      kernels::Sample{.logits = memory.numbers(m.columns, m.dtype),
                      .uniforms = memory.floats(1, kUniform),
                      .tokens = memory.integers({0}),
                      .rows = 1,
                      .vocabulary = m.vocabulary,
                      .stride = m.columns,
                      .top_k = kTopK,
                      .workspace = memory.workspace(kernels::sample_workspace(m.vocabulary))});
}

}  // namespace

void add_embedding_loss_rows(const Model& m, std::vector<Row>& list) {
  add_embedding(m, list);
  add_classifiers(m, list);
  list.push_back({.op = "loss_sum",
                  .sizes = "n=" + std::to_string(m.head_rows),
                  .prepare = [m](Memory& memory) {
                    return memory.call(&kernels::OpTable::loss_sum,
                                       kernels::LossSum{.losses = memory.floats(m.head_rows),
                                                        .count = m.head_rows,
                                                        .sum = memory.doubles({0.0})});
                  }});
  list.push_back({.op = "sample",
                  .sizes = "R=1 V=" + std::to_string(m.vocabulary) + " of the first 50",
                  .prepare = [m](Memory& memory) { return sample(memory, m); }});
}

}  // namespace lockstep::bench
