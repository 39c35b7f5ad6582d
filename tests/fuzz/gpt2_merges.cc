// A merges.txt for a small vocabulary, and the text that it encodes: the same bytes.
#include <string>

#include "cli/tokenize/gpt2_tokenizer.h"
#include "cli/tokenize/gpt2_words.h"
#include "common/base/check.h"
#include "tests/cli/tokenize/small_gpt2.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

// All tokens of up to 3 letters a, b and c, and all of two spaces or newlines.
std::string make_vocabulary() {
  std::vector<std::pair<std::string, std::string>> merges;
  const std::string letters = "abc";
  for (const char first : letters) {
    for (const char second : letters) {
      merges.push_back({std::string(1, first), std::string(1, second)});
      for (const char third : letters) {
        merges.push_back({std::string(1, first) + second, std::string(1, third)});
      }
    }
  }
  for (const char* pair : {"  ", " \n", "\n ", "\n\n"}) {
    merges.push_back({std::string(1, pair[0]), std::string(1, pair[1])});
  }
  return cli::small_gpt2(merges).vocabulary.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kVocabulary = make_vocabulary();
  const std::string_view text = fuzz::fuzz_text(data, size);
  const auto tokenizer = cli::make_gpt2_tokenizer({kVocabulary, text});
  if (!tokenizer.ok()) {
    CHECK(tokenizer.error().code == Code::kInvalid);
    CHECK(tokenizer.error().message.starts_with("merges.txt: line "));
    return 0;
  }
  std::vector<uint32_t> ids;
  CHECK((*tokenizer)->encoder()->encode({text}, ids).ok());
  std::string back;
  for (const uint32_t id : ids) back += (*tokenizer)->pieces().piece(id);
  CHECK(back == text);
  CHECK(cli::gpt2_cut(text) <= text.size());
  return 0;
}
