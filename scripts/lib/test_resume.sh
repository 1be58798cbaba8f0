#!/usr/bin/env bash
# Trains configs/demo.toml, shortened to 200 steps that cover all its phases, three times: without a break; killed by SIGKILL at
# ten moments and started again each time; and ended once by SIGTERM. Every step's loss and the final weights must be the
# same, bit by bit. Usage: scripts/test resume [seed of the moments]. Exit code 0: all equal; 1: anything else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seed=${1:-$((RANDOM + 1))}
RANDOM=$seed

source scripts/lib/packages.sh
source scripts/lib/build.sh
source scripts/lib/corpora.sh

configure release
build release chorus
chorus=build/release/apps/chorus
asterisk_corpus en data/asterisk >/dev/null

work=build/resume
rm -rf "$work"
mkdir -p "$work"
phases=(70 70 60)
every=20
overrides=(data.validation= trainer.val_check_interval=0 "trainer.checkpoint_every_n_steps=$every")
for i in "${!phases[@]}"; do overrides+=("phases[$i].steps=${phases[i]}" "phases[$i].schedule.warmup_steps=10"); done
total=$((phases[0] + phases[1] + phases[2]))

die() { echo "test resume: $*, seed $seed" >&2; exit 1; }

run= # the folder of the run at hand, $run.log beside it; pid: its process
start() {
  "$chorus" train configs/demo.toml "trainer.output_dir=$run" "${overrides[@]}" >>"$run.log" 2>&1 &
  pid=$!
}
finish() { # to the end, from wherever it is
  start
  local status=0
  wait "$pid" || status=$?
  [[ $status == 0 ]] || { tail -n 20 "$run.log" >&2; die "$run ended with $status"; }
}
last_step() { tail -n 3 "$run/metrics.jsonl" 2>/dev/null | sed -nE 's/.*"event":"step".*"step":([0-9]+),.*/\1/p' | tail -n 1; }
alive() { kill -0 "$pid" 2>/dev/null; }
wait_for_step() { while alive && (($(last_step || true)0 < $1 * 10)); do sleep 0.005; done; }
wait_for_saving() { while alive && ! compgen -G "$run/checkpoints/*.tmp-*" >/dev/null; do :; done; }
milliseconds() { sleep "$(printf '0.%03d' $((RANDOM % $1)))"; }
losses() { sed -nE 's/.*"event":"step".*"step":([0-9]+),.*"loss_hex":"([^"]+)".*/\1 \2/p' "$run/metrics.jsonl"; }
weights() { sed -nE 's/^weights (.*)/\1/p' "$run.log" | tail -n 1; }

echo "== resume: seed $seed, $total steps in phases of ${phases[*]}, a checkpoint every $every steps"
run=$work/unbroken
finish
losses >"$work/unbroken.losses"
[[ $(wc -l <"$work/unbroken.losses") == "$total" ]] || die "the unbroken run has $(wc -l <"$work/unbroken.losses") steps, not $total"
expected=$(weights)
[[ -n $expected ]] || die "the unbroken run printed no weights"
echo "unbroken: $total steps, weights $expected"

compare() {
  losses | sort -n -u >"$work/all.losses"
  local runs
  runs=$(losses | wc -l)
  diff "$work/unbroken.losses" "$work/all.losses" >"$work/diff" || { head -n 20 "$work/diff" >&2; die "losses of $run differ"; }
  [[ $(weights) == "$expected" ]] || die "weights of $run are $(weights), not $expected"
  local left
  left=$(find "$run" -mindepth 1 \( -name '*.tmp*' -o -name '*.old' -o -name '*.del' \))
  [[ -z $left ]] || die "left over: $left"
  echo "$(basename "$run"): $runs steps run, all $total losses and the weights equal those of the unbroken run"
}

run=$work/killed
kills=0
seen=0
for kind in startup step saving step change step saving change saving step; do
  start
  target=$((seen + 1 + RANDOM % every))
  case $kind in
    startup) milliseconds 900 ;;
    step) wait_for_step $((target < total - 2 ? target : total - 2)); milliseconds 150 ;;
    saving) wait_for_saving; milliseconds 30 ;;
    change) # right after the last step of a phase: its checkpoint, the next phase's model, its first step
      border=$((seen < phases[0] ? phases[0] : phases[0] + phases[1]))
      wait_for_step "$border"
      milliseconds 200
      ;;
  esac
  kill -KILL "$pid" 2>/dev/null || true
  status=0
  wait "$pid" 2>/dev/null || status=$?
  [[ $status == 137 ]] || { tail -n 20 "$run.log" >&2; die "the run ended with $status before it could be killed ($kind)"; }
  kills=$((kills + 1))
  now=$(last_step || true)
  seen=${now:-$seen}
  saving=$(compgen -G "$run/checkpoints/*.tmp-*" >/dev/null && echo ", a checkpoint half written" || true)
  echo "kill $kills ($kind): after step ${now:-0}$saving"
  # What a process that died while writing leaves behind, whether or not this one did.
  if [[ $kind == step && -f $run/metrics.jsonl ]]; then printf '{"event":"step","phase":"c' >>"$run/metrics.jsonl"; fi
done
finish
compare

run=$work/stopped
start
at=$((20 + RANDOM % (total - 50)))
wait_for_step "$at"
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
[[ $status == 75 ]] || die "after SIGTERM the run ended with $status, not 75"
stopped=$(sed -nE 's/^stopped by a signal after step ([0-9]+);.*/\1/p' "$run.log")
[[ -f $run/checkpoints/$(printf 'step-%06d' "$stopped")/manifest.json ]] || die "no checkpoint of step $stopped after SIGTERM"
echo "SIGTERM: exit code 75 after step $stopped, with its checkpoint"
finish
compare
echo "resume: equal"
