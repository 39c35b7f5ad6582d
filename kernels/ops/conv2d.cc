#include "kernels/ops/conv2d.h"

#include "kernels/device/parallel.h"
#include "kernels/ops/conv2d_library.h"
#include "kernels/ops/conv2d_patches.h"
#include "kernels/ops/gemm.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kWork = 16384;  // values that are worth a thread

int64_t grain_of(int64_t values_of_item) {
  return max_of(1, kWork / max_of(1, values_of_item));
}

void add_to(float* to, const float* from, int64_t count) {
  for_vectors(count, [&](int64_t i, int64_t n) {
    store_n(to + i, load_n(to + i, n) + load_n(from + i, n), n);
  });
}

// The images [first, first + count) of a convolution, of one group.
struct Part {
  const Conv2dShape& shape;
  int64_t first = 0;
  int64_t count = 0;
  int64_t group = 0;

  int64_t channels() const { return shape.channels / shape.groups; }
  int64_t filters() const { return shape.filters / shape.groups; }
  int64_t rows() const { return count * shape.out_pixels(); }
  // Whether a patch is a pixel, and patches are the images themselves.
  bool is_plain() const {
    return shape.filter_height == 1 && shape.filter_width == 1 && shape.stride == 1 &&
           shape.padding == 0 && shape.groups == 1;
  }
};

// Writes the patch of output pixel (p, q) of an image.
void write_patch(const Part& part, const float* image, int64_t p, int64_t q, float* patch) {
  const Conv2dShape& s = part.shape;
  const int64_t channels = part.channels();
  for (int64_t r = 0; r < s.filter_height; ++r) {
    const int64_t h = p * s.stride - s.padding + r;
    for (int64_t t = 0; t < s.filter_width; ++t, patch += channels) {
      const int64_t w = q * s.stride - s.padding + t;
      if (h < 0 || h >= s.height || w < 0 || w >= s.width) {
        __builtin_memset(patch, 0, static_cast<size_t>(channels) * sizeof(float));
        continue;
      }
      const float* pixel = image + (h * s.width + w) * s.channels + part.group * channels;
      __builtin_memcpy(patch, pixel, static_cast<size_t>(channels) * sizeof(float));
    }
  }
}

// patches[rows, R*S*C/G]
void write_patches(const Part& part, const float* x, float* patches) {
  const Conv2dShape& s = part.shape;
  const int64_t length = s.filter_count(), pixels = s.out_pixels();
  parallel_for(part.rows(), grain_of(length), [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const int64_t pixel = row % pixels;
      const float* image = x + (part.first + row / pixels) * s.height * s.width * s.channels;
      write_patch(part, image, pixel / s.out_width(), pixel % s.out_width(),
                  patches + row * length);
    }
  });
}

// Adds what the patches' gradients say of input pixel (h, w) of image i of the part.
void gather_pixel(const Part& part, const float* patches, int64_t i, int64_t h, int64_t w,
                  float* pixel) {
  const Conv2dShape& s = part.shape;
  const int64_t channels = part.channels(), length = s.filter_count();
  for (int64_t r = 0; r < s.filter_height; ++r) {
    const int64_t down = h + s.padding - r;
    if (down < 0 || down % s.stride != 0 || down / s.stride >= s.out_height()) continue;
    for (int64_t t = 0; t < s.filter_width; ++t) {
      const int64_t right = w + s.padding - t;
      if (right < 0 || right % s.stride != 0 || right / s.stride >= s.out_width()) continue;
      const int64_t row = i * s.out_pixels() + down / s.stride * s.out_width() + right / s.stride;
      add_to(pixel, patches + row * length + (r * s.filter_width + t) * channels, channels);
    }
  }
}

void gather_patches(const Part& part, const float* patches, float* dx) {
  const Conv2dShape& s = part.shape;
  parallel_for(part.count * s.height, grain_of(s.width * s.filter_count()), [&](Range range) {
    for (int64_t line = range.begin; line < range.end; ++line) {
      const int64_t i = line / s.height, h = line % s.height;
      float* pixels = dx + ((part.first + i) * s.height + h) * s.width * s.channels;
      for (int64_t w = 0; w < s.width; ++w) {
        gather_pixel(part, patches, i, h, w,
                     pixels + w * s.channels + part.group * part.channels());
      }
    }
  });
}

// Between a group's columns of rows [*, K] and a dense product [rows, K/G].
void copy_columns(const Part& part, const float* from, int64_t from_row, float* to,
                  int64_t to_row) {
  const auto bytes = static_cast<size_t>(part.filters()) * sizeof(float);
  for (int64_t row = 0; row < part.rows(); ++row) {
    __builtin_memcpy(to + row * to_row, from + row * from_row, bytes);
  }
}

// The memory of the passes, from the workspace.
struct Scratch {
  float* patches = nullptr;
  float* product = nullptr;  // with several groups
};

Scratch scratch_of(const PatchPlan& plan, const Workspace& workspace) {
  auto* patches = static_cast<float*>(workspace.data);
  return {patches, patches + plan.patch_floats};
}

