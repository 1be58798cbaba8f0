#include <chorus/apps/command_line.h>
#include <chorus/apps/commands.h>

namespace chorus {

void add_train_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("train", "Train what a configuration says; an existing run in its output_dir goes on");
  auto options = std::make_shared<TrainOptions>();
  command->add_option("config", options->file, "TOML file");
  command->add_option("overrides", options->overrides, "key=value, e.g. trainer.output_dir=runs/b phases[0].steps=100");
  command->add_flag("--print-config", options->print_config,
                    "Print the resolved configuration with the origin of each value, and stop");
  command->add_flag("--reference", options->reference, "Print all keys with meaning, range and default, and stop");
  auto* dry_run =
      command->add_flag("--dry-run", options->dry_run,
                        "Print configuration, parameters, batches and the memory that training will take; write nothing");
  command->add_option("--measure", options->measure, "With --dry-run: then train so many steps of each phase and compare")
      ->needs(dry_run)
      ->check(CLI::PositiveNumber);
  command
      ->add_option(
          "--ranks", options->ranks,
          "Train as so many ranks, each a thread of this process; [parallel] shares them out. With --dry-run: plan for so many")
      ->check(CLI::Range(1, 4096));
  command->callback([options, &status] { status = run_train(*options); });
}

void add_plan_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("plan", "What a configuration comes to on many ranks, without them");
  command->require_subcommand(1);
  auto* layout = command->add_subcommand("layout", "Print the mesh of the ranks and who holds what of the model");
  auto options = std::make_shared<PlanLayoutOptions>();
  layout->add_option("config", options->file, "TOML file")->required();
  layout->add_option("overrides", options->overrides, "key=value, e.g. parallel.tp_size=2");
  layout->add_option("--ranks", options->ranks, "How many there are")->required()->check(CLI::Range(1, 4096));
  layout->add_option("--rank", options->rank, "Show this one, from 0")->check(CLI::Range(0, 4095));
  layout->add_flag("--json", options->json, "For machines");
  layout->callback([options, &status] { status = run_plan_layout(*options); });
}

namespace {

void add_hearing_options(CLI::App& command, HearingOptions& hearing) {
  command.add_option("--chunk-seconds,--encoder_chunk_size_seconds", hearing.chunk_seconds,
                     "Cut recordings in chunks of so much, each heard alone; 0: not at all; otherwise as the model says");
  command.add_option("--tail-seconds", hearing.tail_seconds, "A shorter tail joins the chunk before it")->capture_default_str();
  command
      .add_option("--quiet-seconds", hearing.quiet_seconds,
                  "Cut at the quietest place of so much at the end of a chunk; 0: at its end")
      ->capture_default_str();
  command.add_option("--max-seconds", hearing.max_seconds, "Longest recording that is heard without cutting")
      ->capture_default_str();
  command.add_option("--batch-seconds", hearing.batch_seconds,
                     "Sound that is heard together, 60 unless given; 0: each chunk as soon as it is there, as from pipes");
}

}  // namespace

void add_transcribe_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("transcribe", "Transcribe recordings of any length with the newest checkpoint of a run");
  auto options = std::make_shared<TranscribeOptions>();
  command->add_option("--run", options->run, "Folder of the run")->required();
  command->add_option("inputs", options->inputs, "Sound files, folders of them, @lists of them, or - for standard input");
  command->add_option("--manifest", options->manifest, "NeMo manifest of recordings, with or without text");
  command->add_option("--format", options->format, "text, json, jsonl, srt or vtt")
      ->check(CLI::IsMember({"text", "json", "jsonl", "srt", "vtt"}));
  command->add_option("--output", options->output, "File that appears when all is done, instead of standard output");
  command->add_option("--output-dir", options->output_dir, "Folder for one file per recording, named after it");
  command->add_option("--output-manifest", options->output_manifest, "NeMo manifest with pred_text beside what was there");
  command->add_flag("--ctc", options->ctc, "Use the CTC head instead of the decoder");
  command->add_flag("--word-times", options->word_times, "When each word is heard (json, jsonl, srt, vtt), by the CTC head");
  command->add_option("--raw", options->raw, "Standard input has samples without header: s16le or f32le")
      ->check(CLI::IsMember({"s16le", "f32le"}));
  command->add_option("--sample-rate", options->sample_rate, "Hz, with --raw");
  command->add_option("--channels", options->channels, "with --raw");
  add_hearing_options(*command, options->hearing);
  command->add_option("--threads", options->threads, "0: the cores of the machine")->check(CLI::Range(0, 1024));
  command->callback([options, &status] { status = run_transcribe(*options); });
}

