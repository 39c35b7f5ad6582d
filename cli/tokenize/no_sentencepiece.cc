// A build without the sentencepiece library.
#include "cli/tokenize/sentencepiece_model.h"

namespace lockstep::cli {
namespace {

Error no_library() {
  return unavailable(
      "this build has no sentencepiece: install the package libsentencepiece-dev and build again");
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(std::string_view) {
  return no_library();
}

Result<std::string> train_sentencepiece(const SentencepieceTraining&, SentenceSource&) {
  return no_library();
}

}  // namespace lockstep::cli
