// Plain text as a corpus: nothing is lost, nothing is on both sides, and bad files are named.
#include <chorus/core/error.h>
#include <chorus/io/text_corpus.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>
#include <set>

namespace chorus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct TextCorpusTest : ::testing::Test {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("chorus_text_corpus." + std::to_string(getpid()));
  TextCorpusTest() { std::filesystem::create_directories(folder); }
  ~TextCorpusTest() override { std::filesystem::remove_all(folder); }
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return folder / name;
  }
  std::filesystem::path pack(const std::string& name, const std::string& text) {
    gzFile out = gzopen((folder / name).c_str(), "wb");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
    return folder / name;
  }
};

TEST(CutText, FillsPiecesAtParagraphsSentencesAndSpaces) {
  EXPECT_THAT(cut_text("One two.\nThree\tfour.\n\n  Five.\n", 100), ElementsAre("One two. Three four. Five."));
  EXPECT_THAT(cut_text("One two.\nThree four.\n\nFive.", 25), ElementsAre("One two. Three four.", "Five."));
  EXPECT_THAT(cut_text("A b c. D e f g h i.", 12), ElementsAre("A b c.", "D e f g h i."));
  EXPECT_THAT(cut_text("aaa bbb ccc", 7), ElementsAre("aaa bbb", "ccc"));
  EXPECT_THAT(cut_text("aaaaaaa", 3), ElementsAre("aaa", "aaa", "a"));
  EXPECT_THAT(cut_text("\xC3\xA9\xC3\xA9\xC3\xA9", 2), ElementsAre("\xC3\xA9\xC3\xA9", "\xC3\xA9")) << "characters, not bytes";
  EXPECT_THAT(cut_text("line one\r\n indented\r\n", 10), ElementsAre("line one", "indented"));
  EXPECT_THAT(cut_text(" \n\t\n", 10), ElementsAre());
}

TEST(CutText, LosesOnlyWhiteSpace) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += std::to_string(i * i) + (i % 7 ? " " : i % 14 ? ".\n" : ".\n\n");
  const auto squeezed = [](std::string s) {
    std::erase_if(s, [](char c) { return c == ' ' || c == '\n'; });
    return s;
  };
  for (const std::int64_t most : {1, 5, 40, 100000}) {
    std::string all;
    for (const auto& piece : cut_text(text, most)) {
      EXPECT_LE(piece.size(), static_cast<std::size_t>(most));
      EXPECT_FALSE(piece.empty());
      all += piece;
    }
    EXPECT_EQ(squeezed(all), squeezed(text)) << most;
  }
}

TEST_F(TextCorpusTest, HoldsOutWholeDocumentsAndLeavesRepeatsOut) {
  std::string many;
  for (int i = 0; i < 200; ++i) many += "Saying number " + std::to_string(i) + ". It goes on. And on.\n%\n";
  many += "Saying number 7. It   goes on.\nAnd on.\n%\n\n%\n";
  const auto file = pack("sayings.gz", many);
  const TextCorpus corpus = write_text_manifests(
      std::span(&file, 1), {.separator = "%", .most_characters = 20, .heldout_one_in = 10}, folder / "out");
  EXPECT_EQ(corpus.documents + corpus.heldout_documents, 200);
  EXPECT_EQ(corpus.repeated, 1);
  EXPECT_EQ(corpus.empty, 1);
  EXPECT_GT(corpus.heldout_documents, 5);
  EXPECT_LT(corpus.heldout_documents, 40);
  const auto document = [](const ManifestEntry& e) { return e.id.substr(0, e.id.find('.', e.id.find('#'))); };
  std::set<std::string> train, heldout;
  for (const auto& e : read_manifest(folder / "out/train.jsonl", {}, Content::text)) train.insert(document(e));
  for (const auto& e : read_manifest(folder / "out/heldout.jsonl", {}, Content::text)) heldout.insert(document(e));
  EXPECT_EQ(static_cast<std::int64_t>(train.size()), corpus.documents);
  EXPECT_EQ(static_cast<std::int64_t>(heldout.size()), corpus.heldout_documents);
  for (const auto& name : heldout) EXPECT_FALSE(train.contains(name)) << name;
  EXPECT_THAT([&] { read_manifest(folder / "out/train.jsonl"); },
              ThrowsMessage<Error>(HasSubstr("train.jsonl:1: field 'audio_filepath' is missing")))
      << "a model that listens can't train on it";
}

TEST_F(TextCorpusTest, BadFilesAreNamed) {
  EXPECT_THAT([&] { read_text(folder / "none.txt"); }, ThrowsMessage<Error>(HasSubstr("none.txt")));
  EXPECT_THAT([&] { read_text(folder / "none.gz"); }, ThrowsMessage<Error>(HasSubstr("cannot open")));
  EXPECT_THAT([&] { read_text(write("plain.gz", "no gzip at all")); },
              ThrowsMessage<Error>(HasSubstr("plain.gz is no gzip file")));
  std::string packed;
  {
    const auto whole = pack("whole.gz", std::string(5000, 'x') + "middle" + std::string(5000, 'y'));
    std::ifstream in(whole, std::ios::binary);
    packed.assign(std::istreambuf_iterator<char>(in), {});
  }
  EXPECT_THAT([&] { read_text(write("cut.gz", packed.substr(0, packed.size() / 2))); },
              ThrowsMessage<Error>(HasSubstr("cut.gz is damaged")));
  for (const std::string bad : {"\xFF", "\xC3", "\xC0\xAF", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
    EXPECT_THAT([&] { read_text(write("bad.txt", "good\n\xE2\x82\xAC " + bad + "z")); },
                ThrowsMessage<Error>(HasSubstr("bad.txt is no UTF-8 at byte 9, line 2")))
        << ::testing::PrintToString(bad);
  const auto file = write("one.txt", "A single document.");
  EXPECT_THAT([&] { write_text_manifests(std::span(&file, 1), {}, folder / "out"); },
              ThrowsMessage<Error>(HasSubstr("both are needed")));
}

}  // namespace
}  // namespace chorus
