#include "cli/tokenize/sentencepiece_model.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/utf8.h"

namespace lockstep::cli {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

// sentencepiece writes spaces as U+2581.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
// A ModelProto with normalizer_spec.add_dummy_prefix: false. Appended to a model, it changes that
// field alone. Source: sentencepiece_model.proto, and protobuf's rules for repeated occurrences.
constexpr std::string_view kWithoutPrefix("\x1a\x02\x18\x00", 4);
// The order in which threads add up numbers decides the last bits of a unigram model, so their
// number does not depend on the machine.
constexpr char kTrainingThreads[] = "16";

Error library_error(const sentencepiece::util::Status& status) {
  return invalid("sentencepiece: " + utf8_elided(clean_utf8(status.ToString()), 1000));
}

std::string with_spaces(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    const bool is_space = piece.starts_with(kSpaceMark);
    text += is_space ? ' ' : piece.front();
    piece.remove_prefix(is_space ? kSpaceMark.size() : 1);
  }
  return text;
}

// Returns the byte of a piece such as <0x0A>.
std::optional<uint8_t> byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [stop, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  if (error != std::errc() || stop != piece.data() + 5) return std::nullopt;
  return byte;
}

Result<std::string> bytes_of(const Processor& model, int id) {
  const std::string& piece = model.IdToPiece(id);
  if (model.IsControl(id)) return std::string();
  if (model.IsUnknown(id)) {
    std::string text;
    const auto status = model.Decode(std::vector<int>{id}, &text);
    if (!status.ok()) return library_error(status);
    return text;
  }
  if (model.IsByte(id)) {
    const std::optional<uint8_t> byte = byte_of(piece);
    if (!byte) return invalid("sentencepiece: piece " + std::to_string(id) + " is no byte");
    return std::string(1, static_cast<char>(*byte));
  }
  return with_spaces(piece);
}

Result<PieceTable> table_of(const Processor& model) {
  std::vector<std::string> pieces;
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    TRY_ASSIGN(std::string bytes, bytes_of(model, id));
    pieces.push_back(std::move(bytes));
  }
  return PieceTable::create(pieces);
}

// Returns the length of the part of the text, which is not empty, that the library reads as it is;
// 0 if it begins with a byte that it does not.
size_t plain_bytes(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && !text.substr(bytes).starts_with(kSpaceMark)) {
    const size_t next = utf8_character_bytes(text.substr(bytes));
    if (next == 0) break;
    bytes += next;
  }
  return bytes;
}

class SentencepieceTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> create(std::string_view model);

  const PieceTable& pieces() const override { return *table_; }
  int64_t id_of(const std::string& piece) const override {
    const int id = model_.PieceToId(piece);
    return model_.IsUnknown(id) && model_.IdToPiece(id) != piece ? -1 : id;
  }
  size_t cut(std::string_view text) const override;
  std::unique_ptr<ChunkEncoder> encoder() const override;

  Status encode(const TextChunk& chunk, std::vector<uint32_t>& ids) const;

 private:
  struct Line {
    std::string_view text;
    bool continues = false;  // the text before it, which the model keeps
  };
  Status encode_line(Line line, std::vector<uint32_t>& ids) const;

  Processor model_;
  Processor continuing_;  // the same without a space before the text
  std::optional<PieceTable> table_;
  bool keeps_newlines_ = false;
  std::array<int, 256> byte_ids_{};  // -1: none
};

