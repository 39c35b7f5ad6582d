#include "cli/tokenize/gpt2_tokenizer.h"

#include <cstddef>
#include <functional>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cli/tokenize/gpt2_vocabulary.h"
#include "cli/tokenize/gpt2_words.h"
#include "common/base/utf8.h"

namespace lockstep::cli {
namespace {

constexpr size_t kCachedWordsMax = 1 << 16;
constexpr size_t kCachedWordBytesMax = 64;

struct RankedMerge {
  uint32_t rank = 0;
  uint32_t merged = 0;
};

uint64_t pair_of(uint32_t left, uint32_t right) {
  return static_cast<uint64_t>(left) << 32 | right;
}

struct WordHash {
  using is_transparent = void;
  size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
};

// A token of a word, in a list of those that are left. Indices are -1 past an end.
struct Symbol {
  uint32_t id = 0;
  int64_t before = -1;
  int64_t after = -1;
};

// A pair of adjacent symbols that can be merged, unless one of them has changed since.
struct Candidate {
  uint32_t rank = 0;
  int64_t left = 0;
  uint64_t pair = 0;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

class Gpt2Tokenizer final : public Tokenizer {
 public:
  Gpt2Tokenizer(Gpt2Pieces pieces, PieceTable table, std::span<const Gpt2Merge> merges)
      : pieces_(std::move(pieces)), table_(std::move(table)) {
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const Gpt2Merge& merge = merges[rank];
      merges_[pair_of(static_cast<uint32_t>(merge.left), static_cast<uint32_t>(merge.right))] = {
          static_cast<uint32_t>(rank), static_cast<uint32_t>(merge.merged)};
    }
  }

  const PieceTable& pieces() const override { return table_; }
  int64_t id_of(const std::string& piece) const override {
    const auto found = pieces_.ids.find(piece);
    return found == pieces_.ids.end() ? -1 : found->second;
  }
  size_t cut(std::string_view text) const override { return gpt2_cut(text); }
  std::unique_ptr<ChunkEncoder> encoder() const override;

  uint32_t byte_id(char byte) const {
    return static_cast<uint32_t>(pieces_.byte_ids[static_cast<uint8_t>(byte)]);
  }
  // Returns null if the pair cannot be merged.
  const RankedMerge* merge_of(uint64_t pair) const {
    const auto found = merges_.find(pair);
    return found == merges_.end() ? nullptr : &found->second;
  }

 private:
  Gpt2Pieces pieces_;
  PieceTable table_;
  std::unordered_map<uint64_t, RankedMerge> merges_;
};

class Gpt2Encoder final : public ChunkEncoder {
 public:
  explicit Gpt2Encoder(const Gpt2Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Status encode(const TextChunk& chunk, std::vector<uint32_t>& ids) override {
    std::string_view text = chunk.text;
    while (!text.empty()) {
      const size_t bytes = gpt2_word_bytes(text);
      add_word(text.substr(0, bytes), ids);
      text.remove_prefix(bytes);
    }
    return {};
  }

 private:
  void add_word(std::string_view word, std::vector<uint32_t>& ids) {
    const auto known = cache_.find(word);
    if (known != cache_.end()) {
      ids.insert(ids.end(), known->second.begin(), known->second.end());
      return;
    }
    const size_t begin = ids.size();
    merge_word(word, ids);
    if (word.size() > kCachedWordBytesMax) return;
    if (cache_.size() >= kCachedWordsMax) cache_.clear();
    cache_.emplace(word,
                   std::vector<uint32_t>(ids.begin() + static_cast<int64_t>(begin), ids.end()));
  }

  // Merges the pair of the lowest rank, at all its places from left to right, until there is none.
  // Pairs that arise meanwhile wait until all those places are done.
  void merge_word(std::string_view word, std::vector<uint32_t>& ids) {
    symbols_.clear();
    for (const char byte : word) {
      const auto index = static_cast<int64_t>(symbols_.size());
      symbols_.push_back({tokenizer_.byte_id(byte), index - 1, index + 1});
    }
    symbols_.back().after = -1;
    for (int64_t index = 0; index < std::ssize(symbols_); ++index) offer(index);
    take_offers();
    while (!candidates_.empty()) {
      const uint32_t rank = candidates_.top().rank;
      while (!candidates_.empty() && candidates_.top().rank == rank) {
        const Candidate best = candidates_.top();
        candidates_.pop();
        merge(best);
      }
      take_offers();
    }
    for (int64_t index = 0; index >= 0; index = symbol(index).after)
      ids.push_back(symbol(index).id);
  }

  Symbol& symbol(int64_t index) { return symbols_[static_cast<size_t>(index)]; }

  void offer(int64_t left) {
    if (left < 0 || symbol(left).after < 0) return;
    const uint64_t pair = pair_of(symbol(left).id, symbol(symbol(left).after).id);
    if (const RankedMerge* merge = tokenizer_.merge_of(pair)) {
      offers_.push_back({merge->rank, left, pair});
    }
  }

  void take_offers() {
    for (const Candidate& offer : offers_) candidates_.push(offer);
    offers_.clear();
  }

  void merge(const Candidate& candidate) {
    Symbol& left = symbol(candidate.left);
    if (left.after < 0) return;  // the last one, or merged into the one before
    Symbol& right = symbol(left.after);
    if (pair_of(left.id, right.id) != candidate.pair) return;
    left.id = tokenizer_.merge_of(candidate.pair)->merged;
    left.after = right.after;
    right = {};
    if (left.after >= 0) symbol(left.after).before = candidate.left;
    offer(left.before);
    offer(candidate.left);
  }

  const Gpt2Tokenizer& tokenizer_;
  std::unordered_map<std::string, std::vector<uint32_t>, WordHash, std::equal_to<>> cache_;
  // The word that is being merged.
  std::vector<Symbol> symbols_;
  std::vector<Candidate> offers_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

std::unique_ptr<ChunkEncoder> Gpt2Tokenizer::encoder() const {
  return std::make_unique<Gpt2Encoder>(*this);
}

Error in_file(const char* name, const Error& error) {
  return error.with_message(std::string(name) + ": " + error.message);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_gpt2_tokenizer(const Gpt2Texts& texts) {
  Result<Gpt2Pieces> pieces = parse_gpt2_vocabulary(texts.vocabulary);
  if (!pieces.ok()) return in_file("vocab.json", pieces.error());
  const Result<std::vector<Gpt2Merge>> merges = parse_gpt2_merges(texts.merges, *pieces);
  if (!merges.ok()) return in_file("merges.txt", merges.error());
  std::vector<bool> is_text(pieces->bytes.size());
  for (const int32_t id : pieces->byte_ids) is_text[static_cast<size_t>(id)] = true;
  for (const Gpt2Merge& merge : *merges) is_text[static_cast<size_t>(merge.merged)] = true;
  std::vector<std::string> text = pieces->bytes;
  for (size_t id = 0; id < text.size(); ++id) {
    if (!is_text[id]) text[id].clear();
  }
  Result<PieceTable> table = PieceTable::create(text);
  if (!table.ok()) return in_file("vocab.json", table.error());
  return std::unique_ptr<Tokenizer>(
      std::make_unique<Gpt2Tokenizer>(*std::move(pieces), *std::move(table), *merges));
}

}  // namespace lockstep::cli
