#include "agent/train/checkpoint/manifest.h"

#include <algorithm>

#include "agent/train/checkpoint/file_io.h"
#include "common/base/json.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kFormat1 = "lockstep-checkpoint/1";
constexpr std::string_view kFormat2 = "lockstep-checkpoint/2";
// The first line of format 2, with the digest of all bytes after it.
constexpr std::string_view kDigestBefore = "{\"sha256\": \"";
constexpr std::string_view kDigestAfter = "\",\n";
constexpr size_t kHexDigits = 2 * sizeof(Digest);
constexpr size_t kDigestLine = kDigestBefore.size() + kHexDigits + kDigestAfter.size();
constexpr size_t kFilesMax = 200'000;
constexpr size_t kChunkDigits = 8;
constexpr uint64_t kCountMax = uint64_t{1} << 62;

Error bad_manifest(const std::string& what) {
  return corrupt("[manifest] " + what, Blame::kStorage);
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

Result<Digest> digest_from_hex(std::string_view text) {
  Digest digest{};
  if (text.size() != kHexDigits) return bad_manifest("sha256 does not have 64 digits");
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = hex_value(text[2 * i]);
    const int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) return bad_manifest("sha256 has a digit that is not 0-9, a-f");
    digest[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return digest;
}

std::string hex_of(const std::vector<uint32_t>& chunks) {
  std::string text(chunks.size() * kChunkDigits, '0');
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (size_t digit = 0; digit < kChunkDigits; ++digit) {
      text[i * kChunkDigits + digit] =
          "0123456789abcdef"[chunks[i] >> (4 * (kChunkDigits - 1 - digit)) & 0xF];
    }
  }
  return text;
}

Result<std::vector<uint32_t>> chunks_from_hex(std::string_view text, uint64_t bytes) {
  const uint64_t chunks = bytes / kChunkBytes + (bytes % kChunkBytes != 0 ? 1 : 0);
  if (text.size() % kChunkDigits != 0 || text.size() / kChunkDigits != chunks) {
    return bad_manifest("crc32c does not have 8 digits for each chunk");
  }
  std::vector<uint32_t> found(text.size() / kChunkDigits);
  for (size_t i = 0; i < text.size(); ++i) {
    const int value = hex_value(text[i]);
    if (value < 0) return bad_manifest("crc32c has a digit that is not 0-9, a-f");
    found[i / kChunkDigits] = found[i / kChunkDigits] << 4 | static_cast<uint32_t>(value);
  }
  return found;
}

Result<uint64_t> unsigned_member(const Json& object, std::string_view key) {
  const Json* value = find_member(object, key);
  if (value == nullptr || !value->is_number_unsigned()) {
    return bad_manifest(std::string(key) + " is not an unsigned number");
  }
  return value->get<uint64_t>();
}

Result<int64_t> count_member(const Json& object, std::string_view key) {
  TRY_ASSIGN(const uint64_t value, unsigned_member(object, key));
  if (value > kCountMax) return bad_manifest(std::string(key) + " is out of range");
  return static_cast<int64_t>(value);
}

Result<ManifestFile> read_file_entry(const Json& entry, bool is_format_2) {
  ManifestFile file{.name = string_or(entry, "name", "")};
  if (!is_plain_name(file.name)) return bad_manifest("a file name is not a plain name");
  TRY_ASSIGN(file.bytes, unsigned_member(entry, "bytes"));
  if (is_format_2) {
    TRY_ASSIGN(file.chunks, chunks_from_hex(string_or(entry, "crc32c", ""), file.bytes));
  } else {
    TRY_ASSIGN(file.sha256, digest_from_hex(string_or(entry, "sha256", "")));
  }
  return file;
}

Status read_settings(const Json& document, std::map<std::string, std::string>& settings) {
  const Json* stored = find_member(document, "settings");
  if (stored == nullptr) return {};
  if (!stored->is_object()) return bad_manifest("settings is not an object");
  for (const auto& [path, value] : stored->items()) {
    if (!value.is_string()) return bad_manifest("a setting is not text");
    settings.emplace(path, value.get<std::string>());
  }
  return {};
}

Result<Mesh> read_mesh(const Json& document) {
  const Json* layout = find_member(document, "layout");
  if (layout == nullptr) return bad_manifest("layout is missing");
  Mesh mesh;
  TRY_ASSIGN(mesh.pipeline, count_member(*layout, "pipeline"));
  TRY_ASSIGN(mesh.data, count_member(*layout, "data"));
  TRY_ASSIGN(mesh.tensor, count_member(*layout, "tensor"));
  return mesh;
}

Result<double> number_member(const Json& object, std::string_view key) {
  const Json* value = find_member(object, key);
  if (value == nullptr || !value->is_number()) {
    return bad_manifest(std::string(key) + " is not a number");
  }
  return value->get<double>();
}

// Absent where nothing looks at losses. The skipped steps are the first and the last step of each
// range, one after another.
Status read_losses(const Json& document, LossRecord& losses) {
  const Json* stored = find_member(document, "losses");
  if (stored == nullptr) return {};
  TRY_ASSIGN(losses.mean, number_member(*stored, "mean"));
  TRY_ASSIGN(losses.variance, number_member(*stored, "variance"));
  TRY_ASSIGN(losses.losses, count_member(*stored, "count"));
  const Json* steps = find_member(*stored, "skippedSteps");
  const bool is_list = steps != nullptr && steps->is_array() && steps->size() % 2 == 0 &&
                       steps->size() / 2 <= losses.skipped.size() &&
                       std::ranges::all_of(*steps, [](const Json& step) {
                         return step.is_number_unsigned() && step.get<uint64_t>() <= kCountMax;
                       });
  if (!is_list) return bad_manifest("skippedSteps is not a list of pairs");
  for (size_t i = 0; i < steps->size(); i += 2) {
    losses.skipped[static_cast<size_t>(losses.skips++)] = {(*steps)[i].get<int64_t>(),
                                                           (*steps)[i + 1].get<int64_t>()};
  }
  return {};
}

