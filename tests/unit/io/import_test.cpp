#include <chorus/io/audio.h>
#include <chorus/io/import.h>
#include <chorus/io/import_list.h>
#include <chorus/io/shards.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "unit/io/files_fixture.h"

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ImportFiles : ::testing::Test {
  TemporaryFolder folder;
  std::filesystem::path path(const std::string& name) const { return folder.path / name; }
  void wav(const std::string& name, double seconds = 1) const {
    std::filesystem::create_directories(path(name).parent_path());
    write_wav(path(name), std::vector<float>(static_cast<std::size_t>(seconds * 8000), 0.1f), 8000);
  }
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(path(name).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  static std::vector<std::string> texts(const Imported& corpus) {
    std::vector<std::string> out;
    for (const ManifestEntry& e : corpus.entries) out.push_back(e.id + "|" + e.text + "|" + e.lang + "|" + e.speaker);
    return out;
  }
  static std::vector<std::string> left_out(const Imported& corpus) {
    std::vector<std::string> out;
    for (const Finding& f : corpus.left_out)
      out.push_back(f.kind + " @ " + f.where.substr(f.where.rfind('/') + 1) + ": " + f.text);
    return out;
  }
};

TEST_F(ImportFiles, ListsOfEveryForm) {
  for (const char* name : {"s/a.wav", "s/b.wav", "s/deep/c.wav", "s/deep/e.wav", "s/e.wav", "s/extra.wav"}) wav(name);
  const auto list =
      write("list.txt", "; a comment\na\ttab text\nb.wav: colon: text\n\ndeep/c space text\ne: two files\nzz: none\nc: stem\n");
  const Imported corpus = import_folder(path("s"), list);
  EXPECT_THAT(texts(corpus),
              ElementsAre("a|tab text||", "b.wav|colon: text||", "deep/c|space text||", "e|two files||", "c|stem||"));
  EXPECT_EQ(corpus.entries[2].audio, std::filesystem::absolute(path("s/deep/c.wav")));
  EXPECT_EQ(corpus.entries[3].audio, path("s/e.wav")) << "the path before the stem";
  EXPECT_THAT(left_out(corpus), ElementsAre(AllOf(HasSubstr("no sound @ list.txt:7"), HasSubstr("'zz'")),
                                            HasSubstr("no text @ e.wav"), HasSubstr("no text @ extra.wav")));

  const Imported csv = import_folder(
      path("s"),
      write("t.csv",
            "\xEF\xBB\xBFpath,text,locale,client_id\r\na.wav,\"one, \"\"two\"\"\nlines\",en,s1\r\nb.wav,plain,fr,s2\r\n"));
  EXPECT_THAT(texts(csv), ElementsAre("a.wav|one, \"two\"\nlines|en|s1", "b.wav|plain|fr|s2"));
  EXPECT_EQ(csv.entries[1].line, 4) << "of the file, not of the records";
  const Imported tsv = import_folder(path("s"), write("t.tsv", "sentence\tid\n\"quoted\" text\ta\n"));
  EXPECT_THAT(texts(tsv), ElementsAre("a|\"quoted\" text||"));
  EXPECT_THAT(error_of([&] { import_folder(path("s"), write("x.csv", "path,words\na,b\n")); }),
              HasSubstr("x.csv:1: no column text, sentence, transcript or transcription among path, words"));
  EXPECT_THAT(error_of([&] { import_folder(path("s"), write("y.txt", "a: ok\nb: \xff\n")); }),
              HasSubstr("y.txt:2: the line is not UTF-8"));
  EXPECT_THAT(error_of([&] { import_folder(path("none"), list); }), HasSubstr("is no folder of sound files"));
}

TEST_F(ImportFiles, KaldiFolders) {
  wav("k/r1.wav", 3), wav("k/r2.wav");
  write("k/wav.scp", "r1 " + path("k/r1.wav").string() + "\nr2 r2.wav\nr3 gone.wav\n");
  write("k/text", "u1 eins zwei\nu2 drei\nu3 vier\nu4\nu5 nowhere\nu6 late\n");
  write("k/segments", "u1 r1 0.5 1.25\nu2 r1 2 -1\nu3 r3 0 1\nu4 r2 0 1\nu6 r1 2.5 3.5\nu7 r1 0 1\n");
  write("k/utt2spk", "u1 anna\nu2 bert\n");
  write("k/utt2lang", "u1 de\n");
  Imported corpus = import_kaldi(path("k"));
  finish_import(corpus);
  EXPECT_THAT(texts(corpus), ElementsAre("u1|eins zwei|de|anna", "u2|drei||bert"));
  EXPECT_EQ(corpus.entries[0].offset, 0.5);
  EXPECT_EQ(corpus.entries[0].duration, 0.75);
  EXPECT_EQ(corpus.entries[1].duration, 1) << "-1: to the end";
  EXPECT_THAT(left_out(corpus),
              ::testing::UnorderedElementsAre(HasSubstr("no segment @ text:5"), HasSubstr("unreadable sound @ text:3"),
                                            HasSubstr("no text @ text:4"),
                                            AllOf(HasSubstr("beyond the end @ text:6"), HasSubstr("2.5 to 3.5 s of 3 s")),
                                            AllOf(HasSubstr("no text @ segments"), HasSubstr("u7"))));
  std::filesystem::remove(path("k/segments"));
  write("k/text", "r1 whole\nr9 unknown\n");
  corpus = import_kaldi(path("k"));
  EXPECT_THAT(texts(corpus), ElementsAre("r1|whole||"));
  EXPECT_THAT(left_out(corpus), Contains(HasSubstr("wav.scp doesn't have 'r9'")));
  write("k/wav.scp", "r1 sph2pipe -f wav r1.sph |\n");
  EXPECT_THAT(error_of([&] { import_kaldi(path("k")); }),
              AllOf(HasSubstr("wav.scp:1: 'sph2pipe -f wav r1.sph |' is a command; Chorus runs none")));
  write("k/wav.scp", "r1 r1.wav\n");
  write("k/segments", "u1 r1 2 1\n");
  EXPECT_THAT(error_of([&] { import_kaldi(path("k")); }), HasSubstr("segments:1: 'r1 2 1', expected recording, start and end"));
}

TEST_F(ImportFiles, TarShardsByWebDatasetsConvention) {
  wav("w/x/a.wav"), wav("w/b.wav", 2), wav("w/c.wav"), wav("w/d.one.wav"), wav("w/d.two.wav"), wav("w/e.wav"), wav("w/f.wav");
  write("w/x/a.txt", " first text \n"),
      write("w/b.json", R"({"text": "second", "lang": "fr", "speaker": "s", "id": "B", "n": 1})");
  write("w/d.txt", "two sounds"), write("w/e.json", "{broken"), write("w/f.json", R"({"text": "one"})"),
      write("w/f.txt", "another");
  write("w/readme", "no sample");
  const std::string command = "cd '" + path("w").string() + "' && tar -cf ../audio_3.tar --sort=name *";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::vector<std::filesystem::path> tars{path("audio_3.tar")};
  Imported corpus = import_tars(tars);
  finish_import(corpus);
  EXPECT_THAT(texts(corpus), ::testing::UnorderedElementsAre("x/a|first text||", "B|second|fr|s"));
  EXPECT_THAT(left_out(corpus), ::testing::UnorderedElementsAre(AllOf(HasSubstr("no text"), HasSubstr(":c")),
                                                              AllOf(HasSubstr("2 sound files"), HasSubstr(":d")),
                                                              AllOf(HasSubstr("unreadable text"), HasSubstr("e.json")),
                                                              AllOf(HasSubstr("disagree"), HasSubstr("f.txt"))));
  write_manifest(path("m.jsonl"), corpus.entries);
  std::vector<ManifestEntry> back = read_manifest(path("m.jsonl"));
  EXPECT_THAT(locate_members(back), ::testing::IsEmpty());
  ASSERT_EQ(back.size(), 2u);
  for (const ManifestEntry& e : back) {
    EXPECT_EQ(e.shard, 3);
    EXPECT_EQ(read_audio(e, 8000).size(), e.id == "B" ? 16000u : 8000u);
  }
}

TEST_F(ImportFiles, TheSplitDependsOnNothingButTheText) {
  int held = 0;
  for (int i = 0; i < 2000; ++i) {
    ManifestEntry a{.audio = "a.wav", .text = "Text number " + std::to_string(i)},
        b{.audio = "b.wav", .text = "TEXT, number " + std::to_string(i) + "!"};
    EXPECT_EQ(is_held_out(a, 0.1), is_held_out(b, 0.1)) << i;
    EXPECT_TRUE(!is_held_out(a, 0.1) || is_held_out(a, 0.3)) << "a larger share holds the smaller one";
    EXPECT_FALSE(is_held_out(a, 0));
    held += is_held_out(a, 0.1);
  }
  EXPECT_NEAR(held, 200, 45);
}

}  // namespace
}  // namespace chorus
