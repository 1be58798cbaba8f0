#include <chorus/core/config.h>
#include <chorus/core/error.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Phase {
  double lr = 1e-3;
  int steps = 10;
  template <class V>
  void fields(V&& v) {
    v("lr", lr, "learning rate", greater_than(0.0));
    v("steps", steps, "how many", at_least(1));
  }
};
struct Decoder {
  int layers = 2;
  std::optional<int> window;
  template <class V>
  void fields(V&& v) {
    v("layers", layers, "blocks", between(1, 100));
    v("window", window, "attention window", at_least(1));
  }
};
struct Model {
  Decoder decoder;
  std::string schedule = "cosine";
  template <class V>
  void fields(V&& v) {
    v("decoder", decoder, "the language model");
    v("schedule", schedule, "of the learning rate", one_of("constant", "cosine", "linear"));
  }
};
struct Config {
  std::string name = "run";
  std::filesystem::path out = "runs/a";
  bool fast = false;
  std::uint64_t seed = 1;
  std::int8_t tiny = 0;
  double ratio = 0.5;
  std::vector<double> betas{0.9, 0.95};
  std::vector<std::string> words;
  std::vector<bool> flags;
  Model model;
  std::vector<Phase> phases{Phase{}, Phase{.lr = 1e-4, .steps = 20}};
  std::optional<Phase> extra;
  int warmup = 0, steps = 100;
  template <class V>
  void fields(V&& v) {
    v("name", name, "name of the run", not_empty());
    v("out", out, "folder");
    v("fast", fast);
    v("seed", seed);
    v("tiny", tiny);
    v("ratio", ratio, "a part", at_least(0.0), less_than(1.0));
    v("betas", betas, "of Adam", between(0.0, 1.0), not_empty());
    v("words", words, "", one_of("red", "green"));
    v("flags", flags);
    v("model", model);
    v("phases", phases, "of the training");
    v("extra", extra);
    v("warmup", warmup);
    v("steps", steps, "", multiple_of(10));
  }
  template <class R>
  void rules(R&& rule) const {
    rule(warmup <= steps, "warmup", "is ", warmup, ", more than steps = ", steps);
  }
};

