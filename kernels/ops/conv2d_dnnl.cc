// Convolutions by oneDNN. It chooses a layout of its own for the filters, which are copied into it
// and back. Images and their gradients stay channels-last.
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/device/parallel.h"
#include "kernels/ops/conv2d_library.h"
#include "kernels/ops/dnnl_engine.h"

namespace lockstep::kernels {

namespace {

constexpr int64_t kFilterBlockMax = 64;  // of channels, in oneDNN's layouts
constexpr size_t kConvAlignment = 64;

enum class ConvPass : uint8_t { kForward, kBackwardInputs, kBackwardFilters };

struct ConvKey {
  Conv2dShape shape;
  ConvPass pass;
  bool bias;
  int threads;  // blocking depends on it

  bool operator==(const ConvKey&) const = default;
};

struct ConvKeyHash {
  size_t operator()(const ConvKey& key) const {
    const Conv2dShape& s = key.shape;
    size_t hash = 0;
    for (const int64_t value :
         {s.batch, s.height, s.width, s.channels, s.filters, s.filter_height, s.filter_width,
          s.stride, s.padding, static_cast<int64_t>(key.pass) * 2 + (key.bias ? 1 : 0),
          int64_t{key.threads}}) {
      hash = (hash ^ static_cast<size_t>(value)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

dnnl_memory_desc_t described(const std::vector<int64_t>& dims, dnnl_format_tag_t tag) {
  dnnl_dims_t sizes;
  std::copy(dims.begin(), dims.end(), sizes);
  dnnl_memory_desc_t desc;
  CHECK(dnnl_memory_desc_init_by_tag(&desc, static_cast<int>(dims.size()), sizes, dnnl_f32, tag) ==
        dnnl_success);
  return desc;
}

// The tensors of a convolution, as we have them.
struct ConvDescs {
  explicit ConvDescs(const Conv2dShape& s)
      : x(described({s.batch, s.channels, s.height, s.width}, dnnl_nhwc)),
        weight(described({s.filters, s.channels, s.filter_height, s.filter_width}, dnnl_ohwi)),
        any_weight(described({s.filters, s.channels, s.filter_height, s.filter_width},
                             dnnl_format_tag_any)),
        bias(described({s.filters}, dnnl_x)),
        y(described({s.batch, s.filters, s.out_height(), s.out_width()}, dnnl_nhwc)) {}

  dnnl_memory_desc_t x, weight, any_weight, bias, y;
};

dnnl_primitive_attr_t strict_attributes() {
  dnnl_primitive_attr_t attributes = nullptr;
  CHECK(dnnl_primitive_attr_create(&attributes) == dnnl_success);
  // fp32 means fp32, whatever the environment says of faster modes.
  CHECK(dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict) == dnnl_success);
  return attributes;
}

dnnl_primitive_desc_t forward_desc(const ConvKey& key, const ConvDescs& at) {
  const Conv2dShape& s = key.shape;
  const dnnl_dims_t strides = {s.stride, s.stride}, padding = {s.padding, s.padding};
  dnnl_convolution_desc_t desc;
  CHECK(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                           &at.x, &at.any_weight, key.bias ? &at.bias : nullptr,
                                           &at.y, strides, padding, padding) == dnnl_success);
  dnnl_primitive_attr_t attributes = strict_attributes();
  dnnl_primitive_desc_t made = nullptr;
  CHECK(dnnl_primitive_desc_create(&made, &desc, attributes, dnnl_cpu_engine(), nullptr) ==
        dnnl_success);
  dnnl_primitive_attr_destroy(attributes);
  return made;
}

dnnl_primitive_desc_t backward_desc(const ConvKey& key, const ConvDescs& at) {
  const Conv2dShape& s = key.shape;
  const dnnl_dims_t strides = {s.stride, s.stride}, padding = {s.padding, s.padding};
  dnnl_convolution_desc_t desc;
  const dnnl_status_t status = key.pass == ConvPass::kBackwardInputs
                                   ? dnnl_convolution_backward_data_desc_init(
                                         &desc, dnnl_convolution_direct, &at.x, &at.any_weight,
                                         &at.y, strides, padding, padding)
                                   : dnnl_convolution_backward_weights_desc_init(
                                         &desc, dnnl_convolution_direct, &at.x, &at.any_weight,
                                         nullptr, &at.y, strides, padding, padding);
  CHECK(status == dnnl_success);
  const dnnl_primitive_desc_t hint = forward_desc(key, at);
  dnnl_primitive_attr_t attributes = strict_attributes();
  dnnl_primitive_desc_t made = nullptr;
  CHECK(dnnl_primitive_desc_create(&made, &desc, attributes, dnnl_cpu_engine(), hint) ==
        dnnl_success);
  dnnl_primitive_attr_destroy(attributes);
  dnnl_primitive_desc_destroy(hint);
  return made;
}

// Copies between the two layouts of filters; `adds` to what is there.
dnnl_primitive_t make_copy(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to,
                           bool adds) {
  dnnl_primitive_attr_t attributes = nullptr;
  CHECK(dnnl_primitive_attr_create(&attributes) == dnnl_success);
  dnnl_post_ops_t sum = nullptr;
  if (adds) {
    CHECK(dnnl_post_ops_create(&sum) == dnnl_success);
    CHECK(dnnl_post_ops_append_sum(sum, 1.0f) == dnnl_success);
    CHECK(dnnl_primitive_attr_set_post_ops(attributes, sum) == dnnl_success);
  }
  dnnl_primitive_desc_t desc = nullptr;
  CHECK(dnnl_reorder_primitive_desc_create(&desc, &from, dnnl_cpu_engine(), &to, dnnl_cpu_engine(),
                                           attributes) == dnnl_success);
  dnnl_primitive_t made = nullptr;
  CHECK(dnnl_primitive_create(&made, desc) == dnnl_success);
  dnnl_primitive_desc_destroy(desc);
  dnnl_primitive_attr_destroy(attributes);
  if (sum != nullptr) dnnl_post_ops_destroy(sum);
  return made;
}

// The memory of a pass. `filters` are ours: read, or added to by kBackwardFilters.
struct ConvMemory {
  const float* x = nullptr;  // or dx
  const float* filters = nullptr;
  const float* bias = nullptr;
  const float* y = nullptr;  // or dy
  Workspace workspace = {};
};

// A prepared pass, and the memory objects that each call points to its arguments.
class PreparedConv {
 public:
  explicit PreparedConv(const ConvKey& key) : pass_(key.pass) {
    const ConvDescs at(key.shape);
    const dnnl_primitive_desc_t desc =
        pass_ == ConvPass::kForward ? forward_desc(key, at) : backward_desc(key, at);
    CHECK(dnnl_primitive_create(&primitive_, desc) == dnnl_success);
    const bool is_gradient = pass_ == ConvPass::kBackwardFilters;
    const dnnl_memory_desc_t inside = *dnnl_primitive_desc_query_md(
        desc, is_gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    dnnl_primitive_desc_destroy(desc);
    inside_bytes_ = dnnl_memory_desc_get_size(&inside);
    copy_ = is_gradient ? make_copy(inside, at.weight, true) : make_copy(at.weight, inside, false);
    x_ = make_memory(at.x);
    outside_ = make_memory(at.weight);
    inside_ = make_memory(inside);
    y_ = make_memory(at.y);
    if (key.bias) bias_ = make_memory(at.bias);
  }
  PreparedConv(PreparedConv&& other) noexcept
      : pass_(other.pass_),
        primitive_(std::exchange(other.primitive_, nullptr)),
        copy_(std::exchange(other.copy_, nullptr)),
        inside_bytes_(other.inside_bytes_),
        x_(std::exchange(other.x_, nullptr)),
        outside_(std::exchange(other.outside_, nullptr)),
        inside_(std::exchange(other.inside_, nullptr)),
        y_(std::exchange(other.y_, nullptr)),
        bias_(std::exchange(other.bias_, nullptr)) {}
  PreparedConv& operator=(PreparedConv&&) = delete;
  ~PreparedConv() {
    for (const dnnl_memory_t memory : {x_, outside_, inside_, y_, bias_}) {
      if (memory != nullptr) dnnl_memory_destroy(memory);
    }
    for (const dnnl_primitive_t primitive : {primitive_, copy_}) {
      if (primitive != nullptr) dnnl_primitive_destroy(primitive);
    }
  }

  void run(const ConvMemory& memory, dnnl_stream_t stream) {
    CHECK(memory.workspace.bytes >= inside_bytes_);
    point(x_, memory.x);
    point(outside_, memory.filters);
    point(inside_, memory.workspace.data);
    point(y_, memory.y);
    if (bias_ != nullptr) point(bias_, memory.bias);
    switch (pass_) {
      case ConvPass::kForward:
        execute(copy_, {{DNNL_ARG_FROM, outside_}, {DNNL_ARG_TO, inside_}}, stream);
        if (bias_ == nullptr) {
          execute(primitive_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, inside_}, {DNNL_ARG_DST, y_}},
                  stream);
        } else {
          execute(primitive_,
                  {{DNNL_ARG_SRC, x_},
                   {DNNL_ARG_WEIGHTS, inside_},
                   {DNNL_ARG_BIAS, bias_},
                   {DNNL_ARG_DST, y_}},
                  stream);
        }
        return;
      case ConvPass::kBackwardInputs:
        execute(copy_, {{DNNL_ARG_FROM, outside_}, {DNNL_ARG_TO, inside_}}, stream);
        execute(primitive_,
                {{DNNL_ARG_DIFF_DST, y_}, {DNNL_ARG_WEIGHTS, inside_}, {DNNL_ARG_DIFF_SRC, x_}},
                stream);
        return;
      case ConvPass::kBackwardFilters:
        execute(primitive_,
                {{DNNL_ARG_SRC, x_}, {DNNL_ARG_DIFF_DST, y_}, {DNNL_ARG_DIFF_WEIGHTS, inside_}},
                stream);
        execute(copy_, {{DNNL_ARG_FROM, inside_}, {DNNL_ARG_TO, outside_}}, stream);
    }
  }

 private:
  static dnnl_memory_t make_memory(const dnnl_memory_desc_t& desc) {
    dnnl_memory_t memory = nullptr;
    CHECK(dnnl_memory_create(&memory, &desc, dnnl_cpu_engine(), DNNL_MEMORY_NONE) == dnnl_success);
    return memory;
  }
  static void point(dnnl_memory_t memory, const void* data) {
    CHECK(dnnl_memory_set_data_handle(memory, const_cast<void*>(data)) == dnnl_success);
  }
  static void execute(dnnl_primitive_t primitive, std::initializer_list<dnnl_exec_arg_t> args,
                      dnnl_stream_t stream) {
    CHECK(dnnl_primitive_execute(primitive, stream, static_cast<int>(args.size()), args.begin()) ==
          dnnl_success);
  }

  ConvPass pass_;
  dnnl_primitive_t primitive_ = nullptr;
  dnnl_primitive_t copy_ = nullptr;
  size_t inside_bytes_ = 0;  // of the filters in oneDNN's layout
  dnnl_memory_t x_ = nullptr;
  dnnl_memory_t outside_ = nullptr;
  dnnl_memory_t inside_ = nullptr;
  dnnl_memory_t y_ = nullptr;
  dnnl_memory_t bias_ = nullptr;
};

// The passes that one thread has prepared so far: three for each convolution of a model.
class ConvCache {
 public:
  ConvCache() {
    CHECK(dnnl_stream_create(&stream_, dnnl_cpu_engine(), dnnl_stream_default_flags) ==
          dnnl_success);
  }
  ConvCache(const ConvCache&) = delete;
  ConvCache& operator=(const ConvCache&) = delete;
  ~ConvCache() {
    prepared_.clear();
    dnnl_stream_destroy(stream_);
  }

