#include "kernels/ops/matmul.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/blas/blas.h"
#include "kernels/ops/column_sums.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/gelu_value.cuh"
#include "kernels/ops/geometry.h"
#include "kernels/ops/matmul_geometry.h"

// Products run in cuBLASLt, with the whole epilogue if possible. If it has no algorithm for that,
// we try without GELU, then also without the bias, and run the omitted steps as separate kernels.
// If it has no algorithm at all, we use our own plain kernel.
namespace lockstep::kernels::cuda {

namespace {

using blas::Call;
using blas::Epilogue;
using blas::Product;

// The steps that plain_product applies to a sum, in this order.
struct Steps {
  bool add_d = false;
  bool add_bias = false;
  bool keep_aux = false;
  bool gelu = false;
  bool gelu_derivative = false;
};

Steps steps_of(const Product& product) {
  const Epilogue epilogue = product.epilogue;
  const bool derivative = epilogue == Epilogue::kDGelu;
  return {.add_d = product.accumulate,
          .add_bias = blas::has_bias(epilogue),
          .keep_aux = blas::has_aux(epilogue) && !derivative,
          .gelu = blas::has_gelu(epilogue) && !derivative,
          .gelu_derivative = derivative};
}

// Computes a blas::Product with one thread per element of D. Adjacent threads have adjacent rows of
// D, which are adjacent in memory. Sums in ascending order.
template <class Factor, class Value>
__global__ void __launch_bounds__(kProductTile* kProductTile)
    plain_product(Product product, Steps steps, blas::Operands operands) {
  constexpr int kTile = kProductTile;
  float(*a_tile)[kTile + 1] = shared_memory<float[kTile + 1]>();  // [depth][row]
  float(*b_tile)[kTile + 1] = a_tile + kTile;                     // [column][depth]
  const int x = static_cast<int>(threadIdx.x) % kTile;
  const int y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t row_begin = int64_t{blockIdx.y} * kTile, column_begin = int64_t{blockIdx.x} * kTile;
  const auto* a = static_cast<const Factor*>(operands.a);
  const auto* b = static_cast<const Factor*>(operands.b);
  const auto at = [](const Factor* matrix, int64_t row, int64_t column, int64_t rows,
                     int64_t columns) {
    return row < rows && column < columns ? to_float(matrix[row + column * rows]) : 0.0f;
  };

  float sum = 0.0f;
  for (int64_t depth = 0; depth < product.depth; depth += kTile) {
    // Adjacent threads read elements that are adjacent in memory.
    if (product.transpose_a) {
      a_tile[x][y] = at(a, depth + x, row_begin + y, product.depth, product.rows);
    } else {
      a_tile[y][x] = at(a, row_begin + x, depth + y, product.rows, product.depth);
    }
    if (product.transpose_b) {
      b_tile[x][y] = at(b, column_begin + x, depth + y, product.columns, product.depth);
    } else {
      b_tile[y][x] = at(b, depth + x, column_begin + y, product.depth, product.columns);
    }
    sync_block();
    for (int l = 0; l < kTile; ++l) sum = fmaf(a_tile[l][x], b_tile[y][l], sum);
    sync_block();
  }

  const int64_t row = row_begin + x, column = column_begin + y;
  if (row >= product.rows || column >= product.columns) return;
  const int64_t place = row + column * product.rows;
  auto* d = static_cast<Value*>(operands.d);
  auto* aux = static_cast<Value*>(operands.aux);
  if (steps.add_d) sum += to_float(d[place]);
  if (steps.add_bias) sum += to_float(static_cast<const Value*>(operands.bias)[row]);
  if (steps.keep_aux) store_values(aux + place, {sum});
  if (steps.gelu) sum = gelu_value<Value>(sum);
  if (steps.gelu_derivative) sum *= gelu_derivative<Value>(to_float(aux[place]));
  store_values(d + place, {sum});
}

template <class Factor, class Value>
void launch_plain(Stream& stream, const Call& call) {
  launch(stream, plain_product_shape(call.product.rows, call.product.columns),
         plain_product<Factor, Value>, call.product, steps_of(call.product), call.operands);
}

void run_plain(Stream& stream, const Call& call) {
  if (call.product.factors == DType::kF32) {
    launch_plain<float, float>(stream, call);
  } else if (call.product.result == DType::kBf16) {
    launch_plain<Bf16, Bf16>(stream, call);
  } else {
    launch_plain<Bf16, float>(stream, call);
  }
}

// Grid: (row of the tensor, strip of columns).
template <class T, int N>
__global__ void __launch_bounds__(kRowStripThreads)
    add_to_rows(T* rows, const T* bias, int64_t width) {
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= width) return;
  float values[N], more[N];
  T* at = rows + int64_t{blockIdx.x} * width + column;
  load_values(values, at);
  load_values(more, bias + column);
  for (int i = 0; i < N; ++i) values[i] += more[i];
  store_values(at, values);
}

// Adds the bias in a separate kernel.
void run_bias(Stream& stream, const Call& whole, const Call& done) {
  const Product& product = whole.product;
  const View d(done.operands.d, product.result);
  const ConstView bias(whole.operands.bias, product.result);
  const PackedRows rows{
      .dtype = product.result, .width = product.rows, .begins = {d.data, bias.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, row_strips_shape("add_bias", product.columns, product.rows, N),
           add_to_rows<T, N>, elements_of<T>(d), elements_of<T>(bias), product.rows);
  });
}

