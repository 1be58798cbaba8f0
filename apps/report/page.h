// The page that people judge a run by: one file of HTML that needs nothing else, neither network nor script.
#pragma once
#include <chorus/apps/report/read.h>

#include <span>

namespace chorus::report {

/// One run in detail, or several in comparison.
///
/// Every figure is a <data> element whose "data-key" says what it is in metrics.jsonl:
///   <mean|median|sum|min|max>:<column>:<first>-<last>   over these steps
///   share:data_wait:<first>-<last>                      sum of data_wait over sum of seconds
///   mean:evaluation.<key>:<step>-<step>                 the line "evaluation" of this step (the last one of it)
///   op_seconds:<op>, op_share:<op>, op_rate:<op>        over all lines "interval": seconds per step, part of all seconds,
///   FLOP/s dropped:<reason>, steps:last, errors:<step>:<recording>:<llm|ctc>:<characters|reference>
/// With several runs the key begins with the run's number and a slash, e.g. "0/median:tokens_per_s:1-400".
std::string page(std::span<const Run> runs);

}  // namespace chorus::report