  void run(const ConvKey& key, const ConvMemory& memory) {
    auto found = prepared_.find(key);
    if (found == prepared_.end()) found = prepared_.emplace(key, PreparedConv(key)).first;
    found->second.run(memory, stream_);
  }

 private:
  dnnl_stream_t stream_ = nullptr;
  std::unordered_map<ConvKey, PreparedConv, ConvKeyHash> prepared_;
};

void run(ConvPass pass, const Conv2dShape& shape, const ConvMemory& memory) {
  set_dnnl_threads();
  static thread_local ConvCache cache;
  cache.run({.shape = shape, .pass = pass, .bias = memory.bias != nullptr, .threads = threads()},
            memory);
}

size_t filter_bytes(const Conv2dShape& s) {
  const auto padded = [](int64_t channels) {
    return (channels + kFilterBlockMax - 1) / kFilterBlockMax * kFilterBlockMax;
  };
  return static_cast<size_t>(padded(s.filters) * padded(s.channels) * s.filter_height *
                             s.filter_width) *
         sizeof(float);
}

// oneDNN computes gradients of inputs, but does not add to them.
void add(const float* from, int64_t count, float* to) {
  constexpr int64_t kGrain = 16384;
  parallel_for(count, kGrain, [&](Range range) {
    for (int64_t i = range.begin; i < range.end; ++i) to[i] += from[i];
  });
}

}  // namespace

bool library_conv2d_forward(const Conv2dForward& args) {
  if (args.shape.groups > 1) return false;
  run(ConvPass::kForward, args.shape,
      {.x = args.x.f32(),
       .filters = args.weight.f32(),
       .bias = args.bias,
       .y = args.y.f32(),
       .workspace = args.workspace});
  return true;
}

bool library_conv2d_backward(const Conv2dBackward& args) {
  const Conv2dShape& s = args.shape;
  if (s.groups > 1) return false;
  if (args.dweight != nullptr) {
    run(ConvPass::kBackwardFilters, s,
        {.x = args.x.f32(),
         .filters = args.dweight,
         .y = args.dy.f32(),
         .workspace = args.workspace});
  }
  if (!args.dx) return true;
  const size_t filters = filter_bytes(s);
  auto* const apart =
      reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace.data) + filters);
  run(ConvPass::kBackwardInputs, s,
      {.x = args.adds_dx ? apart : args.dx.f32(),
       .filters = args.weight.f32(),
       .y = args.dy.f32(),
       .workspace = {args.workspace.data, filters}});
  if (args.adds_dx) add(apart, s.in_count(), args.dx.f32());
  return true;
}

size_t library_conv2d_workspace(const Conv2dShape& shape) {
  if (shape.groups > 1) return 0;
  return filter_bytes(shape) + static_cast<size_t>(shape.in_count()) * sizeof(float);
}

}  // namespace lockstep::kernels