// Applies GELU, or its derivative, in a separate kernel.
void run_gelu(Stream& stream, const Call& whole, const Call& done) {
  const Product& product = whole.product;
  const View d(whole.operands.d, product.result);
  const int64_t count = product.rows * product.columns;
  if (product.epilogue == Epilogue::kDGelu) {
    const View aux(whole.operands.aux, product.result);
    gelu_backward(stream, {.x = aux, .dy = d, .dx = d, .count = count});
  } else {
    const View before(done.operands.d, product.result);
    gelu_forward(stream, {.x = before, .y = d, .count = count});
  }
}

// Runs the steps of `whole`'s epilogue that `done` did not include.
void run_rest(Stream& stream, const Call& whole, const Call& done) {
  const Epilogue wanted = whole.product.epilogue, had = done.product.epilogue;
  if (blas::has_bias(wanted) && !blas::has_bias(had)) run_bias(stream, whole, done);
  if (blas::has_gelu(wanted) && !blas::has_gelu(had)) run_gelu(stream, whole, done);
}

Status run(Stream& stream, const Call& call, const Workspace& workspace) {
  const Call* before = nullptr;
  for (const Call& tried : {call, blas::without_gelu(call), blas::without_epilogue(call)}) {
    if (call.product.depth == 0) break;
    if (before != nullptr && tried.product.epilogue == before->product.epilogue) continue;
    TRY_ASSIGN(const bool done, blas::multiply(stream, tried, workspace));
    if (done) {
      run_rest(stream, call, tried);
      return {};
    }
    before = &tried;
  }
  run_plain(stream, call);
  return {};
}

void run_or_fail(Stream& stream, const Call& call, const Workspace& workspace) {
  if (const Status status = run(stream, call, workspace); !status.ok()) {
    stream.fail(status.error());
  }
}

// Returns the library's part: always the first kWorkspaceBytes, because the choice of algorithm
// depends on its size. Other data comes after it.
Workspace library_part(const Workspace& workspace) {
  CHECK(workspace.bytes >= blas::kWorkspaceBytes);
  return {workspace.data, blas::kWorkspaceBytes};
}

// Returns the bias in y's dtype.
ConstView prepared_bias(Stream& stream, const MatmulForward& args) {
  if (!args.bias || args.bias.dtype == args.y.dtype) return args.bias;
  CHECK(args.bias.dtype == DType::kF32);
  const View rounded(static_cast<char*>(args.workspace.data) + blas::kWorkspaceBytes, args.y.dtype);
  cast(stream, {.x = args.bias, .out = rounded, .count = args.n});
  return rounded;
}

// parts[blockIdx.y, column] = the sum of one part's rows: each warp's rows first, then the warps.
template <class Value, int kValues>
__global__ void __launch_bounds__(kColumnThreads)
    column_sum_parts(const Value* x, int64_t rows, int64_t columns, int64_t rows_at_once,
                     float* parts) {
  constexpr int kBlockColumns = kWarpThreads * kValues;
  const int64_t column = int64_t{blockIdx.x} * kBlockColumns + lane_index() * kValues;
  const int64_t begin = int64_t{blockIdx.y} * rows_at_once;
  const int64_t end = begin + rows_at_once < rows ? begin + rows_at_once : rows;
  float sums[1][kValues] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = begin + warp_index(); row < end; row += kColumnWarps) {
      float values[kValues];
      load_values(values, x + row * columns + column);
      for (int i = 0; i < kValues; ++i) sums[0][i] += values[i];
    }
  }
  join_warps(sums, shared_memory<float>(), [&](int, int i, float total) {
    const int64_t to = int64_t{blockIdx.x} * kBlockColumns + i;
    if (to < columns) parts[int64_t{blockIdx.y} * columns + to] = total;
  });
}

// dbias[N] += the column sums of dy.
void add_column_sums(Stream& stream, const MatmulBackward& args) {
  CHECK(args.workspace.bytes >= column_sum_bytes(args.m, args.n));
  auto* parts = static_cast<float*>(args.workspace.data);
  const PackedRows rows{.dtype = args.dy.dtype, .width = args.n, .begins = {args.dy.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const ColumnSumPlan plan = column_sum_plan(args.m, args.n, N);
    launch(stream, plan.partial_shape, column_sum_parts<T, N>, elements_of<T>(args.dy), args.m,
           args.n, plan.rows_at_once, parts);
    launch_add_parts(stream, {.sums = parts, .count = plan.parts, .stride = args.n},
                     {args.dbias.f32()}, args.n);
  });
}

}  // namespace

void matmul_forward(Stream& stream, const MatmulForward& args) {
  if (args.m == 0 || args.n == 0) return;
  CHECK(args.activation == Activation::kGelu || !args.pre_activation);
  CHECK(args.workspace.bytes >=
        matmul_forward_workspace({args.m, args.n, args.k}, args.precision, DeviceType::kCuda));
  MatmulForward prepared = args;
  prepared.bias = prepared_bias(stream, args);
  run_or_fail(stream, blas::forward_call(prepared), library_part(args.workspace));
}

void matmul_backward(Stream& stream, const MatmulBackward& args) {
  if (args.m == 0 || args.n == 0) return;
  if (args.dbias) add_column_sums(stream, args);
  if (args.k == 0) return;
  const Workspace workspace = library_part(args.workspace);
  if (args.dweight) run_or_fail(stream, blas::dweight_call(args), workspace);
  if (args.dx) run_or_fail(stream, blas::dx_call(args), workspace);
}

}  // namespace lockstep::kernels::cuda