using Overrides = std::vector<std::string>;
Config parse(std::string_view text, const Overrides& overrides = {}) {
  return parse_config<Config>(text, "a.toml", overrides).value;
}
template <class T = Config>
std::string error_of(std::string_view text, const Overrides& overrides = {}) {
  try {
    parse_config<T>(text, "a.toml", overrides);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Config, DefaultsAndEveryType) {
  const Config d = parse("");
  EXPECT_EQ(d.phases.size(), 2u);
  EXPECT_FALSE(d.extra.has_value());
  const Config c = parse(R"(
name = "x"
out = "/data/b"
fast = true
seed = 9_000_000_000
tiny = -128
ratio = 0
betas = [1, 0.5, 0.25]
words = ["red"]
flags = [true, false]
extra = {lr = 2.0}
[model]
schedule = "linear"
decoder.layers = 7
)");
  EXPECT_EQ(c.name, "x");
  EXPECT_EQ(c.out, "/data/b");
  EXPECT_TRUE(c.fast);
  EXPECT_EQ(c.seed, 9'000'000'000u);
  EXPECT_EQ(c.tiny, -128);
  EXPECT_EQ(c.ratio, 0.0);
  EXPECT_EQ(c.betas, (std::vector<double>{1, 0.5, 0.25}));
  EXPECT_EQ(c.words, std::vector<std::string>{"red"});
  EXPECT_EQ(c.flags, (std::vector<bool>{true, false}));
  ASSERT_TRUE(c.extra.has_value());
  EXPECT_EQ(c.extra->lr, 2.0);
  EXPECT_EQ(c.extra->steps, 10);
  EXPECT_EQ(c.model.schedule, "linear");
}

TEST(Config, ArraysOfTablesReplaceTheDefault) {
  const Config c = parse("[[phases]]\nlr = 0.5\n[[phases]]\n[[phases]]\nsteps = 3\n");
  ASSERT_EQ(c.phases.size(), 3u);
  EXPECT_EQ(c.phases[0].lr, 0.5);
  EXPECT_EQ(c.phases[1].lr, 1e-3);
  EXPECT_EQ(c.phases[2].steps, 3);
}

TEST(Overrides, ReachNestedKeysAndElements) {
  const Config c =
      parse("[[phases]]\n[[phases]]\nsteps = 4\n[model.decoder]\nlayers = 3",
            {"model.decoder.layers=4", "phases[1].lr=1e-2", "name=two words", "out=/x/y", "fast=true", "betas[1]=0.5",
             "words=[\"green\", \"red\"]", "model.schedule=constant", "steps=200", "steps=300", "model.decoder.window=5"});
  EXPECT_EQ(c.model.decoder.layers, 4);
  EXPECT_EQ(c.model.decoder.window, 5);
  EXPECT_EQ(c.phases[1].lr, 1e-2);
  EXPECT_EQ(c.phases[1].steps, 4);
  EXPECT_EQ(c.name, "two words");
  EXPECT_EQ(c.out, "/x/y");
  EXPECT_TRUE(c.fast);
  EXPECT_EQ(c.betas, (std::vector<double>{0.9, 0.5}));
  EXPECT_EQ(c.words, (std::vector<std::string>{"green", "red"}));
  EXPECT_EQ(c.model.schedule, "constant");
  EXPECT_EQ(c.steps, 300);
}

TEST(Overrides, ReachElementsOfADefault) {
  const Config c = parse("", {"phases[1].lr=0.25"});
  ASSERT_EQ(c.phases.size(), 2u);
  EXPECT_EQ(c.phases[0].lr, 1e-3);
  EXPECT_EQ(c.phases[1].lr, 0.25);
  EXPECT_EQ(c.phases[1].steps, 20);
}

TEST(Overrides, TextStaysText) {
  EXPECT_EQ(parse("", {"name=2024"}).name, "2024");
  EXPECT_EQ(parse("", {"name=1e3"}).name, "1e3");
  EXPECT_EQ(parse("", {"name=true"}).name, "true");
  EXPECT_EQ(parse("", {"name=2024-01-02"}).name, "2024-01-02");
  EXPECT_EQ(parse("", {"name=\"quoted\""}).name, "quoted");
  EXPECT_EQ(parse("", {"name=a=b"}).name, "a=b");
  EXPECT_EQ(parse("", {"name=a\nfast=true"}).name, "a\nfast=true");
}

TEST(Errors, WrongType) {
  EXPECT_THAT(error_of("\nsteps = \"ten\""), HasSubstr("a.toml:2:9: steps = \"ten\": expected an integer"));
  EXPECT_THAT(error_of("steps = 1.0"), HasSubstr("steps = 1: expected an integer"));
  EXPECT_THAT(error_of("name = 3"), HasSubstr("a.toml:1:8: name = 3: expected a string"));
  EXPECT_THAT(error_of("fast = 1"), HasSubstr("fast = 1: expected true or false"));
  EXPECT_THAT(error_of("ratio = [1, 2]"), HasSubstr("ratio = [1, 2]: expected a number"));
  EXPECT_THAT(error_of("model = 3"), HasSubstr("model = 3: expected a table"));
  EXPECT_THAT(error_of("phases = 3"), HasSubstr("phases = 3: expected an array of tables"));
  EXPECT_THAT(error_of("phases = [3]"), HasSubstr("phases[0] = 3: expected a table"));
  EXPECT_THAT(error_of("betas = [0.5, \"x\"]"), HasSubstr("a.toml:1:15: betas[1] = \"x\": expected a number"));
  EXPECT_THAT(error_of("betas = 0.5"), HasSubstr("betas = 0.5: expected an array, each element a number"));
  EXPECT_THAT(error_of("name = 2024-01-02"), HasSubstr("name = a date or time: expected a string"));
  EXPECT_THAT(error_of("[name]"), HasSubstr("name = a table: expected a string"));
  EXPECT_THAT(error_of("", {"steps=many"}), HasSubstr("command line: steps = \"many\": expected an integer"));
  EXPECT_THAT(error_of("", {"steps.x=1"}), HasSubstr("command line: steps = a table: expected an integer"));
}

TEST(Errors, OutOfRange) {
  EXPECT_THAT(error_of("ratio = 1.0"), HasSubstr("a.toml:1:9: ratio = 1: expected less than 1"));
  EXPECT_THAT(error_of("ratio = -0.5"), HasSubstr("ratio = -0.5: expected at least 0"));
  EXPECT_THAT(error_of("ratio = nan"), HasSubstr("ratio = nan: expected a finite number"));
  EXPECT_THAT(error_of("[[phases]]\nlr = inf"), HasSubstr("a.toml:2:6: phases[0].lr = inf: expected a finite number"));
  EXPECT_THAT(error_of("seed = -1"), HasSubstr("seed = -1: expected an integer from 0"));
  EXPECT_THAT(error_of("tiny = 128"), HasSubstr("tiny = 128: expected an integer from -128 to 127"));
  EXPECT_THAT(error_of("[[phases]]\n[[phases]]\nlr = 0"), HasSubstr("a.toml:3:6: phases[1].lr = 0: expected greater than 0"));
  EXPECT_THAT(error_of("betas = [0.5, 2]"), HasSubstr("a.toml:1:15: betas[1] = 2: expected from 0 to 1"));
  EXPECT_THAT(error_of("betas = []"), HasSubstr("betas = []: expected something that is not empty"));
  EXPECT_THAT(error_of("steps = 15"), HasSubstr("steps = 15: expected a multiple of 10"));
  EXPECT_THAT(error_of("", {"model.decoder.window=0"}),
              HasSubstr("command line: model.decoder.window = 0: expected at least 1"));
}

TEST(Errors, UnknownWord) {
  EXPECT_THAT(error_of("[model]\nschedule = \"cosin\""),
              HasSubstr("a.toml:2:12: model.schedule = \"cosin\": expected one of \"constant\", \"cosine\", \"linear\"; the "
                        "nearest is \"cosine\""));
  EXPECT_THAT(error_of("[model]\nschedule = \"xyzzy\""), AllOf(HasSubstr("expected one of"), Not(HasSubstr("nearest"))));
  EXPECT_THAT(error_of("words = [\"red\", \"blue\"]"), HasSubstr("words[1] = \"blue\": expected one of"));
}

TEST(Errors, UnknownKey) {
  EXPECT_THAT(error_of("[model.decoder]\nlayer = 3"),
              HasSubstr("a.toml:2:1: model.decoder.layer: unknown key; the nearest known key is model.decoder.layers"));
  EXPECT_THAT(error_of("schedule = \"cosine\""), HasSubstr("a.toml:1:1: schedule: unknown key; there is model.schedule"));
  EXPECT_THAT(error_of("[model.decoder]\nxyzzyxyzzy = 3"), HasSubstr("unknown key; known here: layers, window"));
  EXPECT_THAT(error_of("[[phases]]\nstep = 3"),
              HasSubstr("phases[0].step: unknown key; the nearest known key is phases[0].steps"));
  EXPECT_THAT(error_of("", {"model.decodr.layers=3"}),
              HasSubstr("command line: model.decodr: unknown key; the nearest known key is model.decoder"));
}

struct Needy {
  std::string data;
  Phase phase;
  template <class V>
  void fields(V&& v) {
    v("data", data, "manifest", required_key, not_empty());
    v("phase", phase);
  }
};
struct Outer {
  Needy inner;
  template <class V>
  void fields(V&& v) {
    v("inner", inner);
  }
};

TEST(Errors, MissingKey) {
  EXPECT_THAT(error_of<Needy>(""), HasSubstr("a.toml: data: is missing and has no default: expected a string"));
  EXPECT_THAT(error_of<Outer>(""), HasSubstr("a.toml: inner.data: is missing"));
  EXPECT_THAT(error_of<Outer>("\n[inner]\nphase.lr = 1"), HasSubstr("a.toml:2:1: inner.data: is missing"));
  EXPECT_THAT(error_of<Needy>("data = \"\""), HasSubstr("data = \"\": expected something that is not empty"));
  EXPECT_EQ(error_of<Needy>("data = \"x\""), "no error");
}

struct Range {
  int low = 2, high = 3;
  template <class V>
  void fields(V&& v) {
    v("low", low), v("high", high);
  }
  template <class R>
  void rules(R&& rule) const {
    rule(low <= high, "low", "is ", low, ", above high = ", high);
  }
};
struct Ranges {
  Range range;
  template <class V>
  void fields(V&& v) {
    v("range", range);
  }
};

TEST(Errors, BrokenRules) {
  EXPECT_THAT(error_of("warmup = 500"), HasSubstr("a.toml:1:10: warmup: is 500, more than steps = 100"));
  EXPECT_THAT(error_of("steps = 10", {"warmup=20"}), HasSubstr("command line: warmup: is 20, more than steps = 10"));
  EXPECT_THAT(error_of<Ranges>("\n[range]\nhigh = 1"), HasSubstr("a.toml:2:1: range.low: is 2, above high = 1"))
      << "the place of the table when the key itself isn't given";
  EXPECT_THAT(error_of<Ranges>("", {"range.high=1"}), HasSubstr("command line: range.low: is 2"));
  EXPECT_THAT(error_of("steps = \"x\"\nwarmup = 500"), Not(HasSubstr("more than")))
      << "a rule over a key that is wrong by itself";
}

TEST(Errors, Syntax) {
  EXPECT_THAT(error_of("a = \n"), HasSubstr("a.toml:1:"));
  EXPECT_THAT(error_of("steps = 1\nsteps = 2"), HasSubstr("a.toml:2:"));
  EXPECT_THAT(error_of("", {"steps"}), HasSubstr("command line: `steps`: expected key=value"));
  EXPECT_THAT(error_of("", {"=3"}), HasSubstr("command line: `=3`: expected key=value"));
  EXPECT_THAT(error_of("", {"a..b=3"}), HasSubstr("expected key=value"));
  EXPECT_THAT(error_of("", {"phases[x].lr=3"}), HasSubstr("expected key=value"));
  EXPECT_THAT(error_of("", {"betas=[1, "}), HasSubstr("command line: `betas=[1, `: "));
  EXPECT_THAT(error_of("", {"name={a}"}), HasSubstr("a text that starts with { needs quotes of its own"));
  EXPECT_THAT(error_of("", {"model=3", "model.schedule=linear"}),
              HasSubstr("command line: `model.schedule=linear`: model = 3, given at command line, is no table"));
  EXPECT_THAT(error_of("steps = 5", {"steps.x=1"}),
              HasSubstr("command line: `steps.x=1`: steps = 5, given at a.toml:1:9, is no table"));
  EXPECT_THAT(error_of("model = 5", {"model[0]=1"}), HasSubstr("model = 5, given at a.toml:1:9, is no array"));
  EXPECT_THAT(error_of("[[phases]]", {"phases[1].lr=3"}),
              HasSubstr("command line: `phases[1].lr=3`: phases has 1 elements, given at a.toml:1:1"));
  EXPECT_THAT(error_of("", {"phases[2].lr=3"}), HasSubstr("command line: phases[2]: the default of phases has 2 elements"));
}

TEST(Errors, AllAtOnceInOrder) {
  const std::string e = error_of("stepz = 1\nratio = 7\n[model]\nschedule = \"x\"\n", {"seed=-3", "fast=maybe"});
  EXPECT_THAT(e, HasSubstr("5 errors"));
  std::size_t last = 0;
  for (const char* part :
       {"a.toml:1:1: stepz", "a.toml:2:9: ratio", "a.toml:4:12: model.schedule", "seed = -3", "fast = \"maybe\""}) {
    const auto at = e.find(part);
    ASSERT_NE(at, e.npos) << part << " in " << e;
    EXPECT_GT(at, last) << part;
    last = at;
  }
}

TEST(Resolved, NamesTheOriginAndLoadsAgain) {
  const char* text =
      "name = \"a \\\"b\\\"\\n\\u0007\"\nratio = 0.1\nextra.lr = 3.0\n[[phases]]\nlr = 1e-30\n[model]\nschedule = \"linear\"";
  const auto first = parse_config<Config>(text, "a.toml", Overrides{"model.decoder.layers=9", "betas[0]=0.25"});
  const std::string resolved = resolved_toml(first);
  for (const char* line :
       {"ratio = 0.1  # a.toml:2:9\n", "seed = 1  # default\n", "layers = 9  # command line\n", "lr = 1e-30  # a.toml:5:6\n",
        "schedule = \"linear\"  # a.toml:7:12\n", "# window is not set  # default\n", "betas = [0.25, 0.95]  # command line\n"})
    EXPECT_THAT(resolved, HasSubstr(line));
  const auto second = parse_config<Config>(resolved, "b.toml");
  EXPECT_EQ(second.value.name, first.value.name);
  EXPECT_EQ(second.value.phases.size(), 1u);
  EXPECT_EQ(second.value.phases[0].lr, 1e-30);
  EXPECT_EQ(second.value.extra->lr, 3.0);
  EXPECT_EQ(second.value.model.decoder.layers, 9);
  EXPECT_EQ(second.value.betas, first.value.betas);
  const auto strip = [](std::string toml) {
    std::string out;
    std::istringstream in(toml);
    for (std::string line; std::getline(in, line);) out += line.substr(0, line.rfind("  # ")) + '\n';
    return out;
  };
  EXPECT_EQ(strip(resolved_toml(second)), strip(resolved));
}

TEST(Resolved, AnEmptyArrayOfTablesStaysEmpty) {
  const auto first = parse_config<Config>("phases = []", "a.toml");
  EXPECT_TRUE(first.value.phases.empty());
  EXPECT_TRUE(parse_config<Config>(resolved_toml(first), "b.toml").value.phases.empty());
}

TEST(Resolved, NumbersReadBackExactly) {
  for (const double x : {0.1, 1e300, 5e-324, 3.0, -0.0, 1.0 / 3}) {
    auto loaded = parse_config<Phase>("", "a.toml");
    loaded.value.lr = std::abs(x) > 0 ? x : 1.5;
    EXPECT_EQ(parse_config<Phase>(resolved_toml(loaded), "b.toml").value.lr, loaded.value.lr) << x;
  }
}

TEST(Reference, ListsKeysWithMeaningAndRange) {
  const std::string reference = config_reference<Config>();
  EXPECT_THAT(reference, HasSubstr("# a part; a number, at least 0, less than 1\nratio = 0.5\n"));
  EXPECT_THAT(reference, HasSubstr("[model.decoder]  # the language model\n"));
  EXPECT_EQ(parse_config<Config>(reference, "reference.toml").value.phases.size(), 2u);
  EXPECT_THAT(config_reference<Needy>(),
              HasSubstr("# manifest; a string, something that is not empty; required\n# data = \"\"\n"));
}

TEST(Config, ReadsFiles) {
  const auto file = std::filesystem::temp_directory_path() / "chorus_config_test.toml";
  std::ofstream(file) << "steps = 50\n";
  EXPECT_EQ(load_config<Config>(file).value.steps, 50);
  EXPECT_EQ(load_config<Config>(file, Overrides{"steps=60"}).value.steps, 60);
  std::filesystem::remove(file);
  EXPECT_EQ(load_config<Config>("", Overrides{"steps=60"}).value.steps, 60);
  const auto folder = std::filesystem::temp_directory_path();
  for (const auto& [unreadable, reason] :
       {std::pair{file, "No such file or directory"}, std::pair{folder, "it is a folder, expected a TOML file"}}) {
    try {
      load_config<Config>(unreadable);
      FAIL() << "read " << unreadable;
    } catch (const ConfigError& e) {
      EXPECT_THAT(e.what(), HasSubstr(unreadable.string() + ": cannot be read: " + reason));
    }
  }
}

// What can't be written as TOML could not be read back from the folder of a run.
TEST(Config, RefusesOverridesThatAreNoUtf8) {
  try {
    parse_config<Config>("", "x.toml", Overrides{"out=runs/caf\xE9"});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("command line: `out=runs/caf\xE9`: expected text in UTF-8"));
  }
  EXPECT_EQ(parse_config<Config>("", "x.toml", Overrides{"out=runs/caf\xC3\xA9"}).value.out, "runs/caf\xC3\xA9");
}

// What nests without bounds would overflow the stack of the parser.
TEST(Config, RefusesWhatNestsTooDeeply) {
  const auto error = [](const std::string& text, const std::vector<std::string>& overrides = {}) -> std::string {
    try {
      parse_config<Config>(text, "deep.toml", overrides);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto many = [](const std::string& part, int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += part;
    return text;
  };
  for (const std::string& deep :
       {"[" + many("a.", 100'000) + "a]\n", many("a.", 100'000) + "a = 1\n", "words = " + many("[", 100'000),
        "words = " + many("{a=", 100'000), many("\"x\" . ", 100) + "y = 1\n"}) {
    EXPECT_THAT(error("steps = 50\n" + deep), HasSubstr("deep.toml:2:1: nests deeper than 32 levels")) << deep.substr(0, 20);
  }
  EXPECT_THAT(error("", {"words=" + many("[", 100'000)}), HasSubstr("nests deeper than 32 levels"));
  EXPECT_THAT(error("", {many("a.", 100'000) + "a=1"}), HasSubstr("expected key=value"));
  // Neither texts nor comments nor numbers nest.
  EXPECT_EQ(error("name = \"" + many("[.", 200) + "\"  # " + many("[.", 200) + "\nout = '''" + many("{.\n", 200) +
                  "'''\nbetas = [" + many("0.1, ", 200) + "]\n"),
            "no error");
  EXPECT_THAT(error("name = \"\\\"[[[\nsteps = ]"), HasSubstr("deep.toml:1:"));  // an unfinished string
}

}  // namespace
}  // namespace chorus