void add_evaluate_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("evaluate", "Loss, CER and WER of a run on a manifest");
  auto options = std::make_shared<EvaluateOptions>();
  command->add_option("--run", options->run, "Folder of the run")->required();
  command->add_option("manifest", options->manifest, "NeMo manifest")->required();
  command->add_option("--threads", options->threads, "0: the cores of the machine")->check(CLI::Range(0, 1024));
  command->add_flag("--controls", options->controls, "Also let it hear other recordings and silence");
  command->add_option("--table", options->table, "Print so many references and transcripts");
  command->add_option("--figure", options->figure_prefix, "Prefix of the figure lines");
  command->add_option("--output-manifest", options->output_manifest, "NeMo manifest with pred_text beside what was there");
  command->add_option("--json", options->json, "File for the figures as a JSON object");
  add_hearing_options(*command, options->hearing);
  command->callback([options, &status] { status = run_evaluate(*options); });
}

void add_data_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("data", "Make and check manifests");
  command->require_subcommand(1);
  auto* asterisk = command->add_subcommand("asterisk", "Manifests of Debian's telephone prompts, a tenth held out");
  auto options = std::make_shared<AsteriskOptions>();
  asterisk->add_option("--texts", options->texts, "core-sounds-<lang>.txt, unpacked")->required();
  asterisk->add_option("--sounds", options->sounds, "Folder of the .wav files")->required();
  asterisk->add_option("--out", options->out, "Folder for train.jsonl and heldout.jsonl")->required();
  asterisk->add_option("--lang", options->lang, "Language of the texts: en, es, fr, it or ru");
  asterisk->callback([options, &status] { status = run_asterisk(*options); });

  auto* text = command->add_subcommand("text", "Manifests of plain text for a decoder alone, some documents held out");
  auto text_options = std::make_shared<TextDataOptions>();
  text->add_option("files", text_options->files, "UTF-8 text; .gz is unpacked")->required();
  text->add_option("--out", text_options->out, "Folder for train.jsonl and heldout.jsonl")->required();
  text->add_option("--separator", text_options->cut.separator,
                   "A line that consists of this ends a document (fortunes: %); without it each file is one");
  text->add_option("--most-characters", text_options->cut.most_characters, "Of a piece, which is one training sample")
      ->capture_default_str();
  text->add_option("--heldout", text_options->cut.heldout_one_in, "One document in so many is held out, by its hash")
      ->capture_default_str();
  text->callback([text_options, &status] { status = run_text_data(*text_options); });

  auto* check =
      command->add_subcommand("check", "Everything that is wrong with manifests at once; status 1 if there are errors");
  auto checked = std::make_shared<DataCheckOptions>();
  check->add_option("manifests", checked->manifests, "Manifests to train on")->required();
  check->add_option("--heldout", checked->heldout, "Held-out manifests: no text or sound of theirs may be trained on");
  check->add_option("--tars", checked->tars, "Their tar shards, like data.input_cfg's tarred_audio_filepaths");
  check->add_flag("--deep", checked->deep, "Read all samples, not only headers");
  check->add_flag("--json", checked->json, "For machines");
  check->add_option("--limit", checked->limit, "Findings shown of each kind; 0: all");
  check->add_option("--threads", checked->threads, "0: the cores of the machine");
  check->callback([checked, &status] { status = run_data_check(*checked); });

  auto* manifest = command->add_subcommand("manifest", "Manifests of a corpus on disk");
  auto made = std::make_shared<DataManifestOptions>();
  auto* audio = manifest->add_option("--audio", made->audio, "Folder of sound files, described by --texts");
  auto* texts =
      manifest->add_option("--texts", made->texts, "List: 'name: text', name<tab>text, name text; or .csv, .tsv with header");
  auto* kaldi = manifest->add_option("--kaldi", made->kaldi, "Folder with wav.scp, text and perhaps segments and utt2spk");
  auto* tars = manifest->add_option("--tar", made->tars, "Tar files of sound and .txt or .json members (WebDataset)");
  audio->needs(texts);
  texts->needs(audio);
  kaldi->excludes(audio)->excludes(tars);
  tars->excludes(audio);
  manifest->add_option("--out", made->out, "Folder for train.jsonl and heldout.jsonl")->required();
  manifest->add_option("--lang", made->lang, "Language of entries that say none");
  manifest->add_option("--holdout", made->holdout, "Share of the texts that is held out, 0 to 0.9")
      ->check(CLI::Range(0.0, 0.9));
  manifest->add_option("--limit", made->limit, "Entries left out that are shown, of each kind; 0: all");
  manifest->callback([made, &status] { status = run_data_manifest(*made); });
}

void add_report_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("report", "Write a page of HTML about a run, or one that compares several");
  auto options = std::make_shared<ReportOptions>();
  command->add_option("runs", options->runs, "Folders of the runs")->required();
  command->add_option("--out", options->out, "File to write; without it report.html in the first folder");
  command->callback([options, &status] { status = run_report(*options); });
}

}  // namespace chorus
