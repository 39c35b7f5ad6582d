#include "agent/train/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "common/base/random.h"

namespace lockstep::train {
namespace {

Manifest some_manifest() {
  LossRecord losses{.mean = 1.0 / 3, .variance = 1e-17, .losses = 499, .skips = 2};
  losses.skipped[0] = {7, 7};
  losses.skipped[1] = {401, 420};
  return {.position = {.step = 500,
                       .samples = 16000,
                       .weights_seed = UINT64_MAX,
                       .data_seed = 4,
                       .losses = losses},
          .settings = {{"optimizer.name", "adamw"}},
          .loss = 1.75,
          .round = 3,
          .mesh = {.pipeline = 2, .data = 3, .tensor = 4},
          .files = {{.name = "model.safetensors", .bytes = 12, .chunks = {0x89ABCDEF}},
                    {.name = "b", .bytes = 2 * kChunkBytes, .chunks = {1, 0xFFFFFFFF}},
                    {.name = "c", .bytes = 2 * kChunkBytes + 1, .chunks = {1, 2, 3}}}};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// With the digest of the text that there is now.
std::string sealed(const std::string& manifest) {
  const std::string rest = manifest.substr(manifest.find('\n') + 1);
  return "{\"sha256\": \"" + hex(sha256(rest)) + "\",\n" + rest;
}

void expect_corrupt(const std::string& text, const std::string& why) {
  const auto parsed = parse_manifest(text);
  ASSERT_FALSE(parsed.ok()) << why;
  EXPECT_EQ(parsed.error().code, Code::kCorrupt) << why;
  EXPECT_EQ(parsed.error().blame, Blame::kStorage) << why;
}

TEST(Manifest, SurvivesARoundTrip) {
  for (Manifest manifest : {some_manifest(), Manifest{.files = {{.name = "empty"}}}}) {
    const auto back = parse_manifest(format_manifest(manifest));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, manifest);
  }
}

TEST(Manifest, RefusesWhatFormatTwoIsNot) {
  const std::string text = format_manifest(some_manifest());
  ASSERT_EQ(sealed(text), text);
  const std::pair<std::string, std::string> cases[] = {
      {"checkpoint/2", "checkpoint/1"},
      {"checkpoint/2", "checkpoint/3"},
      {"\"step\": 500", "\"step\": -500"},
      {"\"step\": 500", "\"step\": 1e3"},
      {"\"samples\": 16000", "\"samples\": 18446744073709551615"},
      {"model.safetensors", "../model.safetensors"},
      {"model.safetensors", ".hidden"},
      {"model.safetensors", ""},
      {"\"bytes\": 12", "\"bytes\": \"12\""},
      {"\"bytes\": 12", "\"bytes\": 0"},
      {"\"bytes\": 12", "\"bytes\": 4194305"},
      {"\"bytes\": 12", "\"bytes\": 18446744073709551615"},
      {"89abcdef", "89ABCDEF"},
      {"89abcdef", "89abcde"},
      {"89abcdef", "89abcdef00000000"},
      {"\"crc32c\"", "\"sha256\""},
      {"\"chunkBytes\": 4194304", "\"chunkBytes\": 1048576"},
      {"\"layout\"", "\"other\""},
      {"\"tensor\": 4", "\"tensor\": -4"},
      {"\"adamw\"", "7"},
      {"\"loss\": 1.75", "\"loss\": \"1.75\""},
      {"\"mean\"", "\"other\""},
      {"\"count\": 499", "\"count\": -1"},
      {"\"skippedSteps\"", "\"other\""},
      {"401,", "401, 401,"},
      {"401,", "\"401\","},
      {"\"files\"", "\"other\""},
  };
  for (const auto& [from, to] : cases) expect_corrupt(sealed(replaced(text, from, to)), to);
  Manifest none = some_manifest();
  none.files.clear();
  expect_corrupt(format_manifest(none), "no files");
}

TEST(Manifest, OfFormatTwoIsTextThatMatchesItsDigest) {
  const std::string text = format_manifest(some_manifest());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    expect_corrupt(flipped, "bit of byte " + std::to_string(at));
    expect_corrupt(text.substr(0, at), "only " + std::to_string(at) + " bytes");
  }
  expect_corrupt(text + " ", "more at the end");
}

TEST(Manifest, OfFormatOneIsRead) {
  const std::string text = R"({"format": "lockstep-checkpoint/1", "step": 5, "samples": 40,
    "weightsSeed": 1, "dataSeed": 2, "loss": 1.5, "round": 3,
    "files": [{"name": "model.safetensors", "bytes": 12, "sha256": ")" +
                           hex(sha256("x")) + "\"}]}";
  const auto manifest = parse_manifest(text);
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_EQ(*manifest,
            (Manifest{.position = {.step = 5, .samples = 40, .weights_seed = 1, .data_seed = 2},
                      .loss = 1.5,
                      .round = 3,
                      .files = {{"model.safetensors", 12, {}, sha256("x")}}}));
  expect_corrupt(replaced(text, "checkpoint/1", "checkpoint/2"), "format 2 without a digest");
  expect_corrupt(replaced(text, hex(sha256("x")), "00"), "a short digest");
  expect_corrupt(replaced(text, hex(sha256("x")), std::string(64, 'G')), "no hex digits");
  expect_corrupt(replaced(text, "\"sha256\"", "\"crc32c\""), "no digest");
}

TEST(ManifestFiles, SurviveARoundTripAndAnyMutation) {
  const std::vector<ManifestFile> files = some_manifest().files;
  const std::string text = format_files(files);
  const auto back = parse_files(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, files);
  EXPECT_TRUE(parse_files("[]").value().empty());
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string broken = text;
    broken[random.below(broken.size())] = static_cast<char>(random.below(256));
    const auto parsed = parse_files(broken);
    ASSERT_TRUE(parsed.ok() || parsed.error().code == Code::kCorrupt) << broken;
  }
}

}  // namespace
}  // namespace lockstep::train
