#include "agent/train/checkpoint/manifest.h"

#include "common/base/json.h"

namespace lockstep::train {
namespace {

constexpr char kFormat[] = "lockstep-checkpoint/1";
constexpr size_t kFilesMax = 1000;

Error bad_manifest(const std::string& what) {
  return corrupt("[manifest] " + what, Blame::kStorage);
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

Result<Digest> digest_from_hex(std::string_view text) {
  Digest digest{};
  if (text.size() != 2 * digest.size()) return bad_manifest("sha256 does not have 64 digits");
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = hex_value(text[2 * i]);
    const int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) return bad_manifest("sha256 has a digit that is not 0-9, a-f");
    digest[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return digest;
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
  if (value > uint64_t{1} << 62) return bad_manifest(std::string(key) + " is out of range");
  return static_cast<int64_t>(value);
}

Result<ManifestFile> read_file_entry(const Json& entry) {
  ManifestFile file{.name = string_or(entry, "name", ""), .digest = {}};
  if (!is_plain_name(file.name)) return bad_manifest("a file name is not a plain name");
  TRY_ASSIGN(file.digest.bytes, unsigned_member(entry, "bytes"));
  TRY_ASSIGN(file.digest.sha256, digest_from_hex(string_or(entry, "sha256", "")));
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

}  // namespace

std::string format_manifest(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back(
        {{"name", file.name}, {"bytes", file.digest.bytes}, {"sha256", hex(file.digest.sha256)}});
  }
  const TrainingPosition& position = manifest.position;
  Json document = {{"format", kFormat},
                   {"step", static_cast<uint64_t>(position.step)},
                   {"samples", static_cast<uint64_t>(position.samples)},
                   {"weightsSeed", position.weights_seed},
                   {"dataSeed", position.data_seed},
                   {"loss", manifest.loss},
                   {"round", static_cast<uint64_t>(manifest.round)},
                   {"files", files}};
  if (!manifest.settings.empty()) document["settings"] = manifest.settings;
  return document.dump(2) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text) {
  const Result<Json> document =
      parse_json(text, {.bytes_max = kManifestBytesMax, .depth_max = 4, .values_max = 10'000});
  if (!document.ok()) return bad_manifest(document.error().message);
  if (!document->is_object()) return bad_manifest("it is not an object");
  if (string_or(*document, "format", "") != kFormat) {
    return bad_manifest("format is not " + std::string(kFormat));
  }
  Manifest manifest;
  TRY_ASSIGN(manifest.position.step, count_member(*document, "step"));
  TRY_ASSIGN(manifest.position.samples, count_member(*document, "samples"));
  TRY_ASSIGN(manifest.position.weights_seed, unsigned_member(*document, "weightsSeed"));
  TRY_ASSIGN(manifest.position.data_seed, unsigned_member(*document, "dataSeed"));
  const Json* loss = find_member(*document, "loss");
  if (loss == nullptr || !loss->is_number()) return bad_manifest("loss is not a number");
  manifest.loss = loss->get<double>();
  TRY_ASSIGN(manifest.round, count_member(*document, "round"));
  TRY(read_settings(*document, manifest.settings));
  const Json* files = find_member(*document, "files");
  if (files == nullptr || !files->is_array() || files->empty() || files->size() > kFilesMax) {
    return bad_manifest("files is not a list");
  }
  for (const Json& entry : *files) {
    TRY_ASSIGN(ManifestFile file, read_file_entry(entry));
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace lockstep::train
