#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cli/tokenize/tokenizer.h"
#include "common/base/result.h"

namespace lockstep::cli {

// The adapter of the sentencepiece library. A build without it has no_sentencepiece.cc, whose
// functions return kUnavailable with the name of the missing package.

// A tokenizer from the bytes of a sentencepiece model, of any type. A model that keeps newlines
// sees a file as one text. For any other model each line is a sentence, as for spm_encode. Bytes
// that are not UTF-8, zero bytes and U+2581 become byte pieces if the model has them, otherwise its
// unknown piece. The library reads the model, so it must come from somebody whom the user trusts.
// kInvalid with the library's message.
Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(std::string_view model);

// Sentences of a text, of at most kSentenceBytesMax bytes of UTF-8 without zero bytes and U+2581.
class SentenceSource {
 public:
  static constexpr size_t kSentenceBytesMax = 4096;

  virtual ~SentenceSource() = default;
  // Returns false, and leaves `sentence` as it is, after the last one.
  virtual Result<bool> next(std::string& sentence) = 0;
};

enum class SentencepieceKind : uint8_t { kBpe, kUnigram };

struct SentencepieceTraining {
  SentencepieceKind kind = SentencepieceKind::kBpe;
  int64_t vocabulary = 0;  // pieces, all of them
};

// Trains a model that gives each text of UTF-8 back: nothing is normalized, and characters without
// a piece become bytes. The result depends on the sentences alone. Returns the model's bytes;
// kInvalid with the library's message, for example if the text is too small for the vocabulary.
Result<std::string> train_sentencepiece(const SentencepieceTraining& training,
                                        SentenceSource& sentences);

}  // namespace lockstep::cli
