#include <chorus/core/posix_file.h>
#include <chorus/io/tar.h>
#include <chorus/io/tar_header.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "unit/io/files_fixture.h"

namespace chorus {
namespace {

using ::testing::HasSubstr;

struct TarFiles : ::testing::Test {
  TemporaryFolder folder;
  const std::string long_name = std::string(120, 'd') + '/' + std::string(130, 'n') + ".wav";

  std::filesystem::path path(const std::string& name) const { return folder.path / name; }
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(path("in/" + name).parent_path());
    std::ofstream(path("in/" + name), std::ios::binary) << content;
  }
  /// What tar itself writes; `arguments` come before the names.
  std::filesystem::path pack(const std::string& arguments, const std::string& tar = "a.tar") const {
    const std::string command =
        "cd '" + path("in").string() + "' && tar " + arguments + " -cf '" + path(tar).string() + "' --sort=name .";
    require(std::system(command.c_str()) == 0, "test", "failed: ", command);
    return path(tar);
  }
  /// One header with its content; `type` and `size` as given.
  static std::string member(const std::string& name, const std::string& content, char type = '0') {
    std::string header(512, '\0');
    header.replace(0, name.size(), name);
    char text[16];
    std::snprintf(text, sizeof text, "%011zo", content.size());
    header.replace(124, 11, text);
    header[156] = type;
    header.replace(257, 6, std::string("ustar\0", 6));
    return with_checksum(header) + content + std::string((512 - content.size() % 512) % 512, '\0');
  }
  static std::string with_checksum(std::string header) {
    header.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    char text[16];
    std::snprintf(text, sizeof text, "%06o", sum);
    return header.replace(148, 7, std::string(text, 7));
  }
  std::filesystem::path archive(const std::string& bytes, const std::string& name = "a.tar") const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string content(const std::filesystem::path& tar, const TarMember& m) {
    const auto bytes = read_tar_member(tar, m);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

const std::string end_mark(1024, '\0');

TEST_F(TarFiles, EveryFormatOfTarIsRead) {
  write("a.wav", "first");
  write("b.c.txt", std::string(1000, 'x'));
  write("empty.txt", "");
  write("sub/grüezi ж.wav", "utf-8");
  write(long_name, "long");
  std::filesystem::create_symlink("a.wav", path("in/soft.wav"));
  std::filesystem::create_hard_link(path("in/a.wav"), path("in/hard.wav"));
  for (const char* format : {"--format=gnu", "--format=pax", "--format=pax --pax-option=comment=x", "--format=oldgnu"}) {
    const auto tar = pack(format);
    const TarIndex index = scan_tar(tar);
    EXPECT_EQ(index.problem, "") << format;
    std::map<std::string, std::string> found;
    for (const TarMember& m : index.members) found[m.name] = content(tar, m);
    EXPECT_EQ(found, (std::map<std::string, std::string>{{"a.wav", "first"},
                                                         {"hard.wav", "first"},
                                                         {"b.c.txt", std::string(1000, 'x')},
                                                         {"empty.txt", ""},
                                                         {"sub/grüezi ж.wav", "utf-8"},
                                                         {long_name, "long"}}))
        << format;
  }
  std::filesystem::remove_all(path("in"));
  const std::string prefixed = std::string(90, 'd') + '/' + std::string(90, 'n');
  write(prefixed, "prefix");
  const TarIndex ustar = scan_tar(pack("--format=ustar"));
  ASSERT_EQ(ustar.members.size(), 1u);
  EXPECT_EQ(ustar.members[0].name, prefixed);
}

TEST_F(TarFiles, WhatCannotBeReadAtRandomIsRefusedByName) {
  write("a.wav", std::string(5000, 'a'));
  // How each begins: minimal systems lack the programs.
  using namespace std::string_literals;
  for (const auto& [magic, name] : {std::pair{"\x1f\x8b\x08"s, "gzip"},
                                    {"BZh9"s, "bzip2"},
                                    {"\xfd\x37zXZ\0"s, "xz"},
                                    {"\x28\xb5\x2f\xfd"s, "zstd"},
                                    {"\x04\x22\x4d\x18"s, "lz4"}})
    EXPECT_THAT(error_of([&] { scan_tar(archive(magic + std::string(2000, 'x'))); }),
                ::testing::AllOf(HasSubstr("a.tar"), HasSubstr(std::string("compressed with ") + name)));
  EXPECT_THAT(error_of([&] { scan_tar(path("none.tar")); }), HasSubstr("none.tar"));
  EXPECT_THAT(error_of([&] { scan_tar(archive("RIFF")); }), HasSubstr("it has 4 bytes"));
  EXPECT_THAT(error_of([&] { scan_tar(archive(std::string(2000, 'x'))); }), HasSubstr("no tar file"));
  std::filesystem::resize_file(path("in/a.wav"), 5 << 20);  // a hole
  for (const char* format : {"--format=gnu -S", "--format=pax -S"})
    EXPECT_THAT(scan_tar(pack(format)).problem, HasSubstr("sparse member")) << format;
}

TEST_F(TarFiles, DamageEndsTheIndexAndIsNamed) {
  const std::string a = member("a.wav", "aaa"), b = member("b.wav", std::string(700, 'b'));
  auto problem = [&](const std::string& bytes, std::size_t members) {
    const TarIndex index = scan_tar(archive(bytes));
    EXPECT_EQ(index.members.size(), members) << index.problem;
    return index.problem;
  };
  EXPECT_EQ(problem(a + b + end_mark, 2), "");
  EXPECT_EQ(problem(end_mark, 0), "");
  EXPECT_EQ(problem(a + member("list", "a.wav", 'D') + b + end_mark, 2), "") << "kinds that are not ours are passed over";
  EXPECT_THAT(problem(a + b, 2), HasSubstr("a.tar: the end mark is missing at byte 2560"));
  EXPECT_THAT(problem((a + b).substr(0, 1024 + 512 + 600), 1), HasSubstr("the file ends inside b.wav (600 of 700 bytes)"));
  EXPECT_THAT(problem((a + b).substr(0, 1024 + 100), 1), HasSubstr("the file ends inside a header at byte 1024"));
  std::string flipped = a + b + end_mark;
  flipped[1024 + 3] ^= 1;
  EXPECT_THAT(problem(flipped, 1), HasSubstr("damaged header at byte 1024"));
  std::string no_size = b.substr(0, 512);
  no_size.replace(124, 11, "0000000zz00");
  EXPECT_THAT(problem(a + with_checksum(no_size) + end_mark, 1), HasSubstr("unreadable size"));
  EXPECT_THAT(problem(a + member("x", "12 path=", 'x') + b + end_mark, 1), HasSubstr("malformed pax header"));
  EXPECT_THAT(problem(a + member("x", "99 path=b\n", 'x') + b + end_mark, 1), HasSubstr("malformed pax header"));
  EXPECT_THAT(problem(a + member("x", "15 path=new.wav\n", 'x') + b + end_mark, 1), HasSubstr("malformed pax header"));
  EXPECT_EQ(problem(a + member("x", "16 path=new.wav\n", 'x') + b + end_mark, 2), "");
}

TEST_F(TarFiles, BinarySizesAndSignedChecksumsAreRead) {
  std::string header = member("big.wav", "").substr(0, 512);
  header.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x05", 12));
  header = with_checksum(header);
  const TarIndex index = scan_tar(archive(header + "12345" + std::string(507, '\0') + end_mark));
  ASSERT_EQ(index.members.size(), 1u) << index.problem;
  EXPECT_EQ(content(path("a.tar"), index.members[0]), "12345");
  tar::Block block;
  std::copy(header.begin(), header.end(), block.begin());
  for (std::size_t i = 124; i < 135; ++i) block[i] = '\xff';
  EXPECT_FALSE(tar::size(block).has_value()) << "negative";
}

TEST_F(TarFiles, TheIndexIsKeptAndMadeAnewWhenTheFileChanged) {
  const auto tar = archive(member("a.wav", "aaa") + member("b.wav", "bb") + end_mark), kept = path("a.tar.chorus.idx");
  const TarIndex first = tar_index(tar);
  ASSERT_TRUE(std::filesystem::exists(kept));
  EXPECT_EQ(first.members, scan_tar(tar).members);
  // A kept index is used: with the right digest, even a wrong one.
  const std::string text = read_file(kept);
  EXPECT_EQ(tar_index(tar).members, first.members);
  std::ofstream(kept) << text.substr(0, text.size() - 3) << "]]}";
  EXPECT_EQ(tar_index(tar).members, first.members) << "a damaged index is made anew";
  EXPECT_EQ(read_file(kept), text);
  archive(member("c.wav", "ccccc") + end_mark);
  EXPECT_EQ(tar_index(tar).members.at(0).name, "c.wav") << "an old index is made anew";
  EXPECT_THAT(error_of([&] { content(tar, first.members[1]); }), HasSubstr("has no header before its member b.wav"));
  std::filesystem::resize_file(tar, 1000);
  EXPECT_NE(tar_index(tar).problem, "");
  EXPECT_NE(tar_index(tar).problem, "") << "an index with a problem isn't kept";
}

TEST_F(TarFiles, WithoutAPlaceForTheIndexItIsMadeEveryTime) {
  const auto tar = archive(member("a.wav", "aaa") + end_mark);
  std::filesystem::create_directories(path("a.tar.chorus.idx/in the way"));
  EXPECT_EQ(tar_index(tar).members.size(), 1u);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path)) ++files;
  EXPECT_EQ(files, 2u) << "no temporary file stays";
}

}  // namespace
}  // namespace chorus