void forward_part(const Part& part, const Conv2dForward& args, const Scratch& scratch) {
  const Conv2dShape& s = part.shape;
  const int64_t filters = part.filters();
  const int64_t first_row = part.first * s.out_pixels();
  const float* patches = args.x.f32() + first_row * s.channels;
  if (!part.is_plain()) {
    write_patches(part, args.x.f32(), scratch.patches);
    patches = scratch.patches;
  }
  float* columns = args.y.f32() + first_row * s.filters + part.group * filters;
  const bool is_whole = s.groups == 1;
  gemm({.a = patches,
        .b = args.weight.f32() + part.group * filters * s.filter_count(),
        .bias = args.bias == nullptr ? nullptr : args.bias + part.group * filters,
        .c = is_whole ? columns : scratch.product,
        .m = part.rows(),
        .n = filters,
        .k = s.filter_count(),
        .transpose_b = true});
  if (!is_whole) copy_columns(part, scratch.product, filters, columns, s.filters);
}

// The product of a plain convolution is dx itself, unless dx is added to.
void backward_inputs(const Part& part, const Conv2dBackward& args, const float* dy,
                     const Scratch& scratch) {
  const Conv2dShape& s = part.shape;
  const int64_t first_row = part.first * s.out_pixels();
  float* plain = part.is_plain() ? args.dx.f32() + first_row * s.channels : nullptr;
  gemm({.a = dy,
        .b = args.weight.f32() + part.group * part.filters() * s.filter_count(),
        .c = plain != nullptr ? plain : scratch.patches,
        .m = part.rows(),
        .n = s.filter_count(),
        .k = part.filters(),
        .accumulate = plain != nullptr});
  if (plain == nullptr) gather_patches(part, scratch.patches, args.dx.f32());
}

void backward_filters(const Part& part, const Conv2dBackward& args, const float* dy,
                      const Scratch& scratch) {
  const Conv2dShape& s = part.shape;
  const int64_t filters = part.filters();
  const float* patches = args.x.f32() + part.first * s.out_pixels() * s.channels;
  if (!part.is_plain()) {
    write_patches(part, args.x.f32(), scratch.patches);
    patches = scratch.patches;
  }
  gemm({.a = dy,
        .b = patches,
        .c = args.dweight + part.group * filters * s.filter_count(),
        .m = filters,
        .n = s.filter_count(),
        .k = part.rows(),
        .transpose_a = true,
        .accumulate = true});
}

void backward_part(const Part& part, const Conv2dBackward& args, const Scratch& scratch) {
  const Conv2dShape& s = part.shape;
  const int64_t filters = part.filters();
  const int64_t first_row = part.first * s.out_pixels();
  const float* dy = args.dy.f32() + first_row * s.filters + part.group * filters;
  if (s.groups > 1) {
    copy_columns(part, dy, s.filters, scratch.product, filters);
    dy = scratch.product;
  }
  if (args.dweight != nullptr) backward_filters(part, args, dy, scratch);
  if (args.dx) backward_inputs(part, args, dy, scratch);
}

// Calls body(part) for all images and groups.
template <class Body>
void for_parts(const Conv2dShape& shape, const PatchPlan& plan, Body body) {
  for (int64_t first = 0; first < shape.batch; first += plan.images) {
    const int64_t count = min_of(plan.images, shape.batch - first);
    for (int64_t group = 0; group < shape.groups; ++group) {
      body(Part{shape, first, count, group});
    }
  }
}

// dbias[k] += the sum of dy over all pixels; each thread has its own columns.
void add_bias_gradient(const Conv2dBackward& args) {
  const Conv2dShape& s = args.shape;
  const int64_t rows = s.batch * s.out_pixels();
  const float* dy = args.dy.f32();
  parallel_for(s.filters, max_of(kLanes, grain_of(rows)), [&](Range range) {
    for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
      const int64_t at = range.begin + i;
      Vec sum = {};
      for (int64_t row = 0; row < rows; ++row) sum += load_n(dy + row * s.filters + at, n);
      store_n(args.dbias + at, load_n(args.dbias + at, n) + sum, n);
    });
  });
}

void check(const Conv2dShape& s) {
  CHECK(s.stride >= 1 && s.groups >= 1 && s.padding >= 0);
  CHECK(s.channels % s.groups == 0 && s.filters % s.groups == 0);
  CHECK(s.filter_height <= s.height + 2 * s.padding && s.filter_width <= s.width + 2 * s.padding);
}

}  // namespace

void conv2d_forward(Stream&, const Conv2dForward& args) {
  check(args.shape);
  if (args.shape.out_count() == 0 || library_conv2d_forward(args)) return;
  const PatchPlan plan = patch_plan(args.shape);
  const Scratch scratch = scratch_of(plan, args.workspace);
  for_parts(args.shape, plan, [&](const Part& part) { forward_part(part, args, scratch); });
}

void conv2d_backward(Stream& stream, const Conv2dBackward& args) {
  check(args.shape);
  if (args.shape.out_count() == 0) return;
  if (args.dbias != nullptr) add_bias_gradient(args);
  if (library_conv2d_backward(args)) return;
  if (args.dx && !args.adds_dx) fill(stream, {.out = args.dx, .count = args.shape.in_count()});
  const PatchPlan plan = patch_plan(args.shape);
  const Scratch scratch = scratch_of(plan, args.workspace);
  for_parts(args.shape, plan, [&](const Part& part) { backward_part(part, args, scratch); });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
