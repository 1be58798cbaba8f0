#include <chorus/models/salm/splice.h>
#include <chorus/tensor/ops/linear_cross_entropy.h>

#include <numeric>

namespace chorus {
namespace {

/// What stands at one row: a text token (its number in the batch) or an audio row (its number in the batch).
struct Item {
  bool audio;
  std::int32_t number, token, position;
  bool trained;
};

}  // namespace

Splice splice(Context& context, const std::vector<Conversation>& conversations, const std::vector<std::int64_t>& audio_lengths,
              const SpliceOptions& options) {
  std::size_t tags = 0;
  for (const auto& c : conversations) {
    require(c.tokens.size() == c.answer.size(), "splice", "sample ", c.id, " has ", c.tokens.size(), " tokens and ",
            c.answer.size(), " marks");
    tags += static_cast<std::size_t>(std::count(c.tokens.begin(), c.tokens.end(), options.audio_tag));
  }
  require(tags == audio_lengths.size(), "splice", tags, " audio tags in the text, but ", audio_lengths.size(),
          " audios in the batch");

  std::vector<std::int32_t> token_ids, index, labels, positions, text_rows, next_positions;
  std::vector<bool> is_audio;
  std::vector<std::int64_t> lengths, ids;
  std::size_t audio = 0;
  std::int32_t audio_row = 0;
  for (const auto& c : conversations) {
    std::vector<Item> items;
    std::int32_t text_position = 0;
    for (std::size_t t = 0; t < c.tokens.size(); ++t) {
      if (c.tokens[t] != options.audio_tag) {
        items.push_back({false, 0, c.tokens[t], text_position++, c.answer[t] != 0});
        continue;
      }
      for (std::int32_t a = 0; a < audio_lengths[audio]; ++a) items.push_back({true, audio_row++, 0, a, false});
      ++audio;
    }
    const std::size_t rows = items.size() - (options.targets && !items.empty() ? 1 : 0);
    for (std::size_t r = 0; r < rows; ++r) {
      Item& item = items[r];
      if (!item.audio) {
        item.number = static_cast<std::int32_t>(token_ids.size());
        token_ids.push_back(item.token);
        text_rows.push_back(static_cast<std::int32_t>(index.size()));
      }
      index.push_back(item.number);
      is_audio.push_back(item.audio);
      const bool trained = options.targets && !items[r + 1].audio && items[r + 1].trained;
      labels.push_back(trained ? items[r + 1].token : ignored_label);
      positions.push_back(options.restart_text_positions ? item.position : static_cast<std::int32_t>(r));
    }
    lengths.push_back(static_cast<std::int64_t>(rows));
    ids.push_back(c.id);
    next_positions.push_back(options.restart_text_positions ? text_position : static_cast<std::int32_t>(items.size()));
  }
  // Audio rows come after the text rows in the table that `index` points into.
  for (std::size_t r = 0; r < index.size(); ++r)
    if (is_audio[r]) index[r] += static_cast<std::int32_t>(token_ids.size());

  Splice out;
  const auto count = static_cast<std::int64_t>(index.size());
  out.rows = make_rows(context, lengths, ids);
  out.rows.positions = Tensor::of(context, {count}, positions);
  out.token_ids = Tensor::of(context, {static_cast<std::int64_t>(token_ids.size())}, token_ids);
  out.index = Tensor::of(context, {count}, index);
  out.labels = Tensor::of(context, {count}, labels);
  out.text_rows = std::move(text_rows);
  out.next_positions = std::move(next_positions);
  return out;
}

}  // namespace chorus
