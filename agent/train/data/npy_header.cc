#include "agent/train/data/npy_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "common/api/problems.h"

namespace lockstep::train {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kMagic = "\x93NUMPY"sv;
constexpr size_t kVersionBytes = 2;
constexpr size_t kDimsMax = 32;
constexpr int64_t kElementsMax = int64_t{1} << 48;
constexpr char kTypesText[] = "<f4, <f8, |b1, |u1, |i1, <i2, <i4 or <i8";

struct TypeRow {
  std::string_view name;
  uint64_t bytes;
  bool is_integer;
};
// By NpyType.
constexpr std::array<TypeRow, 8> kTypes{{{"<f4", 4, false},
                                         {"<f8", 8, false},
                                         {"|b1", 1, true},
                                         {"|u1", 1, true},
                                         {"|i1", 1, true},
                                         {"<i2", 2, true},
                                         {"<i4", 4, true},
                                         {"<i8", 8, true}}};

const TypeRow& row_of(NpyType type) {
  return kTypes[static_cast<size_t>(type)];
}

Error bad_header(const std::string& found, const std::string& expected) {
  return invalid("the header " + found + ", expected " + expected);
}

// Says why we do not read the dtype, if we know.
std::string about(std::string_view dtype) {
  if (dtype.starts_with('>')) return " (big-endian)";
  if (dtype.find('O') != std::string_view::npos) return " (Python objects)";
  return "";
}

Result<NpyType> type_of(std::string_view dtype) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == dtype) return static_cast<NpyType>(i);
  }
  return invalid("dtype " + in_quotes(dtype) + about(dtype) + ", expected " + kTypesText +
                 ": save array.astype(\"<f4\")");
}

std::string dims_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (const int64_t dim : shape) text += std::to_string(dim) + ", ";
  if (!shape.empty()) text.resize(text.size() - (shape.size() == 1 ? 1 : 2));
  return text + ")";
}

// Reads the part of Python's syntax that a header has: a dict of texts, truth values and tuples of
// integers.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  // Takes the token if the text goes on with it, after spaces.
  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool is_at_end() {
    skip_spaces();
    return rest_.empty();
  }
  // nullopt here and below: the text goes on with something else.
  std::optional<std::string_view> text() {
    skip_spaces();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::optional<bool> truth() {
    if (take("True")) return true;
    if (take("False")) return false;
    return std::nullopt;
  }
  std::optional<std::vector<int64_t>> tuple() {
    if (!take("(")) return std::nullopt;
    std::vector<int64_t> items;
    while (!take(")")) {
      int64_t item = 0;
      skip_spaces();
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), item);
      if (error != std::errc()) return std::nullopt;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      items.push_back(item);
      if (take(",")) continue;
      if (!take(")")) return std::nullopt;
      break;
    }
    return items;
  }

 private:
  void skip_spaces() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n\r"), rest_.size()));
  }

  std::string_view rest_;
};

// The values of the dict, unjudged.
struct Dict {
  std::optional<std::string_view> dtype;
  std::optional<bool> is_fortran;
  std::optional<std::vector<int64_t>> shape;
};

Result<Dict> parse_dict(std::string_view text) {
  const auto bad = [](const std::string& found) {
    return bad_header(found, "a dict of descr, fortran_order and shape as np.save writes it");
  };
  Scanner scanner(text);
  Dict dict;
  if (!scanner.take("{")) return bad("is not a dict");
  while (!scanner.take("}")) {
    const std::optional<std::string_view> key = scanner.text();
    if (!key || !scanner.take(":")) return bad("has no key where one should be");
    if (*key == "descr" && !dict.dtype) {
      if (scanner.take("[")) return invalid("a structured dtype, expected an array of numbers");
      dict.dtype = scanner.text();
      if (!dict.dtype) return bad("has a descr that is not a text");
    } else if (*key == "fortran_order" && !dict.is_fortran) {
      dict.is_fortran = scanner.truth();
      if (!dict.is_fortran) return bad("has a fortran_order that is neither True nor False");
    } else if (*key == "shape" && !dict.shape) {
      dict.shape = scanner.tuple();
      if (!dict.shape) return bad("has a shape that is not a tuple of integers");
    } else {
      return bad("has the key " + in_quotes(*key) + ", which is unknown or there twice");
    }
    if (scanner.take(",")) continue;
    if (!scanner.take("}")) return bad("has no comma where one should be");
    break;
  }
  if (!scanner.is_at_end()) return bad("goes on after its dict");
  if (!dict.dtype || !dict.is_fortran || !dict.shape) return bad("lacks a key");
  return dict;
}

