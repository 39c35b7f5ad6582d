// The memory of an op case's run.
#include <bit>

#include "common/base/check.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

// Blocks until the copy is done.
Status copy_now(const RunOn& on, const CopyArgs& args) {
  TRY_ASSIGN(Stream stream, Stream::create(on.device));
  TRY(copy_bytes(stream, args));
  return stream.synchronize();
}

// Truncates: test values are exact in bf16, or NaN.
std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  }
  return bits;
}

template <class T>
Result<std::vector<T>> read(const RunOn& on, const Buffer& from) {
  std::vector<T> values(from.bytes() / sizeof(T));
  TRY(copy_now(on, {.to = values.data(), .from = from.data(), .bytes = from.bytes()}));
  return values;
}

// Reads values of type T and converts them to fp32.
template <class T, class Convert>
Status read_as_floats(const RunOn& on, const Buffer& from, std::vector<float>& to,
                      Convert convert) {
  TRY_ASSIGN(const std::vector<T> values, read<T>(on, from));
  to.clear();
  for (const T value : values) to.push_back(convert(value));
  return {};
}

Status read_floats(const RunOn& on, const Buffer& from, DType dtype, std::vector<float>& to) {
  if (dtype == DType::kF32) {
    return read_as_floats<float>(on, from, to, [](float value) { return value; });
  }
  return read_as_floats<uint16_t>(
      on, from, to, [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); });
}

}  // namespace

void Tensors::keep(const Status& status) {
  if (status_.ok()) status_ = status;
}

Status Tensors::try_store(const std::string& name, Kind kind, const void* bytes, size_t count) {
  TRY_ASSIGN(Buffer buffer, Buffer::allocate(on_.device, count, name));
  TRY(copy_now(on_, {.to = buffer.data(), .from = bytes, .bytes = count}));
  stored_[name] = {std::move(buffer), kind};
  return {};
}

void Tensors::store(const std::string& name, Kind kind, const void* bytes, size_t count) {
  stored_[name].kind = kind;  // set even if the copy fails; the tensor then keeps its previous
                              // memory, or has none
  if (status_.ok()) keep(try_store(name, kind, bytes, count));
}

void Tensors::put(const std::string& name, std::vector<float> values, bool as_bf16) {
  if (as_bf16) {
    const std::vector<uint16_t> bits = to_bf16(values);
    store(name, Kind::kBf16, bits.data(), bits.size() * sizeof(uint16_t));
  } else {
    store(name, Kind::kF32, values.data(), values.size() * sizeof(float));
  }
  floats[name] = std::move(values);
}

void Tensors::put(const std::string& name, std::vector<int32_t> values) {
  store(name, Kind::kInt, values.data(), values.size() * sizeof(int32_t));
  ints[name] = std::move(values);
}

void Tensors::put_doubles(const std::string& name, const std::vector<double>& values) {
  store(name, Kind::kDouble, values.data(), values.size() * sizeof(double));
  floats[name].assign(values.begin(), values.end());
}

const std::vector<float>& Tensors::get(const std::string& name) {
  const Stored& stored = stored_.at(name);
  std::vector<float>& values = floats[name];
  if (!status_.ok()) return values;
  if (stored.kind == Kind::kDouble) {
    keep(read_as_floats<double>(on_, stored.buffer, values,
                                [](double value) { return static_cast<float>(value); }));
  } else {
    keep(read_floats(on_, stored.buffer, stored.view().dtype, values));
  }
  return values;
}

void Tensors::get_all() {
  for (const auto& [name, stored] : stored_) {
    if (stored.kind != Kind::kInt) get(name);
  }
}

void Tensors::copy(const std::string& from, const std::string& to) {
  const Buffer &source = stored_.at(from).buffer, &target = stored_.at(to).buffer;
  if (!status_.ok()) return;
  CHECK(source.bytes() == target.bytes());
  keep(copy_now(on_, {.to = target.data(), .from = source.data(), .bytes = source.bytes()}));
}

}  // namespace lockstep::kernels::op_cases
