#include <chorus/core/error.h>
#include <chorus/io/asterisk.h>
#include <chorus/io/audio.h>
#include <chorus/io/md5.h>
#include <chorus/io/unicode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace chorus {
namespace {

TEST(Md5, Rfc1321Vectors) {
  EXPECT_EQ(md5(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5("a"), "0cc175b9c0f1b6a831c399e269772661");
  EXPECT_EQ(md5("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(md5("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
  EXPECT_EQ(md5("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"), "d174ab98d277d9f5a5611c2c9f419d9f");
  EXPECT_EQ(md5("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
  EXPECT_EQ(md5_modulo("a", 10), 7u) << "0x0cc175b9c0f1b6a831c399e269772661 modulo 10";
}

TEST(Asterisk, Normalisation) {
  EXPECT_EQ(normalize_prompt("  Please press 1,  then *. (Pause) Don\u2019t wait -- #9!"),
            "please press 1 then star don't wait pound 9");
  EXPECT_EQ(normalize_prompt("Visit www.Asterisk.org [beep] <x> now..."), "visit www dot asterisk dot org now");
  EXPECT_EQ(normalize_prompt("[tone]"), "");
}

TEST(Asterisk, OtherLanguagesKeepTheirLetters) {
  EXPECT_EQ(normalize_prompt("Échec à l\u2019ouverture… Ça, DÉJÀ œuvre #!", "fr"), "échec à l'ouverture ça déjà œuvre dièse");
  EXPECT_EQ(normalize_prompt("Нажмите ЗВЁЗДОЧКУ – «Эхо-тест» [-].", "ru"), "нажмите звёздочку эхо тест");
  EXPECT_EQ(normalize_prompt("¿Señal? ¡ÚLTIMO mensaje!", "es"), "señal último mensaje");
  EXPECT_EQ(normalize_prompt("Perche\u0301 [!] PIU\u0300 (in inglese)", "it"), "perché più") << "accents come composed";
}

TEST(Asterisk, WhatIsSaidMustBeClear) {
  for (const char* text : {"La conferenza ? piena.", "tempo sar? esattamente", "Il [suo] messaggio",
                           "confbridge-x: e vm-then-pound: poi", "premere # ora", "visitare www.asterisk.org"})
    EXPECT_TRUE(is_unclear(text, "it")) << text;
  for (const char* text :
       {"Casella di posta?", "Quale? Cambia", "punto [.]", "[!] punto esclamativo", "Opzioni: uno", "IAX (non dice \"2\")"})
    EXPECT_FALSE(is_unclear(text, "it")) << text;
  EXPECT_FALSE(is_unclear("press # and visit www.asterisk.org", "en"));
  EXPECT_FALSE(is_unclear("appuyez sur # ou *", "fr"));
}

struct AsteriskFiles : ::testing::Test {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("chorus_asterisk_test." + std::to_string(getpid()));
  AsteriskFiles() { std::filesystem::create_directories(folder / "sounds/digits"); }
  ~AsteriskFiles() override { std::filesystem::remove_all(folder); }
};

TEST_F(AsteriskFiles, EqualTextsStayTogetherAndUnusableEntriesAreCounted) {
  auto sound = [&](const std::string& name, double seconds) {
    write_wav(folder / "sounds" / (name + ".wav"), std::vector<float>(static_cast<std::size_t>(seconds * 8000)), 8000);
  };
  std::ofstream texts(folder / "texts.txt");
  texts << "; a comment\n\nbeep: [a tone]\nnothing: ...\nmissing: no file for this\nlong: it never ends\nfast: far too many "
           "characters\n";
  sound("long", 41), sound("fast", 0.5), sound("unnamed", 1), sound("two", 1), sound("lost", 1);
  texts << "two: One text\ntwo: Another text\nlost: the lost ? letter\nтon: not latin\n";
  for (int i = 0; i < 40; ++i) {  // every text twice under two names
    const std::string name = "digits/n" + std::to_string(i);
    texts << name << ": Number " << i / 2 << ".\n";
    sound(name, 1);
  }
  texts.close();
  const AsteriskCorpus corpus = write_asterisk_manifests(folder / "texts.txt", folder / "sounds", folder / "out");
  EXPECT_EQ(corpus.tones, 1);
  EXPECT_EQ(corpus.no_text, 1);
  EXPECT_EQ(corpus.no_sound, 2);
  EXPECT_EQ(corpus.unusable, 2);
  EXPECT_EQ(corpus.unclear, 2) << "two texts for one name, a lost letter";
  EXPECT_EQ(corpus.no_prompt, 2) << "one without a text, one with two";
  EXPECT_EQ(corpus.train.size() + corpus.heldout.size(), 40u);
  std::set<std::string> train;
  for (const ManifestEntry& e : corpus.train) train.insert(e.text);
  EXPECT_EQ(train.size() * 2, corpus.train.size());
  for (const ManifestEntry& e : corpus.heldout) EXPECT_FALSE(train.contains(e.text)) << e.id;
  EXPECT_EQ(read_manifest(folder / "out/train.jsonl").size(), corpus.train.size());
  EXPECT_EQ(read_manifest(folder / "out/heldout.jsonl").size(), corpus.heldout.size());
}

/// The published numbers of the demo's corpus; needs Debian's asterisk-core-sounds-en and -en-wav.
TEST_F(AsteriskFiles, TheEnglishPromptsSplitAsPublished) {
  const std::filesystem::path packed = "/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz";
  const std::filesystem::path sounds = "/usr/share/asterisk/sounds/en_US_f_Allison";
  if (!std::filesystem::exists(packed) || !std::filesystem::exists(sounds / "activated.wav"))
    GTEST_SKIP() << "corpus not installed";
  ASSERT_EQ(std::system(("gunzip -c " + packed.string() + " > " + (folder / "texts.txt").string()).c_str()), 0);
  const AsteriskCorpus corpus = read_asterisk(folder / "texts.txt", sounds);
  EXPECT_EQ(corpus.train.size(), 502u);
  EXPECT_EQ(corpus.heldout.size(), 48u);
  EXPECT_EQ(corpus.tones, 17);
  EXPECT_EQ(corpus.no_sound, 1);
  EXPECT_EQ(corpus.unusable, 1);
  EXPECT_EQ(corpus.unclear, 0);
  struct Total {
    double minutes = 0;
    std::size_t characters = 0, words = 0;
    std::set<std::string> texts;
  };
  auto total = [](const std::vector<ManifestEntry>& entries) {
    Total t;
    for (const ManifestEntry& e : entries) {
      t.minutes += e.duration / 60;
      t.characters += e.text.size();
      std::istringstream words(e.text);
      for (std::string word; words >> word;) ++t.words;
      t.texts.insert(e.text);
    }
    return t;
  };
  const Total train = total(corpus.train), held = total(corpus.heldout);
  EXPECT_NEAR(train.minutes, 21.26, 0.005);
  EXPECT_EQ(train.characters, 15591u);
  EXPECT_EQ(train.texts.size(), 465u);
  EXPECT_NEAR(held.minutes, 1.78, 0.005);
  EXPECT_EQ(held.characters, 1236u);
  EXPECT_EQ(held.words, 229u);
}

/// Letters that each language has and numbers of recordings; needs the packages of that language.
TEST_F(AsteriskFiles, TheOtherFourLanguagesAreRead) {
  struct Case {
    std::string lang, voice, letters;
    std::size_t recordings;
  };
  int seen = 0;
  for (const Case& c : {Case{"es", "es_MX_f_Allison", "áéíóú", 472}, Case{"fr", "fr_CA_f_June", "àçéèêîû", 506},
                        Case{"it", "it_IT_m_Carlo", "àèéìòù", 560},
                        Case{"ru", "ru_RU_f_IvrvoiceRU", "абвгдежзийклмнопрстуфхцчшщъыьэюяё", 551}}) {
    const std::filesystem::path packed = "/usr/share/doc/asterisk-core-sounds-" + c.lang + "/core-sounds-" + c.lang + ".txt.gz";
    const std::filesystem::path sounds = "/usr/share/asterisk/sounds/" + c.voice;
    if (!std::filesystem::exists(packed) || !std::filesystem::exists(sounds / "vm-goodbye.wav")) continue;
    ++seen;
    const std::filesystem::path texts = folder / (c.lang + ".txt");
    ASSERT_EQ(std::system(("gunzip -c " + packed.string() + " > " + texts.string()).c_str()), 0);
    const AsteriskCorpus corpus = read_asterisk(texts, sounds, c.lang);
    EXPECT_EQ(corpus.train.size() + corpus.heldout.size(), c.recordings) << c.lang;
    std::set<char32_t> letters;
    std::set<std::string> train;
    for (const ManifestEntry& e : corpus.train) {
      train.insert(e.text);
      for (const char32_t l : code_points(e.text)) letters.insert(l);
    }
    for (const ManifestEntry& e : corpus.heldout) EXPECT_FALSE(train.contains(e.text)) << e.id;
    for (const char32_t l : code_points(c.letters)) EXPECT_TRUE(letters.contains(l)) << c.lang << ' ' << to_utf8({&l, 1});
  }
  if (seen == 0) GTEST_SKIP() << "none of the corpora is installed";
}

}  // namespace
}  // namespace chorus
