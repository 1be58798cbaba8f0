// Configurations and command lines that can't be honoured.
#include <gtest/gtest.h>

#include "errors/sections.h"

namespace chorus::errors {
namespace {

constexpr const char* nothing = "nothing was started, made or changed; exit status 2";

/// `chorus train` with a configuration that it must refuse, and the lines that it says.
Seen toml_refused(Scene& scene, const std::string& toml, const std::vector<std::string_view>& parts) {
  const Ended ended = scene.chorus({"train", scene.write("my.toml", toml).string()});
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_TRUE(ended.out.empty()) << ended.out;
  EXPECT_FALSE(std::filesystem::exists("runs")) << "a run folder was made";
  for (const auto part : parts) expect_parts(ended.err, {part});
  return {ended.err, nothing};
}

constexpr const char* base = "[data]\ntrain = \"train.jsonl\"\n[batches]\nglobal_batch_size = 4\n";

}  // namespace

void configuration_errors(ErrorTable& table) {
  table.section("Configuration", "Everything wrong is said at once, each with file, line and column.");
  const auto add = [&](const std::string& wrong, const std::string& more, std::initializer_list<std::string_view> parts) {
    const std::vector<std::string_view> wanted = parts;
    table.add(wrong, [&](Scene& s) { return toml_refused(s, std::string(base) + more, wanted); });
  };
  add("an unknown or misspelt key", "[trainer]\nsteeds = 7\n", {"my.toml:6:1: trainer.steeds: unknown key", "seed"});
  add("values of the wrong type and out of range",
      "[trainer]\nseed = \"one\"\nprecision = \"fp31\"\n[optimizer]\nbeta1 = 1.5\n",
      {"3 errors", "my.toml:6:8: trainer.seed = \"one\": expected an integer", "the nearest is \"fp32\"",
       "my.toml:9:9: optimizer.beta1 = 1.5: expected from 0 to 0.99999"});
  add("no TOML", "[trainer\n", {"my.toml:5:9: "});
  add("a key twice", "[trainer]\nseed = 1\nseed = 2\n", {"my.toml:7:"});
  add("a number that no machine can honour",
      "[trainer]\nthreads = 1000000\nmemory_limit_gigabytes = inf\n[features]\nwindow_seconds = 1e300\n",
      {"my.toml:6:11: trainer.threads = 1000000: expected from 0 to 1024", "inf: expected a finite number",
       "my.toml:9:18: features.window_seconds = 1e+300: expected at most 10"});
  add("two of the four batch sizes", "batch_frames = 900\n",
      {"my.toml:5:16: batches.batch_frames", "exactly one", "global_batch_size (4)", "batch_frames (900)"});
  add("a window longer than the transform", "[features]\nsample_rate = 16000\nwindow_seconds = 0.05\nn_fft = 512\n",
      {"my.toml:8:9: features.n_fft: 512 is less than the window", "800 samples"});
  add("frequencies that don't rise", "[features]\nsample_rate = 8000\nfmin = 5000\n",
      {"my.toml:7:8: features.fmin: 5000 Hz is not below 4000 Hz, half the sample_rate"});
  add("mel filters narrower than the spectrum's bins", "[features]\nmels = 200\nn_fft = 256\nwindow_seconds = 0.016\n",
      {"my.toml:6:8: features.mels: ", " of 200 filters lie between two bins", "62.5 Hz apart"});
  add("heads that don't divide the features, twice",
      "[model.encoder]\nd_model = 100\nheads = 8\n[model.llm]\nhidden_size = 100\n",
      {"2 errors", "my.toml:7:9: model.encoder.heads: d_model 100 is no multiple of heads 8",
       "my.toml:8:1: model.llm.num_attention_heads"});
  add("a weight for a head that isn't there", "[[phases]]\nctc_weight = 1\n",
      {"my.toml:5:1: phases: 'train' has a ctc_weight, but model.ctc_head is false"});
  add("a schedule longer than its phase", "[[phases]]\nsteps = 10\nschedule = {warmup_steps = 20}\n",
      {"my.toml:7:12: phases[0].schedule: warmup_steps 20 is more than steps = 10"});
  add("a pattern that is no regular expression", "[[phases]]\nfreeze_params = [\"llm[\"]\n",
      {"my.toml:6:18: phases[0].freeze_params[0] = \"llm[\": expected a regular expression"});
  add("evaluations without data for them", "[trainer]\nval_check_interval = 5\n",
      {"trainer: val_check_interval is 5, but data.validation is empty"});
  add("bf16 weights alone, not asked for", "[trainer]\nprecision = \"bf16-true\"\n",
      {"my.toml:6:13: trainer.precision: \"bf16-true\" keeps weights in bf16 only", "bf16-mixed keeps f32 masters",
       "set allow_bf16_true = true"});
  add("precisions that aren't there",
      "[trainer]\nprecision = \"bf16-flash\"\n[optimizer]\nexp_avg_dtype = \"bf16\"\nexp_avg_sq_dtype = \"fp8\"\n",
      {"3 errors", "my.toml:6:13: trainer.precision: \"bf16-flash\"", "my.toml:8:17: optimizer.exp_avg_dtype: \"bf16\"",
       "my.toml:9:20: optimizer.exp_avg_sq_dtype: \"fp8\": moments of fewer bits aren't there"});
  add("types of units beside fp64", "[trainer]\nprecision = \"fp64\"\nlm_head_precision = \"fp32\"\n",
      {"my.toml:7:21: trainer.lm_head_precision: fp32 in a model of fp64"});
  add("another type for what lies in no unit", "[trainer]\nmp_policy = [{units = \"root\", param_dtype = \"bf16\"}]\n",
      {"my.toml:6:23: trainer.mp_policy[0].units: root has the type of trainer.precision; only its reduce_dtype"});
  add("a folder for activations that nobody puts there", "[trainer]\nactivation_offload_folder = \"/fast\"\n",
      {"my.toml:6:29: trainer.activation_offload_folder: has no effect while activation_checkpointing_llm and "
       "activation_checkpointing_perception are none"});
  table.add("an unknown word in the prompt", [](Scene& s) {
    return toml_refused(s, "prompt = \"{bos}{sound}{answer}\"\n" + std::string(base),
                        {"my.toml:1:10: prompt: '{bos}{sound}{answer}' has {sound}", "{audio}, {answer}, {bos} and {eos}"});
  });
}

}  // namespace chorus::errors
