#include "agent/train/weights/weight_file_writer.h"

#include <fcntl.h>

#include <algorithm>

#include "agent/train/checkpoint/safetensors.h"
#include "agent/train/weights/weight_split.h"
#include "common/base/check.h"
#include "kernels/ops/op_table.h"

namespace lockstep::train {
namespace {

constexpr size_t kRoundedValuesMax = size_t{1} << 18;  // at a time

}  // namespace

Result<WeightFileWriter> WeightFileWriter::create(const std::string& path,
                                                  std::span<const WeightTensor> tensors,
                                                  kernels::DType dtype) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};  // what readers of PyTorch weights look for
  uint64_t at = 0;
  for (const WeightTensor& tensor : tensors) {
    const uint64_t end = at + data_bytes(tensor, dtype);
    const char* name = dtype == kernels::DType::kBf16 ? "BF16" : "F32";
    header.tensors.push_back({tensor.name, name, tensor.shape, at, end});
    at = end;
  }
  TRY_ASSIGN(File file, File::open(path, O_WRONLY | O_CREAT | O_EXCL));
  const std::string head = format_safetensors_header(header);
  TRY(file.write(head.data(), head.size()));
  return WeightFileWriter(std::move(file), dtype, at);
}

Status WeightFileWriter::put(std::span<const float> values) {
  const uint64_t bytes = values.size() * kernels::dtype_bytes(dtype_);
  CHECK(bytes <= missing_);
  missing_ -= bytes;
  if (dtype_ == kernels::DType::kF32) return file_.write(values.data(), values.size_bytes());
  while (!values.empty()) {
    const std::span<const float> now = values.first(std::min(values.size(), kRoundedValuesMax));
    rounded_.resize(now.size());
    kernels::cpu_ops().cast(cpu_,
                            {.x = now.data(), .out = rounded_.data(), .count = std::ssize(now)});
    TRY(file_.write(rounded_.data(), rounded_.size() * sizeof(kernels::Bf16)));
    values = values.subspan(now.size());
  }
  return {};
}

Status WeightFileWriter::finish() {
  CHECK(missing_ == 0);
  return file_.sync();
}

}  // namespace lockstep::train