Json json_of(const LossRecord& losses) {
  Json steps = Json::array();
  for (int64_t i = 0; i < losses.skips; ++i) {
    const SkippedSteps& skipped = losses.skipped[static_cast<size_t>(i)];
    steps.push_back(static_cast<uint64_t>(skipped.first));
    steps.push_back(static_cast<uint64_t>(skipped.last));
  }
  return {{"mean", losses.mean},
          {"variance", losses.variance},
          {"count", static_cast<uint64_t>(losses.losses)},
          {"skippedSteps", std::move(steps)}};
}

Json json_of(const std::vector<ManifestFile>& files) {
  Json list = Json::array();
  for (const ManifestFile& file : files) {
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", hex_of(file.chunks)}});
  }
  return list;
}

Status read_files(const Json* list, bool is_format_2, std::vector<ManifestFile>& files) {
  if (list == nullptr || !list->is_array() || list->size() > kFilesMax) {
    return bad_manifest("files is not a list");
  }
  for (const Json& entry : *list) {
    TRY_ASSIGN(ManifestFile file, read_file_entry(entry, is_format_2));
    files.push_back(std::move(file));
  }
  return {};
}

// The text after the first line of format 2 has the digest that the line gives.
Status check_digest(std::string_view text) {
  if (text.size() <= kDigestLine ||
      text.substr(kDigestLine - kDigestAfter.size(), kDigestAfter.size()) != kDigestAfter) {
    return bad_manifest("its first line is not a sha256");
  }
  TRY_ASSIGN(const Digest digest, digest_from_hex(text.substr(kDigestBefore.size(), kHexDigits)));
  if (sha256(text.substr(kDigestLine)) == digest) return {};
  return bad_manifest("it does not match its own sha256");
}

}  // namespace

std::string format_manifest(const Manifest& manifest) {
  const TrainingPosition& position = manifest.position;
  Json document = {{"format", kFormat2},
                   {"step", static_cast<uint64_t>(position.step)},
                   {"samples", static_cast<uint64_t>(position.samples)},
                   {"weightsSeed", position.weights_seed},
                   {"dataSeed", position.data_seed},
                   {"loss", manifest.loss},
                   {"round", static_cast<uint64_t>(manifest.round)},
                   {"layout",
                    {{"pipeline", static_cast<uint64_t>(manifest.mesh.pipeline)},
                     {"data", static_cast<uint64_t>(manifest.mesh.data)},
                     {"tensor", static_cast<uint64_t>(manifest.mesh.tensor)}}},
                   {"chunkBytes", kChunkBytes},
                   {"files", json_of(manifest.files)}};
  if (!manifest.settings.empty()) document["settings"] = manifest.settings;
  if (position.losses != LossRecord{}) document["losses"] = json_of(position.losses);
  const std::string rest = document.dump(2).substr(2) + "\n";  // without "{\n"
  return std::string(kDigestBefore) + hex(sha256(rest)) + std::string(kDigestAfter) + rest;
}

Result<Manifest> parse_manifest(std::string_view text) {
  const bool is_format_2 = text.starts_with(kDigestBefore);
  if (is_format_2) TRY(check_digest(text));
  const Result<Json> document = parse_json(
      text, {.bytes_max = kManifestBytesMax, .depth_max = 4, .values_max = 4 * kFilesMax});
  if (!document.ok()) return bad_manifest(document.error().message);
  if (!document->is_object()) return bad_manifest("it is not an object");
  const std::string_view format = is_format_2 ? kFormat2 : kFormat1;
  if (string_or(*document, "format", "") != format) {
    return bad_manifest("format is not " + std::string(format));
  }
  Manifest manifest;
  TRY_ASSIGN(manifest.position.step, count_member(*document, "step"));
  TRY_ASSIGN(manifest.position.samples, count_member(*document, "samples"));
  TRY_ASSIGN(manifest.position.weights_seed, unsigned_member(*document, "weightsSeed"));
  TRY_ASSIGN(manifest.position.data_seed, unsigned_member(*document, "dataSeed"));
  TRY_ASSIGN(manifest.loss, number_member(*document, "loss"));
  TRY_ASSIGN(manifest.round, count_member(*document, "round"));
  TRY(read_settings(*document, manifest.settings));
  TRY(read_losses(*document, manifest.position.losses));
  if (is_format_2) {
    TRY_ASSIGN(manifest.mesh, read_mesh(*document));
    TRY_ASSIGN(const uint64_t chunk, unsigned_member(*document, "chunkBytes"));
    if (chunk != kChunkBytes) return bad_manifest("chunkBytes is not 4194304");
  }
  TRY(read_files(find_member(*document, "files"), is_format_2, manifest.files));
  if (manifest.files.empty()) return bad_manifest("files is empty");
  return manifest;
}

std::string format_files(const std::vector<ManifestFile>& files) {
  return dump_json(json_of(files));
}

Result<std::vector<ManifestFile>> parse_files(std::string_view text) {
  const Result<Json> list = parse_json(
      text, {.bytes_max = kManifestBytesMax, .depth_max = 2, .values_max = 4 * kFilesMax});
  if (!list.ok()) return bad_manifest(list.error().message);
  std::vector<ManifestFile> files;
  TRY(read_files(&*list, /*is_format_2=*/true, files));
  return files;
}

}  // namespace lockstep::train