Status check_shape(const std::vector<int64_t>& shape) {
  if (shape.empty()) return invalid("a single value, expected an array with rows");
  if (shape.size() > kDimsMax) {
    return invalid("a shape of " + std::to_string(shape.size()) + " dims, expected at most " +
                   std::to_string(kDimsMax));
  }
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    if (dim < 1) return invalid("shape " + dims_text(shape) + ", expected dims above 0");
    if (dim > kElementsMax / elements) {
      return invalid("shape " + dims_text(shape) + ", expected at most " +
                     std::to_string(kElementsMax) + " values");
    }
    elements *= dim;
  }
  return {};
}

struct DictPlace {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

Result<DictPlace> find_dict(std::string_view file) {
  if (!file.starts_with(kMagic)) {
    return invalid(
        "not a .npy file (its first bytes are not \\x93NUMPY), expected one that "
        "np.save wrote");
  }
  file.remove_prefix(kMagic.size());
  if (file.size() < kVersionBytes) return invalid("the file ends within its header");
  const int major = static_cast<unsigned char>(file[0]);
  const int minor = static_cast<unsigned char>(file[1]);
  if (major < 1 || major > 3 || minor != 0) {
    return invalid("format version " + std::to_string(major) + "." + std::to_string(minor) +
                   ", expected 1.0, 2.0 or 3.0");
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  file.remove_prefix(kVersionBytes);
  if (file.size() < length_bytes) return invalid("the file ends within its header");
  DictPlace place{.begin = kMagic.size() + kVersionBytes + length_bytes};
  for (size_t i = length_bytes; i-- > 0;) {
    place.bytes = place.bytes << 8 | static_cast<unsigned char>(file[i]);
  }
  if (place.bytes > kNpyHeaderMax) {
    return bad_header("has " + std::to_string(place.bytes) + " bytes",
                      "at most " + std::to_string(kNpyHeaderMax));
  }
  return place;
}

}  // namespace

std::string_view npy_type_name(NpyType type) {
  return row_of(type).name;
}

uint64_t npy_type_bytes(NpyType type) {
  return row_of(type).bytes;
}

bool is_integer(NpyType type) {
  return row_of(type).is_integer;
}

int64_t NpyHeader::columns() const {
  int64_t product = 1;
  for (size_t i = 1; i < shape.size(); ++i) product *= shape[i];
  return product;
}

Result<NpyHeader> parse_npy_header(std::string_view beginning, uint64_t file_bytes) {
  TRY_ASSIGN(const DictPlace place, find_dict(beginning));
  if (beginning.size() < place.begin + place.bytes) {
    return invalid("the file ends within its header");
  }
  TRY_ASSIGN(Dict dict, parse_dict(beginning.substr(place.begin, place.bytes)));
  TRY_ASSIGN(const NpyType type, type_of(*dict.dtype));
  TRY(check_shape(*dict.shape));
  if (*dict.is_fortran && dict.shape->size() > 1) {
    return invalid(
        "Fortran order (column by column), expected C order: save "
        "np.ascontiguousarray(array)");
  }
  NpyHeader header{
      .type = type, .shape = std::move(*dict.shape), .data_begin = place.begin + place.bytes};
  const uint64_t expected =
      static_cast<uint64_t>(header.rows() * header.columns()) * npy_type_bytes(type);
  const uint64_t found = file_bytes - header.data_begin;
  if (found != expected) {
    return invalid(std::to_string(found) + " bytes after the header, expected " +
                   std::to_string(expected) + " for shape " + dims_text(header.shape) + " of " +
                   std::string(npy_type_name(type)));
  }
  return header;
}

}  // namespace lockstep::train