class SentencepieceEncoder final : public ChunkEncoder {
 public:
  explicit SentencepieceEncoder(const SentencepieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  Status encode(const TextChunk& chunk, std::vector<uint32_t>& ids) override {
    return tokenizer_.encode(chunk, ids);
  }

 private:
  const SentencepieceTokenizer& tokenizer_;
};

Result<std::unique_ptr<Tokenizer>> SentencepieceTokenizer::create(std::string_view model) {
  auto tokenizer = std::make_unique<SentencepieceTokenizer>();
  SentencepieceTokenizer& made = *tokenizer;
  if (const auto status = made.model_.LoadFromSerializedProto(model); !status.ok()) {
    return library_error(status);
  }
  const std::string without_prefix = std::string(model) + std::string(kWithoutPrefix);
  if (const auto status = made.continuing_.LoadFromSerializedProto(without_prefix); !status.ok()) {
    return library_error(status);
  }
  TRY_ASSIGN(made.table_, table_of(made.model_));
  made.byte_ids_.fill(-1);
  for (int id = 0; id < made.model_.GetPieceSize(); ++id) {
    if (made.model_.IsByte(id)) made.byte_ids_[byte_of(made.model_.IdToPiece(id)).value()] = id;
  }
  std::vector<uint32_t> ids;
  TRY(made.encode_line({.text = "a\nb"}, ids));
  std::string text;
  for (const uint32_t id : ids) text += made.table_->piece(id);
  made.keeps_newlines_ = text.find('\n') != std::string::npos;
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

// A newline that another one follows may be in one piece with it.
size_t SentencepieceTokenizer::cut(std::string_view text) const {
  for (size_t at = text.size(); at-- > 1;) {
    if (text[at - 1] == '\n' && text[at] != '\n') return at;
  }
  for (size_t at = text.size(); at-- > 1;) {
    if (text[at] == ' ' && text[at - 1] != ' ') return at;
  }
  return 0;
}

std::unique_ptr<ChunkEncoder> SentencepieceTokenizer::encoder() const {
  return std::make_unique<SentencepieceEncoder>(*this);
}

Status SentencepieceTokenizer::encode(const TextChunk& chunk, std::vector<uint32_t>& ids) const {
  std::string_view rest = chunk.text;
  for (bool is_first = chunk.is_first; !rest.empty(); is_first = false) {
    const size_t newline = rest.find('\n');
    const size_t end = std::min(rest.find_first_not_of('\n', newline), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    if (!keeps_newlines_) line = line.substr(0, newline);
    TRY(encode_line({line, keeps_newlines_ && !is_first}, ids));
  }
  return {};
}

Status SentencepieceTokenizer::encode_line(Line line, std::vector<uint32_t>& ids) const {
  std::vector<int> found;
  while (!line.text.empty()) {
    const size_t plain = plain_bytes(line.text);
    if (plain == 0) {
      const int byte = byte_ids_[static_cast<uint8_t>(line.text.front())];
      ids.push_back(static_cast<uint32_t>(byte >= 0 ? byte : model_.unk_id()));
      line.text.remove_prefix(1);
    } else {
      const Processor& model = line.continues ? continuing_ : model_;
      const auto status = model.Encode(line.text.substr(0, plain), &found);
      if (!status.ok()) return library_error(status);
      for (const int id : found) ids.push_back(static_cast<uint32_t>(id));
      line.text.remove_prefix(plain);
    }
    line.continues = true;
  }
  return {};
}

// Hands sentences to the library, which wants each before it asks for it.
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(SentenceSource& source) : source_(source) { Next(); }

  bool done() const override { return is_done_; }
  void Next() override {
    const Result<bool> more = source_.next(sentence_);
    if (!more.ok()) failure_ = more.error();
    is_done_ = !more.ok() || !*more;
    count_ += is_done_ ? 0 : 1;
  }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

  Status failure() const { return failure_; }
  int64_t count() const { return count_; }

 private:
  SentenceSource& source_;
  std::string sentence_;
  bool is_done_ = false;
  int64_t count_ = 0;
  Status failure_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(std::string_view model) {
  return SentencepieceTokenizer::create(model);
}

Result<std::string> train_sentencepiece(const SentencepieceTraining& training,
                                        SentenceSource& sentences) {
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", training.kind == SentencepieceKind::kBpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(training.vocabulary)},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"byte_fallback", "true"},
      {"max_sentence_length", std::to_string(SentenceSource::kSentenceBytesMax)},
      {"num_threads", kTrainingThreads},
      {"minloglevel", "3"}};
  Sentences iterator(sentences);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  TRY(iterator.failure());
  if (iterator.count() == 0) return invalid("the text is empty");
  if (!status.ok()) return library_error(status);
  return model;
}

}  // namespace lockstep::cli
