#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "agent/train/data/data_check.h"
#include "agent/train/data/npy_file.h"
#include "agent/train/data/npy_header.h"
#include "agent/train/data/table_source.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/support/npy_bytes.h"

namespace lockstep::train {
namespace {

Result<NpyHeader> parsed(const std::string& bytes) {
  return parse_npy_header(bytes, bytes.size());
}

TEST(NpyHeader, IsReadInEachVersion) {
  for (const char major : {'\1', '\2', '\3'}) {
    const std::string bytes = npy_bytes(npy_dict("<f4", "(3, 2)"), std::string(24, '\0'), major);
    const Result<NpyHeader> header = parsed(bytes);
    ASSERT_TRUE(header.ok()) << header.error().message;
    EXPECT_EQ(header->shape, (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(header->type, NpyType::kF4);
    EXPECT_EQ(header->data_begin, bytes.size() - 24);
  }
}

TEST(NpyHeader, CountsRowsAndTheValuesOfARow) {
  struct Case {
    std::string shape;
    int64_t rows;
    int64_t columns;
  };
  for (const Case& c : {Case{"(6,)", 6, 1}, Case{"(6, 1)", 6, 1}, Case{"(2, 3)", 2, 3},
                        Case{"(1, 2, 3)", 1, 6}, Case{"( 3 , 2 , )", 3, 2}}) {
    const Result<NpyHeader> header = parsed(npy_bytes(npy_dict("|u1", c.shape), "abcdef"));
    ASSERT_TRUE(header.ok()) << c.shape << ": " << header.error().message;
    EXPECT_EQ(header->rows(), c.rows) << c.shape;
    EXPECT_EQ(header->columns(), c.columns) << c.shape;
  }
}

TEST(NpyHeader, MayHaveItsKeysInAnyOrderAndEitherQuotes) {
  const std::string dict = "{\"shape\": (2,),'fortran_order' :False, \"descr\" : \"<i2\"}";
  const Result<NpyHeader> header = parsed(npy_bytes(dict, "abcd"));
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(header->type, NpyType::kI2);
}

TEST(NpyHeader, OfAVectorMayCallItsOrderFortran) {
  const std::string dict = "{'descr': '|u1', 'fortran_order': True, 'shape': (2,), }";
  EXPECT_TRUE(parsed(npy_bytes(dict, "ab")).ok());
}

TEST(NpyHeader, RefusesWhatWeDoNotReadWithWords) {
  const auto dict = [](const std::string& order, const std::string& rest = "}") {
    return npy_bytes("{'descr': '|u1', 'fortran_order': " + order + ", 'shape': (2, 1)" + rest,
                     "ab");
  };
  const auto dtype = [](const char* name) {
    return npy_bytes(npy_dict(name, "(1,)"), std::string(8, '\0'));
  };
  const auto shape = [](const std::string& text, const std::string& data = "abcdef") {
    return npy_bytes(npy_dict("|u1", text), data);
  };
  const std::string whole = npy_array<float>("<f4", "(2,)", {1, 2});
  std::string version_4 = whole;
  version_4[6] = 4;
  std::string version_1_1 = whole;
  version_1_1[7] = 1;
  std::string huge = npy_bytes(npy_dict("|u1", "(1,)"), "a", 2);
  huge[11] = '\x7f';
  std::string dims = "(";
  for (int i = 0; i < 33; ++i) dims += "1, ";
  struct Case {
    std::string bytes;
    std::string message;  // its beginning
  };
  const Case cases[] = {
      {"", "not a .npy file (its first bytes are not \\x93NUMPY), expected one that np.save wrote"},
      {"PK\3\4 an archive", "not a .npy file"},
      {whole.substr(0, 7), "the file ends within its header"},
      {whole.substr(0, 9), "the file ends within its header"},
      {whole.substr(0, 60), "the file ends within its header"},
      {version_4, "format version 4.0, expected 1.0, 2.0 or 3.0"},
      {version_1_1, "format version 1.1, expected 1.0, 2.0 or 3.0"},
      {huge, "the header has 2130706"},
      {dtype(">f8"),
       "dtype \">f8\" (big-endian), expected <f4, <f8, |b1, |u1, |i1, <i2, <i4 or "
       "<i8: save array.astype(\"<f4\")"},
      {dtype("|O"), "dtype \"|O\" (Python objects), expected <f4"},
      {dtype("<c8"), "dtype \"<c8\", expected <f4"},
      {npy_bytes("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd"),
       "a structured dtype, expected an array of numbers"},
      {dict("True"),
       "Fortran order (column by column), expected C order: save "
       "np.ascontiguousarray(array)"},
      {dict("1"), "the header has a fortran_order that is neither True nor False"},
      {dict("False", ", 'more': 1}"), "the header has the key \"more\", which is unknown"},
      {dict("False", ", 'shape': (1,)}"), "the header has the key \"shape\", which is unknown or "},
      {dict("False", " 'x'"), "the header has no comma where one should be"},
      {dict("False", "} 1"), "the header goes on after its dict"},
      {dict("False", ", 7: 8}"), "the header has no key where one should be"},
      {npy_bytes("[1]", ""), "the header is not a dict"},
      {npy_bytes("{'shape': (1,)}", ""), "the header lacks a key"},
      {npy_bytes("{'descr': 4}", ""), "the header has a descr that is not a text"},
      {npy_bytes("{'descr': '|u1", ""), "the header has a descr that is not a text"},
      {shape("()"), "a single value, expected an array with rows"},
      {shape("(6.5,)"), "the header has a shape that is not a tuple of integers"},
      {shape("[6]"), "the header has a shape that is not a tuple of integers"},
      {shape("(99999999999999999999,)"), "the header has a shape that is not a tuple of integers"},
      {shape("(0, 3)"), "shape (0, 3), expected dims above 0"},
      {shape("(-6,)"), "shape (-6,), expected dims above 0"},
      {shape("(4294967296, 4294967296)"), "shape (4294967296, 4294967296), expected at most"},
      {shape(dims + ")"), "a shape of 33 dims, expected at most 32"},
      {shape("(2, 3)", "abcde"), "5 bytes after the header, expected 6 for shape (2, 3) of |u1"},
      {shape("(6,)", "abcdefg"), "7 bytes after the header, expected 6 for shape (6,) of |u1"},
  };
  for (const Case& c : cases) {
    const Result<NpyHeader> header = parsed(c.bytes);
    ASSERT_FALSE(header.ok()) << c.message;
    EXPECT_EQ(header.error().code, Code::kInvalid);
    EXPECT_TRUE(header.error().message.starts_with(c.message))
        << header.error().message << "\nexpected " << c.message;
  }
}

template <class T>
std::vector<float> floats_of(const char* dtype, const std::vector<T>& values) {
  TemporaryFolder folder;
  const auto file = NpyFile::open(
      folder.write("x.npy", npy_array(dtype, "(" + std::to_string(values.size()) + ",)", values)));
  EXPECT_TRUE(file.ok()) << file.error().message;
  std::vector<float> out(values.size());
  EXPECT_TRUE(file->read(0, out).ok());
  return out;
}

TEST(NpyFile, ReadsEveryTypeAsFloats) {
  EXPECT_EQ(floats_of<float>("<f4", {1.5f, -2.25f}), (std::vector<float>{1.5f, -2.25f}));
  EXPECT_EQ(floats_of<double>("<f8", {0.1, -3e38}), (std::vector<float>{0.1f, -3e38f}));
  EXPECT_EQ(floats_of<uint8_t>("|u1", {0, 255}), (std::vector<float>{0, 255}));
  EXPECT_EQ(floats_of<uint8_t>("|b1", {0, 1}), (std::vector<float>{0, 1}));
  EXPECT_EQ(floats_of<int8_t>("|i1", {-128, 127}), (std::vector<float>{-128, 127}));
  EXPECT_EQ(floats_of<int16_t>("<i2", {-32768, 32767}), (std::vector<float>{-32768, 32767}));
  EXPECT_EQ(floats_of<int32_t>("<i4", {-70000, 70000}), (std::vector<float>{-70000, 70000}));
  EXPECT_EQ(floats_of<int64_t>("<i8", {-(int64_t{1} << 40), 3}), (std::vector<float>{-0x1p40f, 3}));
}

TEST(NpyFile, ReadsRowsFromAnyOneOn) {
  TemporaryFolder folder;
  const auto file =
      NpyFile::open(folder.write("x.npy", npy_array<double>("<f8", "(3, 2)", {1, 2, 3, 4, 5, 6})));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->rows(), 3);
  EXPECT_EQ(file->columns(), 2);
  std::vector<float> out(4);
  ASSERT_TRUE(file->read(1, out).ok());
  EXPECT_EQ(out, (std::vector<float>{3, 4, 5, 6}));
}

void expect_refused(const Status& status, const std::string& message) {
  ASSERT_FALSE(status.ok()) << message;
  EXPECT_EQ(status.error().message, message);
  EXPECT_EQ(status.error().code, Code::kInvalid);
  EXPECT_EQ(status.error().blame, Blame::kData);
}

TEST(NpyFile, RefusesAValueThatIsNotFiniteWithFileAndPlace) {
  TemporaryFolder folder;
  const std::string expected = ", expected a finite number (of at most 3.4e38)";
  struct Case {
    double value;
    std::string found;
  };
  for (const Case& c :
       {Case{std::nan(""), "nan"}, Case{-std::numeric_limits<double>::infinity(), "-inf"}}) {
    const std::string path =
        folder.write("x.npy", npy_array<double>("<f8", "(3, 2)", {1, 2, 3, 4, 5, c.value}));
    std::vector<float> out(4);
    ASSERT_TRUE(NpyFile::open(path)->read(0, out).ok());
    expect_refused(NpyFile::open(path)->read(1, out),
                   "[data] " + path + ": row 2, column 1 (from 0): found " + c.found + expected);
  }
  const std::string vector = folder.write("y.npy", npy_array<double>("<f8", "(2,)", {1, 1e39}));
  std::vector<float> out(2);
  expect_refused(NpyFile::open(vector)->read(0, out),
                 "[data] " + vector + ": row 1 (from 0): found 1e+39" + expected);
}

TEST(NpyFile, RefusesAClassOutsideTheModelWithFileAndRow) {
  TemporaryFolder folder;
  const std::string large =
      folder.write("l.npy", npy_array<int64_t>("<i8", "(3,)", {2, 0, int64_t{1} << 33}));
  const std::string negative = folder.write("n.npy", npy_array<int8_t>("|i1", "(2, 1)", {0, -1}));
  std::vector<int32_t> out(2);
  ASSERT_TRUE(NpyFile::open(large)->read_classes(0, 3, out).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{2, 0}));
  expect_refused(NpyFile::open(large)->read_classes(0, 2, out),
                 "[data] " + large + ": row 0 (from 0): found 2, expected a class from 0 to 1");
  expect_refused(
      NpyFile::open(large)->read_classes(1, 3, out),
      "[data] " + large + ": row 2 (from 0): found 8589934592, expected a class from 0 to 2");
  expect_refused(NpyFile::open(negative)->read_classes(0, 3, out),
                 "[data] " + negative + ": row 1 (from 0): found -1, expected a class from 0 to 2");
}

TEST(NpyFile, NamesThePathThatItCannotOpen) {
  TemporaryFolder folder;
  const auto missing = NpyFile::open(folder.file("missing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_EQ(missing.error().blame, Blame::kData);
  EXPECT_NE(missing.error().message.find(folder.file("missing")), std::string::npos);

  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder.path(), folder.file("pipe")}) {
    const auto file = NpyFile::open(path);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().message, "[data] " + path + ": expected a regular file");
    EXPECT_EQ(file.error().blame, Blame::kData);
  }
  const std::string text = folder.write("text", "a,b\n1,2\n");
  const auto csv = NpyFile::open(text);
  ASSERT_FALSE(csv.ok());
  EXPECT_TRUE(csv.error().message.starts_with("[data] " + text + ": not a .npy file"));
  EXPECT_EQ(csv.error().blame, Blame::kData);
}

const MlpConfig kClasses{.inputs = 2, .hidden = {4}, .outputs = 3};
const MlpConfig kValues{.inputs = 2, .outputs = 2, .task = MlpTask::kRegression};

TEST(TableSource, ReadsSamplesOfClasses) {
  TemporaryFolder folder;
  const auto source = TableSource::open(
      {folder.write("x.npy", npy_array<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 6})),
       folder.write("y.npy", npy_array<uint8_t>("|u1", "(3,)", {0, 2, 1})), kClasses});
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->count(), 3);
  std::vector<float> features(4);
  std::vector<int32_t> classes(2);
  ASSERT_TRUE(source->read_features(1, features).ok());
  ASSERT_TRUE(source->read_classes(1, classes).ok());
  EXPECT_EQ(features, (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(classes, (std::vector<int32_t>{2, 1}));
}

TEST(TableSource, ReadsSamplesOfValues) {
  TemporaryFolder folder;
  const auto source = TableSource::open(
      {folder.write("x.npy", npy_array<int8_t>("|i1", "(2, 1, 2)", {1, 2, 3, 4})),
       folder.write("y.npy", npy_array<double>("<f8", "(2, 2)", {0.5, 1.5, 2.5, 3.5})), kValues});
  ASSERT_TRUE(source.ok()) << source.error().message;
  std::vector<float> values(2);
  ASSERT_TRUE(source->read_values(1, values).ok());
  EXPECT_EQ(values, (std::vector<float>{2.5f, 3.5f}));
}

TEST(TableSource, RefusesFilesThatDoNotFitTheModelOrEachOther) {
  TemporaryFolder folder;
  const auto file = [&](const char* name, const char* dtype, const char* shape, size_t values) {
    return dtype[1] == 'f'
               ? folder.write(name, npy_array(dtype, shape, std::vector<float>(values)))
               : folder.write(name, npy_array(dtype, shape, std::vector<int32_t>(values)));
  };
  const std::string x = file("x.npy", "<f4", "(3, 2)", 6);
  const std::string wide = file("wide.npy", "<f4", "(3, 4)", 12);
  const std::string y = file("y.npy", "<i4", "(3,)", 3);
  const std::string floats = file("floats.npy", "<f4", "(3,)", 3);
  const std::string one_hot = file("one_hot.npy", "<i4", "(3, 3)", 9);
  const std::string fewer = file("fewer.npy", "<i4", "(2,)", 2);
  struct Case {
    std::string features;
    std::string targets;
    const MlpConfig& model;
    std::string message;
  };
  const Case cases[] = {
      {wide, y, kClasses,
       "[data] " + wide + ": found rows of 4 values, expected the model's 2 inputs"},
      {x, floats, kClasses,
       "[data] " + floats +
           ": found dtype <f4, expected integers, since the targets are class numbers: save "
           "array.astype(\"<i4\")"},
      {x, one_hot, kClasses,
       "[data] " + one_hot + ": found rows of 3 values, expected one class number per row"},
      {x, fewer, kClasses,
       "[data] " + fewer + ": found 2 rows, expected as many as in " + x + ": 3"},
      {x, floats, kValues,
       "[data] " + floats + ": found rows of 1 values, expected the model's 2 outputs"},
  };
  for (const Case& c : cases) {
    const auto source = TableSource::open({c.features, c.targets, c.model});
    expect_refused(source.ok() ? Status() : Status(source.error()), c.message);
  }
}

TEST(CheckSamples, FindsABadFeatureOrTargetWhereverItIs) {
  TemporaryFolder folder;
  constexpr size_t kRows = 300'000;  // more than are checked in one call
  const std::string shape = std::to_string(kRows);
  const auto check = [&](const std::vector<float>& x, const std::vector<uint8_t>& y) {
    const auto source = TableSource::open(
        {folder.write("x.npy", npy_array("<f4", "(" + shape + ", 2)", x)),
         folder.write("y.npy", npy_array("|u1", "(" + shape + ",)", y)), kClasses});
    return source.ok() ? check_samples(*source) : Status(source.error());
  };
  std::vector<float> x(2 * kRows, 1.0f);
  std::vector<uint8_t> y(kRows, 2);
  EXPECT_TRUE(check(x, y).ok());
  y.back() = 3;
  expect_refused(check(x, y), "[data] " + folder.file("y.npy") +
                                  ": row 299999 (from 0): found 3, expected a class from 0 to 2");
  x[400'001] = std::numeric_limits<float>::infinity();
  expect_refused(check(x, y), "[data] " + folder.file("x.npy") +
                                  ": row 200000, column 1 (from 0): found inf, expected a finite "
                                  "number (of at most 3.4e38)");
}

TEST(CheckSamples, ReadsASampleOfLongDataFromItsBeginningToItsEnd) {
  TemporaryFolder folder;
  const MlpConfig model{.inputs = 1, .outputs = 1, .task = MlpTask::kRegression};
  const DataCheckLimits limits{.bytes_max = 1 << 20, .blocks = 4};  // 52428 rows each
  constexpr size_t kRows = 1'000'000;
  const std::string x =
      folder.write("x.npy", npy_array<int8_t>("|i1", "(1000000,)", std::vector<int8_t>(kRows)));
  const struct {
    size_t bad;
    bool is_found;
  } cases[] = {{0, true}, {52'427, true}, {52'428, false}, {kRows - 1, true}};
  for (const auto& [bad, is_found] : cases) {
    std::vector<float> values(kRows);
    values[bad] = std::nanf("");
    const auto source = TableSource::open(
        {x, folder.write("y.npy", npy_array<float>("<f4", "(1000000, 1)", values)), model});
    ASSERT_TRUE(source.ok()) << source.error().message;
    const Status status = check_samples(*source, limits);
    EXPECT_EQ(status.ok(), !is_found) << bad;
    if (status.ok()) continue;
    EXPECT_TRUE(status.error().message.ends_with("(in a sample of 0 MiB of the 4 MiB)"))
        << status.error().message;
  }
}

}  // namespace
}  // namespace lockstep::train
