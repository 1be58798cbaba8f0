// Audio embeddings take the place of audio tags, and labels move one to the left: NeMo's replace_placeholders_and_build_targets
// for packed batches.
#pragma once
#include <chorus/tensor/rows.h>

#include <vector>

namespace chorus {

/// One sample of a batch as token ids; each audio tag stands for the next audio of the batch.
struct Conversation {
  std::int64_t id = 0;  ///< sample id: the first part of its random counters
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> answer;  ///< of each token: whether it is trained (the answer and its end)
};

struct SpliceOptions {
  std::int32_t audio_tag = -1;
  bool restart_text_positions = false;
  bool targets = true;  ///< drop the last item of each sequence and build labels; false to generate
};

struct Splice {
  Rows rows;                            ///< one sequence per conversation
  Tensor token_ids;                     ///< i32: the text tokens of all conversations in order, without tags
  Tensor index;                         ///< i32 [rows]: which row of (text embeddings, then audio embeddings) each row is
  Tensor labels;                        ///< i32 [rows]: the next token where that is trained text, else ignored_label
  std::vector<std::int32_t> text_rows;  ///< the row of each text token
  /// Rotary position of a text token that would follow each conversation: where an answer goes on.
  std::vector<std::int32_t> next_positions;
};

/// audio_lengths holds the rows of each audio of the batch, in order of appearance. Throws when the number of tags is another.
Splice splice(Context& context, const std::vector<Conversation>& conversations, const std::vector<std::int64_t>& audio_lengths,
              const SpliceOptions& options);

}  // namespace chorus
